"""The health of a cluster: the problems that clients can see and an operator has to solve."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster, TopicInfo
from barnabas.client.connection import BrokerUnreachable
from barnabas.client.partition_admin import PartitionAdmin
from barnabas.client.transaction_admin import TransactionAdmin
from barnabas.operations.answers.cluster import Problem
from barnabas.operations.log_dirs import ONLINE, directories
from barnabas.operations.partitions import readable_partitions
from barnabas.operations.transactions.stuck import held_back
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.topic_partition import TopicPartition

HELD_BACK_MS: Final = 60_000
"""The age of the newest record of an open transaction from which it counts as a problem."""
_CAUSES_FIRST: Final = ("brokers", "directories", "controller", "leaders", "isr", "transactions")
"""The checks in the order in which a problem of one causes those of the next ones."""


class Changes(NamedTuple):
    """The difference between the problems of two checks.

    A problem whose text has changed counts as new, and not as solved.
    """

    appeared: list[Problem]
    solved: list[Problem]

    @classmethod
    def between(cls, before: Sequence[Problem], now: Sequence[Problem]) -> "Changes":
        known, remaining = set(before), set(now)
        appeared = [each for each in now if each not in known]
        renewed = {(each.check, each.where) for each in appeared}
        gone = (each for each in before if each not in remaining)
        return cls(appeared, [each for each in gone if (each.check, each.where) not in renewed])


def unreachable(before: Sequence[Problem], reason: str) -> list[Problem]:
    """Return the problems of a cluster that does not answer; earlier ones may still exist."""
    now = Problem("brokers", "cluster", reason)
    return [now, *(each for each in before if (each.check, each.where) != (now.check, now.where))]


async def find_problems(
    cluster: Cluster, held_back_lately: Iterable[TopicPartition] | None = None
) -> list[Problem]:
    """Check brokers, controller, partitions, log directories, and transactions that hold consumers
    back: in all partitions, or in those where one did lately. A cause comes before its symptoms."""
    await cluster.refresh()
    described = await Admin(cluster).describe_cluster()
    found: list[Problem] = []
    if described.controller_id not in cluster.nodes:
        found.append(Problem("controller", "cluster", "no broker is the controller"))
    found += _dead(cluster)
    found += await _partitions(cluster)
    for node in sorted(cluster.nodes):
        found += await _directories(cluster, node)
    if held_back_lately is None:
        held_back_lately = readable_partitions(cluster)
    found += await _held_back(cluster, held_back_lately)
    return sorted(found, key=lambda each: _CAUSES_FIRST.index(each.check))


def _dead(cluster: Cluster) -> list[Problem]:
    """Return the brokers that have replicas and are not alive."""
    lost = Counter(
        node
        for topic in cluster.topics.values()
        for row in topic.description.partitions
        for node in row.replica_nodes
        if node not in cluster.nodes
    )
    return [
        Problem("brokers", f"broker {node}", f"not alive; replicas of {count} partitions are there")
        for node, count in sorted(lost.items())
    ]


async def _partitions(cluster: Cluster) -> list[Problem]:
    moving = await PartitionAdmin(cluster).reassignments()
    lacking = {
        topic.name: rows
        # A page may show only the first of them.
        for topic in sorted(cluster.topics.values(), key=lambda each: (each.is_internal, each.name))
        if (rows := list(_lacking(cluster, topic)))
    }
    min_isr = await Admin(cluster).min_isr(lacking)
    found: list[Problem] = []
    for topic, rows in lacking.items():
        for partition, leader, replicas, isr in rows:
            running = moving.get(TopicPartition(topic, partition))
            missing = replicas - isr - set(running.adding if running is not None else ())
            where = f"{topic}-{partition}"
            if leader not in cluster.nodes:
                found.append(Problem("leaders", where, "no leader"))
            elif len(isr) < min_isr[topic]:
                problem = (
                    f"{len(isr)} replicas are in sync, min.insync.replicas is {min_isr[topic]}"
                )
                found.append(Problem("isr", where, problem))
            elif missing:
                named = ", ".join(map(str, sorted(missing)))
                found.append(Problem("isr", where, f"not in sync: broker {named}"))
    return found


def _lacking(cluster: Cluster, topic: TopicInfo) -> Iterator[tuple[int, int, set[int], set[int]]]:
    """Yield partitions without a leader or without all replicas in sync: partition, leader,
    replicas and ISR."""
    for row in sorted(topic.description.partitions, key=lambda row: row.partition_index):
        replicas, isr = set(row.replica_nodes), set(row.isr_nodes)
        if row.leader_id not in cluster.nodes or isr < replicas:
            yield row.partition_index, row.leader_id, replicas, isr


async def _directories(cluster: Cluster, node: int) -> list[Problem]:
    try:
        # Of no partition: 10,000 sizes would take the broker 40 ms.
        found = await directories(cluster, node, ())
    except (BrokerUnreachable, OSError, TimeoutError) as error:
        return [Problem("brokers", f"broker {node}", f"not reached: {error}")]
    except KafkaError as error:
        return [Problem("directories", f"broker {node}", str(error))]
    return [
        Problem("directories", f"broker {node}", f"{each.log_dir}: {each.state}")
        for each in found
        if each.state != ONLINE
    ]


async def _held_back(cluster: Cluster, partitions: Iterable[TopicPartition]) -> list[Problem]:
    """Return the partitions where no record was added to the oldest open transaction lately."""
    held = await held_back(cluster, partitions)
    now_ms = time.time_ns() // 1_000_000
    return [
        Problem(
            "transactions",
            f"{each.topic}-{each.partition}",
            f"an open transaction of producer {each.producer_id} holds read_committed consumers "
            f"back; see `barnabas transactions why {each.topic}:{each.partition}`",
        )
        for each in await TransactionAdmin(cluster).open_in(held)
        if now_ms - each.last_timestamp_ms > HELD_BACK_MS
        and each.start_offset <= held[each.topic_partition][0]
    ]
