"""OffsetFetch (key 9): how far a group has read.

v2 all topics (null), v5 leader epochs, v7 require_stable (KIP-447), v8 several groups (KIP-709),
v9 the member asking, v10 topic ids. An offset that was never committed is -1, without an error.
Errors by group: those of coordinators; by partition: UNKNOWN_TOPIC_ID, UNSTABLE_OFFSET_COMMIT.
Before v7 an open transaction makes the group COORDINATOR_LOAD_IN_PROGRESS (switchable).
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, cast

from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.server.context import RequestContext
from barnabas.coordinator.group.coordinator import GroupCoordinator
from barnabas.coordinator.group.records import OffsetAndMetadata
from barnabas.coordinator.soon import Soon, settled
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
_STABLE_SINCE = 7
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

    def __init__(
        self, groups: GroupCoordinator, cache: MetadataCache, blocks_old_clients: Callable[[], bool]
    ) -> None:
        """`blocks_old_clients` tells `group.unstable.offsets.block.old.clients`."""
        self._groups = groups
        self._cache = cache
        self._blocks_old_clients = blocks_old_clients

    def handle(
        self, request: OffsetFetchRequest, context: RequestContext
    ) -> Soon[OffsetFetchResponse]:
        version = context.api_version
        # Who cannot ask for stable offsets would go on from before an open transaction, and do
        # its work again although it may be committed.
        stable = request.require_stable if version >= _STABLE_SINCE else self._blocks_old_clients()
        asked = _asked_groups(request, version)
        answers = [self._fetch(group, version, stable) for group in asked]
        if any(isinstance(each, asyncio.Future) for each in answers):
            return asyncio.ensure_future(_gathered(answers, asked, version))
        return _response(cast(list[OffsetFetchResponseGroup], answers), asked, version)

    def _fetch(
        self, asked: OffsetFetchRequestGroup, version: int, stable: bool
    ) -> Soon[OffsetFetchResponseGroup]:
        look = partial(self._look, asked, version, stable)
        reading = self._groups.look_when_settled if stable else self._groups.look
        try:
            answer = reading(asked.group_id, look)
        except KafkaError as error:
            return _group_error(asked, error.code)
        if isinstance(answer, asyncio.Future):
            return asyncio.ensure_future(_settled(asked, answer))
        return answer

    def _look(
        self, asked: OffsetFetchRequestGroup, version: int, stable: bool
    ) -> OffsetFetchResponseGroup:
        if stable and version < _STABLE_SINCE and self._is_unstable(asked):
            # All of them know this error, and ask again.
            return _group_error(asked, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        topics = (
            self._all_topics(asked.group_id, version)
            if asked.topics is None
            else [self._resolve(topic, version) for topic in asked.topics]
        )
        return OffsetFetchResponseGroup(
            group_id=asked.group_id,
            topics=[self._fetch_topic(asked.group_id, topic, stable) for topic in topics],
        )

    def _is_unstable(self, asked: OffsetFetchRequestGroup) -> bool:
        if asked.topics is None:
            return self._groups.has_any_pending(asked.group_id)
        return any(
            self._groups.has_pending(asked.group_id, topic.name, index)
            for topic in asked.topics
            for index in topic.partition_indexes
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

    def _fetch_topic(self, group_id: str, topic: _Topic, stable: bool) -> OffsetFetchResponseTopics:
        return OffsetFetchResponseTopics(
            name=topic.name or "",
            topic_id=topic.topic_id,
            partitions=[self._offset(group_id, topic, index, stable) for index in topic.partitions],
        )

    def _offset(
        self, group_id: str, topic: _Topic, index: int, stable: bool
    ) -> OffsetFetchResponsePartitions:
        if topic.name is None:
            return _partition(index, NO_OFFSET, ErrorCode.UNKNOWN_TOPIC_ID)
        if stable and self._groups.has_pending(group_id, topic.name, index):
            return _partition(index, NO_OFFSET, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        committed = self._groups.committed(group_id, topic.name, index, topic.topic_id)
        return _partition(index, committed or NO_OFFSET)


def _asked_groups(request: OffsetFetchRequest, version: int) -> list[OffsetFetchRequestGroup]:
    if version >= _GROUPS_SINCE:
        return request.groups
    asked = OffsetFetchRequestGroup(group_id=request.group_id, topics=None)
    if request.topics is not None:
        asked.topics = [
            OffsetFetchRequestTopics(name=each.name, partition_indexes=each.partition_indexes)
            for each in request.topics
        ]
    return [asked]


def _group_error(asked: OffsetFetchRequestGroup, code: ErrorCode) -> OffsetFetchResponseGroup:
    return OffsetFetchResponseGroup(group_id=asked.group_id, error_code=code)


async def _settled(
    asked: OffsetFetchRequestGroup, answer: asyncio.Future[OffsetFetchResponseGroup]
) -> OffsetFetchResponseGroup:
    try:
        return await answer
    except KafkaError as error:
        return _group_error(asked, error.code)


async def _gathered(
    answers: list[Soon[OffsetFetchResponseGroup]],
    asked: list[OffsetFetchRequestGroup],
    version: int,
) -> OffsetFetchResponse:
    return _response([await settled(each) for each in answers], asked, version)


def _response(
    groups: list[OffsetFetchResponseGroup], asked: list[OffsetFetchRequestGroup], version: int
) -> OffsetFetchResponse:
    if version >= _GROUPS_SINCE:
        return OffsetFetchResponse(groups=groups)
    return _of_one_group(groups[0], asked[0])


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
    group: OffsetFetchResponseGroup, asked: OffsetFetchRequestGroup
) -> OffsetFetchResponse:
    """The answer of the versions that know one group only.

    The first has no error of the group. The others get it in both places: aiokafka looks at
    partitions only, and would take an answer without them for a group that never committed.
    """
    topics = group.topics
    if group.error_code != ErrorCode.NONE:
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
    asked = _asked_groups(request, version)
    return _response([_group_error(each, code) for each in asked], asked, version)
