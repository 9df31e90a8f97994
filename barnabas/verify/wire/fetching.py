"""Fetch requests to a given broker: the leader, or another replica (KIP-392)."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from barnabas.client.batches import whole_batches
from barnabas.client.cluster import Cluster, check
from barnabas.protocol.messages import fetch
from barnabas.verify.history import Partition

_HIGHEST_WITH_NAMES: Final = 12
FROM_FOLLOWERS_SINCE: Final = 11
"""The first version of Fetch in which followers serve consumers."""


class Fetched(NamedTuple):
    """The response of a broker for one partition."""

    at: Partition
    row: fetch.PartitionData
    epoch: int
    """The leader epoch in the request, which the broker accepted; -1 if it was unknown."""

    @property
    def batches(self) -> memoryview:
        """The complete batches, without one that is cut off at the end."""
        data = self.row.records
        return whole_batches(data if isinstance(data, bytes | memoryview) else b"")


def leader_epoch(cluster: Cluster, at: Partition) -> int:
    """Return the leader epoch in the last Metadata response; -1 if it had none."""
    info = cluster.topics.get(at[0])
    for row in info.description.partitions if info is not None else ():
        if row.partition_index == at[1]:
            return int(row.leader_epoch)
    return -1


async def fetch_from(
    cluster: Cluster,
    node: int,
    positions: Mapping[Partition, int],
    *,
    epochs: Mapping[Partition, int] | None = None,
    committed: bool,
    max_wait: float,
) -> list[Fetched]:
    """Send one Fetch to a broker, as a consumer; `max_wait` is in s.

    `epochs` are the leader epochs for the request, by default those known from Metadata. Raises the
    first error of a partition.
    """
    connection = await cluster.connection_to(node)
    if epochs is None:
        for at in positions:
            await cluster.topic(at[0])
        epochs = {at: leader_epoch(cluster, at) for at in positions}
    topics: dict[str, fetch.FetchTopic] = {}
    for at, offset in positions.items():
        topic = topics.setdefault(at[0], fetch.FetchTopic(topic=at[0], partitions=[]))
        topic.partitions.append(
            fetch.FetchPartition(
                partition=at[1],
                current_leader_epoch=epochs[at],
                fetch_offset=offset,
                partition_max_bytes=1024 * 1024,
            )
        )
    request = fetch.FetchRequest(
        max_wait_ms=int(max_wait * 1000),
        min_bytes=1,
        max_bytes=16 * 1024 * 1024,
        isolation_level=int(committed),
        topics=list(topics.values()),
    )
    response = await connection.request(
        fetch.API,
        request,
        version=min(connection.version_for(fetch.API), _HIGHEST_WITH_NAMES),
        timeout=cluster.timeout + max_wait,
    )
    check(response.error_code)
    found = []
    for topic in response.responses:
        for row in topic.partitions:
            check(row.error_code, f"{topic.topic}-{row.partition_index}")
            at = topic.topic, row.partition_index
            found.append(Fetched(at, row, epochs[at]))
    return found
