"""The counters of a topic, as direct references for the produce and fetch paths."""

from barnabas.metrics.catalogue import TopicMetrics


class TopicCells:
    """The counter cells of one topic: plain integers, which the registry collects on a scrape."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "bytes_rejected",
        "failed_fetches",
        "failed_produces",
        "fetches",
        "messages_in",
        "produces",
    )

    def __init__(self, metrics: TopicMetrics, topic: str) -> None:
        self.bytes_in = metrics.bytes_in.cell(topic)
        self.bytes_out = metrics.bytes_out.cell(topic)
        self.bytes_rejected = metrics.bytes_rejected.cell(topic)
        self.failed_fetches = metrics.failed_fetch_requests.cell(topic)
        self.failed_produces = metrics.failed_produce_requests.cell(topic)
        self.fetches = metrics.fetch_requests.cell(topic)
        self.messages_in = metrics.messages_in.cell(topic)
        self.produces = metrics.produce_requests.cell(topic)


def forget(metrics: TopicMetrics, topic: str) -> None:
    """Remove the counters of a topic that has no replica on this broker any more."""
    for family in (
        metrics.bytes_in,
        metrics.bytes_out,
        metrics.bytes_rejected,
        metrics.failed_fetch_requests,
        metrics.failed_produce_requests,
        metrics.fetch_requests,
        metrics.messages_in,
        metrics.produce_requests,
    ):
        family.remove(topic)
