"""OffsetCommit (key 8): a group remembers how far it has read.

v2 to v4 the client's own retention, v6 leader epochs, v7 static members, v9 tells
GROUP_ID_NOT_FOUND instead of ILLEGAL_GENERATION, v10 topic ids (KIP-848). Errors by partition:
UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, OFFSET_METADATA_TOO_LARGE; for all of them
UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, FENCED_INSTANCE_ID, REBALANCE_IN_PROGRESS,
GROUP_ID_NOT_FOUND, and those of coordinators.
"""

from barnabas.broker.coordination.commit_answer import CommitAnswer
from barnabas.broker.metadata.cache import MetadataCache, TopicMetadata
from barnabas.broker.server.context import RequestContext
from barnabas.coordinator.group.coordinator import GroupCoordinator
from barnabas.coordinator.soon import Soon
from barnabas.protocol.errors import ErrorCode
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
        version = context.api_version
        commit = CommitAnswer(OffsetCommitResponse(topics=[]), API.key, version)
        asked = OffsetCommitRequest(
            group_id=request.group_id,
            generation_id_or_member_epoch=request.generation_id_or_member_epoch,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            retention_time_ms=request.retention_time_ms,
            topics=[],
        )
        for topic in request.topics:
            known = self._find(topic, version)
            answer = _answer(topic, _why_unknown(known, version))
            commit.response.topics.append(answer)
            if known is None:
                continue
            wanted = commit.choose(topic.partitions, answer.partitions, known.partitions)
            if wanted:
                asked.topics.append(
                    OffsetCommitRequestTopic(
                        name=known.name, topic_id=known.topic_id, partitions=wanted
                    )
                )
        if not asked.topics:
            return commit.response
        return commit.complete(lambda: self._groups.commit(asked))

    def _find(self, topic: OffsetCommitRequestTopic, version: int) -> TopicMetadata | None:
        if version >= _TOPIC_IDS_SINCE:
            return self._cache.topic_by_id(topic.topic_id)
        return self._cache.topic(topic.name)


def _why_unknown(known: TopicMetadata | None, version: int) -> ErrorCode:
    if known is None and version >= _TOPIC_IDS_SINCE:
        return ErrorCode.UNKNOWN_TOPIC_ID
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


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
