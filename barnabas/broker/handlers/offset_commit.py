"""OffsetCommit (key 8): a group commits its offsets.

v2 to v4 the client's own retention, v6 leader epochs, v7 static members, v9 has
GROUP_ID_NOT_FOUND instead of ILLEGAL_GENERATION, v10 topic ids (KIP-848). Errors by partition:
UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, OFFSET_METADATA_TOO_LARGE; for all of them
UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, FENCED_INSTANCE_ID, REBALANCE_IN_PROGRESS,
GROUP_ID_NOT_FOUND, and those of coordinators.
"""

# The annotations of nested functions would be evaluated at each call.
from __future__ import annotations

from collections.abc import Sequence

from barnabas.broker.cluster.cache import MetadataCache
from barnabas.broker.groups.known_offsets import (
    KnownOffsets,
    find_topic,
    next_offsets,
    repeated,
    run_if_short,
)
from barnabas.broker.security.rights import GROUP, READ, TOPIC, Each, Need, Rights
from barnabas.broker.server.context import RequestContext
from barnabas.broker.server.repeats import Repeat
from barnabas.coordinator.group.committing import CommitOffsets, NewOffset
from barnabas.coordinator.group.coordinator import GroupCoordinator
from barnabas.coordinator.soon import Soon, at_hand
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.offset_commit import (
    API,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas.protocol.steps import Steps, in_steps

__all__ = ["API", "RIGHTS", "again", "handle"]

_TOPIC_IDS_SINCE = 10
_MEMBER_EPOCHS_SINCE = 9


def handle(
    groups: GroupCoordinator,
    cache: MetadataCache,
    request: OffsetCommitRequest,
    context: RequestContext,
) -> Soon[OffsetCommitResponse] | Steps[OffsetCommitResponse]:
    """Commit the offsets of partitions that exist; answer when they are committed."""
    steps = _commit(groups, cache, request, context.api_version)
    return run_if_short(steps, request.topics)


def _commit(
    groups: GroupCoordinator, cache: MetadataCache, request: OffsetCommitRequest, version: int
) -> Steps[OffsetCommitResponse]:
    response = OffsetCommitResponse(topics=[])
    known_offsets = KnownOffsets(API.key, version)
    for topic in request.topics:
        known, unknown = find_topic(cache, topic, by_id=version >= _TOPIC_IDS_SINCE)
        answer = yield from _answer(topic, unknown)
        response.topics.append(answer)
        if known is not None:
            yield from known_offsets.add(known, topic.partitions, answer.partitions)
    commit = _commit_of(request, known_offsets.offsets, version)
    yield from known_offsets.commit(lambda: groups.commit_offsets(commit))
    return response


def _commit_of(
    request: OffsetCommitRequest, offsets: Sequence[NewOffset], version: int
) -> CommitOffsets:
    return CommitOffsets(
        request.group_id,
        request.generation_id_or_member_epoch,
        request.member_id,
        request.group_instance_id,
        offsets,
        request.retention_time_ms,
        knows_epochs=version >= _MEMBER_EPOCHS_SINCE,
    )


def again(
    groups: GroupCoordinator,
    cache: MetadataCache,
    request: OffsetCommitRequest,
    context: RequestContext,
    response: OffsetCommitResponse,
) -> Repeat | None:
    """Serve a member that commits further offsets of the same partitions, as long as these exist.

    The coordinator decides each time.
    """
    by_id = context.api_version >= _TOPIC_IDS_SINCE
    found = repeated(cache, request.topics, response.topics, by_id=by_id)
    if found is None:
        return None
    known = groups, cache, _commit_of(request, found.offsets, context.api_version)
    return Repeat(_commit_again, known, found.fields, (), found.basis)


def _commit_again(
    known: tuple[GroupCoordinator, MetadataCache, CommitOffsets],
    _now_ms: int,
    values: tuple[int, ...],
) -> tuple[()] | None:
    groups, cache, commit = known
    offsets = next_offsets(cache, commit.offsets, values)
    index = groups.partition_of(commit.group_id)
    if offsets is None or not groups.commits_at_once(index):
        return None
    at_hand(groups.commit_offsets(commit._replace(offsets=offsets), index))
    return ()


def _answer(topic: OffsetCommitRequestTopic, code: ErrorCode) -> Steps[OffsetCommitResponseTopic]:
    def answer(asked: OffsetCommitRequestPartition) -> OffsetCommitResponsePartition:
        return OffsetCommitResponsePartition(partition_index=asked.partition_index, error_code=code)

    yield None
    partitions = yield from in_steps(answer, topic.partitions)
    return OffsetCommitResponseTopic(
        name=topic.name, topic_id=topic.topic_id, partitions=partitions
    )


RIGHTS = Rights(
    whole=(Need(READ, GROUP, "group_id"),),
    each=Each(
        "topics",
        (Need(READ, TOPIC, "name", "topic_id"),),
        lambda topic, code, _: _answer(topic, code),
        "topics",
    ),
)
