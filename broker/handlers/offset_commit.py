"""OffsetCommit (key 8): a group remembers how far it has read.

v2 to v4 the client's own retention, v6 leader epochs, v7 static members, v9 tells
GROUP_ID_NOT_FOUND instead of ILLEGAL_GENERATION, v10 topic ids (KIP-848). Errors by partition:
UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, OFFSET_METADATA_TOO_LARGE; for all of them
UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, FENCED_INSTANCE_ID, REBALANCE_IN_PROGRESS,
GROUP_ID_NOT_FOUND, and those of coordinators.
"""

import asyncio

from barnabas.broker.metadata.cache import MetadataCache, TopicMetadata
from barnabas.broker.server.context import RequestContext
from barnabas.coordinator.group.coordinator import GroupCoordinator
from barnabas.coordinator.soon import Soon
from barnabas.protocol.errors import ErrorCode, KafkaError, downgrade
from barnabas.protocol.messages.offset_commit import (
    API,
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

__all__ = ["API", "SERVES", "OffsetCommitHandler", "error_response"]

SERVES = range(2, 11)
_TOPIC_IDS_SINCE = 10


class OffsetCommitHandler:
    """Commits what names partitions that exist; answered when that is committed."""

    def __init__(self, groups: GroupCoordinator, cache: MetadataCache) -> None:
        self._groups = groups
        self._cache = cache

    def handle(
        self, request: OffsetCommitRequest, context: RequestContext
    ) -> Soon[OffsetCommitResponse]:
        commit = _Commit(request, context.api_version)
        for topic in request.topics:
            commit.add(topic, self._find(topic, context.api_version))
        if not commit.asked.topics:
            return commit.response
        try:
            answer = self._groups.commit(commit.asked)
        except KafkaError as error:
            return commit.failed(error)
        if isinstance(answer, asyncio.Future):
            return asyncio.ensure_future(_settle(commit, answer))
        return commit.answered(answer)

    def _find(self, topic: OffsetCommitRequestTopic, version: int) -> TopicMetadata | None:
        if version >= _TOPIC_IDS_SINCE:
            return self._cache.topic_by_id(topic.topic_id)
        return self._cache.topic(topic.name)


class _Commit:
    """A request, what of it the coordinator is asked, and the answer as far as it is known."""

    def __init__(self, request: OffsetCommitRequest, version: int) -> None:
        self._version = version
        self._open: list[OffsetCommitResponsePartition] = []
        self.response = OffsetCommitResponse(topics=[])
        self.asked = OffsetCommitRequest(
            group_id=request.group_id,
            generation_id_or_member_epoch=request.generation_id_or_member_epoch,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            retention_time_ms=request.retention_time_ms,
            topics=[],
        )

    def add(self, topic: OffsetCommitRequestTopic, known: TopicMetadata | None) -> None:
        """Ask for the partitions that exist, and refuse the others."""
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if known is None and self._version >= _TOPIC_IDS_SINCE:
            unknown = ErrorCode.UNKNOWN_TOPIC_ID
        answer = _answer(topic, unknown)
        self.response.topics.append(answer)
        if known is None:
            return
        wanted = []
        for asked, slot in zip(topic.partitions, answer.partitions, strict=True):
            if asked.partition_index in known.partitions:
                wanted.append(asked)
                self._open.append(slot)
        if wanted:
            self.asked.topics.append(
                OffsetCommitRequestTopic(
                    name=known.name, topic_id=known.topic_id, partitions=wanted
                )
            )

    def answered(self, answer: OffsetCommitResponse) -> OffsetCommitResponse:
        """The coordinator's answer, in the order in which it was asked."""
        told = (partition for topic in answer.topics for partition in topic.partitions)
        for slot, partition in zip(self._open, told, strict=True):
            slot.error_code = partition.error_code
        return self.response

    def failed(self, error: KafkaError) -> OffsetCommitResponse:
        """One error for all that the coordinator was asked."""
        for slot in self._open:
            slot.error_code = downgrade(API.key, self._version, error.code)
        return self.response


async def _settle(
    commit: _Commit, answer: "asyncio.Future[OffsetCommitResponse]"
) -> OffsetCommitResponse:
    try:
        return commit.answered(await answer)
    except KafkaError as error:
        return commit.failed(error)


def _answer(topic: OffsetCommitRequestTopic, code: ErrorCode) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
            for each in topic.partitions
        ],
    )


def error_response(
    request: OffsetCommitRequest,
    code: ErrorCode,
    version: int,  # noqa: ARG001
) -> OffsetCommitResponse:
    """The error for every partition."""
    return OffsetCommitResponse(topics=[_answer(topic, code) for topic in request.topics])
