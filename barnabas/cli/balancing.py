"""The state of a cluster that `partitions balance` asks for, and the facts that it shows."""

from typing import Any, NamedTuple

from barnabas.cli import reassignments
from barnabas.client.admin import Admin
from barnabas.client.balance_plan import loads
from barnabas.client.cluster import Cluster
from barnabas.client.drain_plan import Placements
from barnabas.client.reassignment_plan import Plan, plan_text
from barnabas.protocol.topic_partition import TopicPartition


class BalanceState(NamedTuple):
    """The placement of all partitions, the bytes of a replica of each, and the brokers' racks."""

    placements: Placements
    sizes: dict[TopicPartition, int]
    racks: dict[int, str | None]


async def state_of(cluster: Cluster) -> BalanceState:
    """Return the state of a cluster; the largest replica of a partition gives its size."""
    admin = Admin(cluster)
    racks = {row.broker_id: row.rack for row in (await admin.describe_cluster()).brokers}
    await cluster.refresh()
    sizes: dict[TopicPartition, int] = {}
    for broker in racks:
        for directory in await admin.describe_log_dirs(broker):
            for topic in directory.topics:
                for row in topic.partitions:
                    key = TopicPartition(topic.name, row.partition_index)
                    sizes[key] = max(sizes.get(key, 0), row.partition_size)
    return BalanceState(reassignments.placements(cluster), sizes, racks)


def facts(state: BalanceState, plan: Plan) -> dict[str, Any]:
    """Return the loads of the brokers before and after a plan, and what it moves."""
    before = {key: placed.replicas for key, placed in state.placements.items()}
    now = loads(before, state.sizes, state.racks)
    then = loads(before | plan, state.sizes, state.racks)
    moved = [
        (len(set(replicas) - set(before[key])), state.sizes.get(key, 0))
        for key, replicas in plan.items()
    ]
    return {
        "brokers": [
            {
                "broker": broker,
                "replicas": now[broker].replicas,
                "replicas_after": then[broker].replicas,
                "bytes": now[broker].size_bytes,
                "bytes_after": then[broker].size_bytes,
                "leaders": now[broker].leaders,
                "leaders_after": then[broker].leaders,
            }
            for broker in now
        ],
        "moved_replicas": sum(count for count, _ in moved),
        "moved_bytes": sum(count * size for count, size in moved),
        "moved_leaders": sum(plan[key][0] != before[key][0] for key in plan),
    }


def current_text(state: BalanceState, plan: Plan) -> str:
    """Return the current replicas of the partitions of a plan, as a plan of one line."""
    return plan_text({key: state.placements[key].replicas for key in plan})
