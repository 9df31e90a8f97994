"""The replicas of partitions: leader, ISR, and the batches of each replica."""

from collections.abc import Iterable
from typing import NamedTuple

from barnabas.client.cluster import Cluster, check
from barnabas.client.connection import BrokerUnreachable
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.messages import fetch, metadata
from barnabas.protocol.records.batch import crc_matches, iter_headers
from barnabas.verify.history import Partition
from barnabas.verify.wire.fetching import FROM_FOLLOWERS_SINCE, fetch_from

DAMAGED = -1
"""The CRC of a batch whose bytes do not match its CRC."""


class Replicas(NamedTuple):
    """The replicas of a partition as a broker describes them; leader -1: none."""

    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]

    @property
    def is_whole(self) -> bool:
        return self.leader in self.in_sync and set(self.in_sync) == set(self.replicas)


class Batch(NamedTuple):
    """A batch in a replica; equal fields mean equal bytes. `size` is in bytes."""

    base_offset: int
    size: int
    leader_epoch: int
    crc: int


async def described(
    cluster: Cluster, topics: Iterable[str]
) -> dict[int, dict[Partition, Replicas] | None]:
    """Return each broker's description of these and the internal topics; None without an answer.

    Raises BrokerUnreachable, TimeoutError and KafkaError if no broker answers.
    """
    await cluster.refresh(())
    wanted = frozenset(topics)
    return {node: await _described_by(cluster, node, wanted) for node in sorted(cluster.nodes)}


async def _described_by(
    cluster: Cluster, node: int, wanted: frozenset[str]
) -> dict[Partition, Replicas] | None:
    request = metadata.MetadataRequest(topics=None, allow_auto_topic_creation=False)
    try:
        answer = await cluster.ask(metadata.API, request, node=node)
        found = {}
        for topic in answer.topics:
            if topic.name not in wanted and not topic.is_internal:
                continue
            check(topic.error_code, topic.name)
            for row in topic.partitions:
                found[topic.name, row.partition_index] = Replicas(
                    row.leader_id, tuple(row.replica_nodes), tuple(row.isr_nodes)
                )
    except (KafkaError, BrokerUnreachable, TimeoutError):
        return None
    return found


async def serves_followers(cluster: Cluster) -> bool:
    """Whether followers serve consumers (KIP-392)."""
    return (await cluster.any_connection()).version_for(fetch.API) >= FROM_FOLLOWERS_SINCE


async def batches_of(
    cluster: Cluster, node: int, positions: dict[Partition, int]
) -> dict[Partition, list[Batch]]:
    """Return the next batches of each partition in a replica; advances `positions`."""
    found: dict[Partition, list[Batch]] = {}
    for each in await fetch_from(cluster, node, positions, committed=False, max_wait=0.1):
        data = each.batches
        for pos, header in iter_headers(data):
            crc = header.crc if crc_matches(data, pos, header) else DAMAGED
            batch = Batch(header.base_offset, header.size, header.partition_leader_epoch, crc)
            found.setdefault(each.at, []).append(batch)
            positions[each.at] = max(positions[each.at], header.next_offset)
    return found
