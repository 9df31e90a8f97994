"""The committed offsets of a group: OffsetFetch and OffsetCommit to its coordinator.

From version 10 on both APIs have topic ids in place of names. Users and assignments give names, so
version 9 is the highest version in use.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from barnabas.client.cluster import Cluster, check
from barnabas.client.connection import Connection
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import offset_commit, offset_fetch
from barnabas.protocol.topic_partition import TopicPartition, by_topic

_HIGHEST_WITH_NAMES = 9


async def fetch_offsets(
    cluster: Cluster,
    group: str,
    partitions: Iterable[TopicPartition] | None = None,
    *,
    require_stable: bool = False,
    member_id: str | None = None,
    member_epoch: int = -1,
) -> dict[TopicPartition, int]:
    """Return the committed offsets of a group, for `partitions` or (None) for all.

    Partitions without an offset are left out. `require_stable` waits for open transactions that may
    still change an offset (KIP-447). A member in the consumer protocol names itself: one that the
    group has removed gets an error.
    """
    topics = None
    if partitions is not None:
        topics = [
            offset_fetch.OffsetFetchRequestTopics(name=topic, partition_indexes=rows)
            for topic, rows in by_topic(partitions).items()
        ]
    row = offset_fetch.OffsetFetchRequestGroup(
        group_id=group, topics=topics, member_id=member_id, member_epoch=member_epoch
    )

    async def attempt() -> dict[TopicPartition, int]:
        connection = await cluster.coordinator_connection(group)
        (answer,) = await _fetch(cluster, connection, [row], require_stable=require_stable)
        return _committed(answer)

    return await cluster.retrying(attempt)


async def fetch_all_offsets(
    cluster: Cluster, groups: Iterable[str]
) -> dict[str, dict[TopicPartition, int]]:
    """Return all committed offsets of several groups, by group (KIP-709)."""

    async def ask(
        connection: Connection, group_ids: list[str]
    ) -> dict[str, dict[TopicPartition, int]]:
        rows = [
            offset_fetch.OffsetFetchRequestGroup(
                group_id=each, topics=None, member_id=None, member_epoch=-1
            )
            for each in group_ids
        ]
        answers = await _fetch(cluster, connection, rows, require_stable=False)
        return {each.group_id: _committed(each) for each in answers}

    return await cluster.ask_coordinators(groups, ask)


async def _fetch(
    cluster: Cluster,
    connection: Connection,
    rows: list[offset_fetch.OffsetFetchRequestGroup],
    *,
    require_stable: bool,
) -> list[offset_fetch.OffsetFetchResponseGroup]:
    version = min(connection.version_for(offset_fetch.API), _HIGHEST_WITH_NAMES)
    if version < 8:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "the broker is older than Kafka 3.0")
    request = offset_fetch.OffsetFetchRequest(groups=rows, require_stable=require_stable)
    response = await connection.request(
        offset_fetch.API, request, version=version, timeout=cluster.request_timeout
    )
    answers: list[offset_fetch.OffsetFetchResponseGroup] = response.groups
    return answers


def _committed(answer: offset_fetch.OffsetFetchResponseGroup) -> dict[TopicPartition, int]:
    check(answer.error_code, f"group {answer.group_id}")
    found = {}
    for topic in answer.topics:
        for row in topic.partitions:
            check(row.error_code, f"{topic.name}-{row.partition_index}")
            if row.committed_offset >= 0:
                found[TopicPartition(topic.name, row.partition_index)] = row.committed_offset
    return found


async def commit_offsets(
    cluster: Cluster,
    group: str,
    offsets: Mapping[TopicPartition, int],
    *,
    generation: int = -1,
    member_id: str = "",
    instance_id: str | None = None,
) -> None:
    """Commit offsets as a member of the group, or without a member id if the group is empty."""
    topics: dict[str, list[offset_commit.OffsetCommitRequestPartition]] = defaultdict(list)
    for (topic, partition), offset in offsets.items():
        topics[topic].append(
            offset_commit.OffsetCommitRequestPartition(
                partition_index=partition, committed_offset=offset, committed_metadata=""
            )
        )
    request = offset_commit.OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        topics=[
            offset_commit.OffsetCommitRequestTopic(name=topic, partitions=rows)
            for topic, rows in topics.items()
        ],
    )

    async def attempt() -> None:
        connection = await cluster.coordinator_connection(group)
        version = min(connection.version_for(offset_commit.API), _HIGHEST_WITH_NAMES)
        response = await connection.request(
            offset_commit.API, request, version=version, timeout=cluster.request_timeout
        )
        for topic in response.topics:
            for row in topic.partitions:
                check(row.error_code, f"{topic.name}-{row.partition_index}")

    await cluster.retrying(attempt)
