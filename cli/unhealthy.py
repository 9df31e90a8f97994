"""`barnabas topics describe`, where only partitions are wanted that lack something."""

from collections.abc import Collection
from typing import Any

from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.partition_admin import PartitionAdmin, Reassignment
from barnabas.protocol.config_resources import ResourceType
from barnabas.protocol.topic_partition import TopicPartition

UNDER_REPLICATED, UNDER_MIN_ISR, AT_MIN_ISR, UNAVAILABLE = FILTERS = (
    "under-replicated",
    "under-min-isr",
    "at-min-isr",
    "unavailable",
)
COLUMNS = ["topic", "partition", "leader", "replicas", "isr", "lacks"]


async def find_unhealthy(
    cluster: Cluster, name: str | None, filters: Collection[str]
) -> list[dict[str, Any]]:
    """Partitions of a topic, or of all, that match one of the filters, and which of them."""
    names = None if name is None else [(await cluster.topic(name)).name]
    await cluster.refresh(names)
    moving: dict[TopicPartition, Reassignment] = {}
    if UNDER_REPLICATED in filters:
        # Replicas that a reassignment adds are not missing yet.
        moving = await PartitionAdmin(cluster).reassignments()
    rows = []
    for topic in sorted(cluster.topics.values(), key=lambda topic: topic.name):
        min_isr = None
        if UNDER_MIN_ISR in filters or AT_MIN_ISR in filters:
            min_isr = await _min_isr(cluster, topic.name)
        for row in sorted(topic.description.partitions, key=lambda row: row.partition_index):
            running = moving.get((topic.name, row.partition_index))
            replicas = set(row.replica_nodes) - set(running.adding if running is not None else ())
            found = {
                UNDER_REPLICATED: len(row.isr_nodes) < len(replicas),
                UNDER_MIN_ISR: min_isr is not None and len(row.isr_nodes) < min_isr,
                AT_MIN_ISR: len(row.isr_nodes) == min_isr,
                UNAVAILABLE: row.leader_id not in cluster.nodes,
            }
            lacks = [each for each in FILTERS if each in filters and found[each]]
            if lacks:
                rows.append(
                    {
                        "topic": topic.name,
                        "partition": row.partition_index,
                        "leader": row.leader_id,
                        "replicas": row.replica_nodes,
                        "isr": row.isr_nodes,
                        "lacks": lacks,
                    }
                )
    return rows


async def _min_isr(cluster: Cluster, topic: str) -> int:
    entries = await Admin(cluster).describe_configs(ResourceType.TOPIC, topic)
    return next(int(each.value or 1) for each in entries if each.name == "min.insync.replicas")
