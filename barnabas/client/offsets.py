"""Offsets by timestamp, and the first and last offsets of partitions (ListOffsets)."""

import asyncio
from collections import defaultdict
from collections.abc import Mapping

from barnabas.client.cluster import Cluster, check
from barnabas.protocol.messages.list_offsets import (
    API,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.topic_partition import TopicPartition

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3


async def find_offsets(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], *, read_committed: bool = False
) -> dict[TopicPartition, ListOffsetsPartitionResponse]:
    """Return the first offset at or after a time in ms, or of EARLIEST, LATEST, MAX_TIMESTAMP.

    The offset is -1 if no record is that late. With `read_committed`, LATEST is the last stable
    offset.
    """

    async def ask(
        leader: int, topics: Mapping[str, list[ListOffsetsPartition]]
    ) -> dict[TopicPartition, ListOffsetsPartitionResponse]:
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=int(read_committed),
            topics=[ListOffsetsTopic(name=name, partitions=rows) for name, rows in topics.items()],
        )
        response = await cluster.ask(API, request, node=leader)
        found = {}
        for topic in response.topics:
            for row in topic.partitions:
                check(row.error_code, f"{topic.name}-{row.partition_index}")
                found[TopicPartition(topic.name, row.partition_index)] = row
        return found

    async def attempt() -> dict[TopicPartition, ListOffsetsPartitionResponse]:
        by_leader: dict[int, dict[str, list[ListOffsetsPartition]]] = defaultdict(
            lambda: defaultdict(list)
        )
        for (topic, partition), timestamp in wanted.items():
            by_leader[await cluster.leader(topic, partition)][topic].append(
                ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
            )
        answers = await asyncio.gather(
            *(ask(leader, topics) for leader, topics in by_leader.items())
        )
        return {partition: row for answer in answers for partition, row in answer.items()}

    return await cluster.retrying(attempt)
