"""What brokers say of topics: C17."""

from collections.abc import Iterator

from barnabas.verify.checks.anomaly import Anomaly
from barnabas.verify.run import Run


def no_topic_denied(run: Run) -> Iterator[Anomaly]:
    """C17: a topic that is there stays known to a broker that knew it, over its restarts as well.

    Clients forget their sequences with the topic, and broker and client disagree about them later.
    """
    known: set[tuple[int, str]] = set()
    for view in run.views:
        for name in view.unknown:
            if (view.node, name) in known:
                text = f"broker {view.node} knew {name}, and then did not"
                yield Anomaly("C17", "denied-topic", text)
        known.update((view.node, name) for name in view.known)
