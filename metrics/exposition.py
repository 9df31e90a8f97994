"""A snapshot of the registry in the text format that Prometheus scrapes.

Imports prometheus_client, which costs a tenth of a second and megabytes: import this only where a
scrape arrives.
"""

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.process_collector import ProcessCollector

from barnabas.metrics.registry import FamilySnapshot, HistogramSample


def render(snapshot: Sequence[FamilySnapshot], accept: str) -> tuple[str, bytes]:
    """Content type and body for a scrape whose Accept header is `accept`."""
    registry = CollectorRegistry()
    registry.register(_Snapshot(snapshot))
    ProcessCollector(registry=registry)
    encode, content_type = choose_encoder(accept)
    return content_type, encode(registry)


class _Snapshot:
    """A custom collector: what prometheus_client asks when it renders."""

    def __init__(self, families: Iterable[FamilySnapshot]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        for family in self._families:
            yield _metric(family)


def _metric(family: FamilySnapshot) -> Metric:
    name, help_text, kind, labels, samples = family
    metric: CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily
    if kind == "histogram":
        metric = HistogramMetricFamily(name, help_text, labels=labels)
    elif kind == "counter":
        metric = CounterMetricFamily(name, help_text, labels=labels)
    else:
        metric = GaugeMetricFamily(name, help_text, labels=labels)
    for values, sample in samples:
        if isinstance(sample, HistogramSample):
            assert isinstance(metric, HistogramMetricFamily)
            metric.add_metric(values, _cumulative(sample), sample.sum)
        else:
            assert not isinstance(metric, HistogramMetricFamily)
            metric.add_metric(values, sample)
    return metric


def _cumulative(sample: HistogramSample) -> list[tuple[str, float]]:
    buckets: list[tuple[str, float]] = []
    total = 0
    for bound, count in zip((*map(str, sample.bounds), "+Inf"), sample.counts, strict=True):
        total += count
        buckets.append((bound, total))
    return buckets
