"""OffsetFetch (key 9): how far a group has read.

v2 all topics (null), v5 leader epochs, v7 require_stable (KIP-447), v8 several groups (KIP-709),
v9 the member asking, v10 topic ids. An offset that was never committed is -1, without an error.
Errors by group: those of coordinators; by partition: UNKNOWN_TOPIC_ID.
"""

from typing import NamedTuple

from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.server.context import RequestContext
from barnabas.coordinator.group.coordinator import GroupCoordinator
from barnabas.coordinator.group.records import OffsetAndMetadata
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.offset_fetch import (
    API,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from barnabas.protocol.types import ZERO_UUID

__all__ = ["API", "SERVES", "OffsetFetchHandler", "error_response"]

SERVES = range(1, 11)
_GROUP_ERROR_SINCE = 2
_GROUPS_SINCE = 8
_TOPIC_IDS_SINCE = 10
NO_OFFSET = OffsetAndMetadata(-1, -1, "", -1)


class _Topic(NamedTuple):
    """A topic that is asked for; the name is None where nobody knows the id."""

    name: str | None
    topic_id: bytes
    partitions: list[int]


class OffsetFetchHandler:
    """Answers from committed offsets."""

    def __init__(self, groups: GroupCoordinator, cache: MetadataCache) -> None:
        self._groups = groups
        self._cache = cache

    def handle(self, request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
        version = context.api_version
        if version >= _GROUPS_SINCE:
            return OffsetFetchResponse(
                groups=[self._fetch(group, version) for group in request.groups]
            )
        asked = OffsetFetchRequestGroup(group_id=request.group_id, topics=None)
        if request.topics is not None:
            asked.topics = [
                OffsetFetchRequestTopics(name=each.name, partition_indexes=each.partition_indexes)
                for each in request.topics
            ]
        return _of_one_group(self._fetch(asked, version), asked, version)

    def _fetch(self, asked: OffsetFetchRequestGroup, version: int) -> OffsetFetchResponseGroup:
        try:
            self._groups.require_loaded(asked.group_id)
        except KafkaError as error:
            return OffsetFetchResponseGroup(group_id=asked.group_id, error_code=error.code)
        topics = (
            self._all_topics(asked.group_id, version)
            if asked.topics is None
            else [self._resolve(topic, version) for topic in asked.topics]
        )
        return OffsetFetchResponseGroup(
            group_id=asked.group_id,
            topics=[self._fetch_topic(asked.group_id, topic) for topic in topics],
        )

    def _all_topics(self, group_id: str, version: int) -> list[_Topic]:
        found = []
        for name, partitions in self._groups.committed_topics(group_id).items():
            known = self._cache.topic(name)
            if known is not None:
                found.append(_Topic(name, known.topic_id, partitions))
            elif version < _TOPIC_IDS_SINCE:
                found.append(_Topic(name, ZERO_UUID, partitions))
        return found

    def _resolve(self, topic: OffsetFetchRequestTopics, version: int) -> _Topic:
        if version >= _TOPIC_IDS_SINCE:
            name = self._cache.topic_name(topic.topic_id)
            return _Topic(name, topic.topic_id, topic.partition_indexes)
        # By name, too, an offset of a topic that was deleted is not one of its successor.
        known = self._cache.topic(topic.name)
        topic_id = ZERO_UUID if known is None else known.topic_id
        return _Topic(topic.name, topic_id, topic.partition_indexes)

    def _fetch_topic(self, group_id: str, topic: _Topic) -> OffsetFetchResponseTopics:
        return OffsetFetchResponseTopics(
            name=topic.name or "",
            topic_id=topic.topic_id,
            partitions=[self._offset(group_id, topic, index) for index in topic.partitions],
        )

    def _offset(self, group_id: str, topic: _Topic, index: int) -> OffsetFetchResponsePartitions:
        if topic.name is None:
            return _partition(index, NO_OFFSET, ErrorCode.UNKNOWN_TOPIC_ID)
        committed = self._groups.committed(group_id, topic.name, index, topic.topic_id)
        return _partition(index, committed or NO_OFFSET)


def _partition(
    index: int, committed: OffsetAndMetadata, code: int = ErrorCode.NONE
) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        error_code=code,
    )


def _of_one_group(
    group: OffsetFetchResponseGroup, asked: OffsetFetchRequestGroup, version: int
) -> OffsetFetchResponse:
    """The answer of the versions that know one group only; the first puts its error everywhere."""
    topics = group.topics
    if group.error_code != ErrorCode.NONE and version < _GROUP_ERROR_SINCE:
        code = group.error_code
        topics = [
            OffsetFetchResponseTopics(
                name=topic.name,
                partitions=[_partition(each, NO_OFFSET, code) for each in topic.partition_indexes],
            )
            for topic in asked.topics or ()
        ]
    return OffsetFetchResponse(
        error_code=group.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=each.partition_index,
                        committed_offset=each.committed_offset,
                        committed_leader_epoch=each.committed_leader_epoch,
                        metadata=each.metadata,
                        error_code=each.error_code,
                    )
                    for each in topic.partitions
                ],
            )
            for topic in topics
        ],
    )


def error_response(
    request: OffsetFetchRequest, code: ErrorCode, version: int
) -> OffsetFetchResponse:
    """The error for every group."""
    if version >= _GROUPS_SINCE:
        return OffsetFetchResponse(
            groups=[
                OffsetFetchResponseGroup(group_id=each.group_id, error_code=code)
                for each in request.groups
            ]
        )
    asked = OffsetFetchRequestGroup(
        topics=[
            OffsetFetchRequestTopics(name=each.name, partition_indexes=each.partition_indexes)
            for each in request.topics or ()
        ]
    )
    return _of_one_group(OffsetFetchResponseGroup(error_code=code), asked, version)
