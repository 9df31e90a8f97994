"""Gauges that are computed at each scrape."""

from types import SimpleNamespace
from typing import Any

from barnabas.broker.gauges import read_groups
from barnabas.metrics.catalogue import GroupMetrics
from barnabas.metrics.registry import Registry


def test_replica_out_of_sync_reports_no_group_lag() -> None:
    """Its high watermark may be old: a group far behind would seem to have read all records."""
    committed = [("g", "t", index, SimpleNamespace(offset=3)) for index in range(2)]
    coordinator: Any = SimpleNamespace(
        offsets=lambda: committed, states=dict, count_offsets=lambda: 2
    )
    counts = SimpleNamespace(committed=0, expired=0, deleted=0)
    replicas: Any = [SimpleNamespace(topic="t", index=i, high_watermark=10) for i in range(2)]
    gauges = GroupMetrics(Registry())
    groups: Any = SimpleNamespace(coordinator=coordinator, counts=counts)
    records: Any = SimpleNamespace(to_read=list, held_back=list)
    read_groups(gauges, groups, replicas, lambda partition: partition.index == 1, records)
    assert list(gauges.lag.snapshot().samples) == [(("g", "t", "1"), 7)]
