"""The gauges of each partition that this broker leads."""

from barnabas.broker import gauges
from barnabas.metrics.catalogue import PartitionMetrics
from barnabas.metrics.registry import Registry
from tests.unit.broker.replication.replicas import Replicas


async def told(**lead: object) -> dict[str, float]:
    replicas, registry = Replicas(min_insync_replicas="2"), Registry()
    gauges.read_partitions(PartitionMetrics(registry), replicas.manager)
    await replicas.lead(replicas=(0, 1, 2), **lead)  # type: ignore[arg-type]
    return {
        family.name.removeprefix("kafka_cluster_partition_"): value
        for family in registry.snapshot()
        for labels, value in family.samples
        if labels == ("t", "0") and isinstance(value, int | float)
    }


async def test_gauges_report_replication_of_a_led_partition() -> None:
    offsets = {"laststableoffset": 0, "laststableoffsetlag": 0}
    for isr, under, below, at in (
        ((0, 1, 2), False, False, False),
        ((0, 1), True, False, True),
        ((0,), True, True, False),
    ):
        assert await told(isr=isr) == offsets | {
            "replicascount": 3,
            "insyncreplicascount": len(isr),
            "underreplicated": under,
            "underminisr": below,
            "atminisr": at,
        }


async def test_follower_reports_no_partition_gauges() -> None:
    assert await told(leader=1, isr=(0, 1, 2)) == {}
