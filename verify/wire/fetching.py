"""Records as one broker gives them to a consumer: the leader, or another replica (KIP-392)."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from barnabas.client.cluster import Cluster, check
from barnabas.client.consumer import whole_batches
from barnabas.protocol.messages import fetch
from barnabas.verify.history import Place

_HIGHEST_WITH_NAMES: Final = 12
FROM_FOLLOWERS_SINCE: Final = 11
"""The version of Fetch from which on replicas that do not lead serve consumers."""


class Fetched(NamedTuple):
    """What a broker gave of one partition."""

    at: Place
    row: fetch.PartitionData
    epoch: int
    """Of the leader, as the broker was told it and agreed; -1 if nobody knew."""

    @property
    def batches(self) -> memoryview:
        """The whole batches; what was cut off at the end is left out."""
        data = self.row.records
        return whole_batches(data if isinstance(data, bytes | memoryview) else b"")


def leader_epoch(cluster: Cluster, at: Place) -> int:
    """As Metadata told it last; -1 where it did not."""
    info = cluster.topics.get(at[0])
    for row in info.description.partitions if info is not None else ():
        if row.partition_index == at[1]:
            return int(row.leader_epoch)
    return -1


async def fetch_from(
    cluster: Cluster,
    node: int,
    positions: Mapping[Place, int],
    *,
    epochs: Mapping[Place, int] | None = None,
    committed: bool,
    max_wait: float,
) -> list[Fetched]:
    """One Fetch to one broker, as a consumer; `max_wait` in s.

    `epochs` are those in which the broker is to be what it is taken for; without, those that are
    known now. Raises the first error of a partition.
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
