"""Asks a leader where its logs begin and end: ListOffsets, as a replica."""

from collections.abc import Sequence

from barnabas.broker.replication.follower import Following
from barnabas.broker.replication.means import Line
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import list_offsets
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

_LATEST, _EARLIEST = -1, -2
Bounds = tuple[int, int]
"""Log start and log end."""


async def ask_bounds(
    line: Line, broker_id: int, followings: Sequence[Following], timeout: float
) -> list[Bounds | ErrorCode]:
    """Of each partition the leader's bounds, or why it does not tell; raises PeerUnreachable."""
    starts = await _ask(line, broker_id, followings, _EARLIEST, timeout)
    ends = await _ask(line, broker_id, followings, _LATEST, timeout)
    return [
        next((each for each in (start, end) if isinstance(each, ErrorCode)), None)
        or (int(start), int(end))
        for start, end in zip(starts, ends, strict=True)
    ]


async def _ask(
    line: Line, broker_id: int, followings: Sequence[Following], timestamp: int, timeout: float
) -> list[int | ErrorCode]:
    topics: dict[str, ListOffsetsTopic] = {}
    for following in followings:
        partition = following.partition
        topic = topics.get(partition.topic)
        if topic is None:
            topic = topics[partition.topic] = ListOffsetsTopic(name=partition.topic, partitions=[])
        topic.partitions.append(
            ListOffsetsPartition(
                partition_index=partition.index,
                current_leader_epoch=following.leader_epoch,
                timestamp=timestamp,
            )
        )
    request = ListOffsetsRequest(replica_id=broker_id, topics=list(topics.values()))
    response = await line.request(list_offsets.API, request, timeout=timeout)
    found = {
        (topic.name, each.partition_index): (
            ErrorCode.of(each.error_code) if each.error_code else each.offset
        )
        for topic in response.topics
        for each in topic.partitions
    }
    return [
        found.get((each.partition.topic, each.partition.index), ErrorCode.UNKNOWN_SERVER_ERROR)
        for each in followings
    ]
