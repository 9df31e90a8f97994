"""OffsetFetch (key 9): a group's committed offsets.

v2 all topics (null), v5 leader epochs, v7 require_stable (KIP-447), v8 several groups (KIP-709),
v9 the member's id, v10 topic ids. An offset that was never committed is -1, without an error.
Errors by group: those of coordinators; by partition: UNKNOWN_TOPIC_ID, UNSTABLE_OFFSET_COMMIT.
Before v7 an open transaction makes the group COORDINATOR_LOAD_IN_PROGRESS (switchable).
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from barnabas.broker.cluster.cache import MetadataCache
from barnabas.broker.security.rights import DESCRIBE, GROUP, TOPIC, Need, Rights
from barnabas.broker.server.context import RequestContext
from barnabas.coordinator.group.consumer.offsets import check_fetch
from barnabas.coordinator.group.coordinator import GroupCoordinator
from barnabas.coordinator.group.offsets import Offsets
from barnabas.coordinator.group.records import OffsetAndMetadata
from barnabas.coordinator.group.table import GroupTable
from barnabas.coordinator.soon import Soon
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.offset_fetch import (
    API,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from barnabas.protocol.steps import Steps, in_steps, unseen
from barnabas.protocol.types import ZERO_UUID

__all__ = ["API", "RIGHTS", "error_response", "handle"]

RIGHTS = Rights(
    inside=(Need(DESCRIBE, GROUP, "group_id"), Need(DESCRIBE, TOPIC, "name", "topic_id"))
)
_STABLE_SINCE = 7
_GROUPS_SINCE = 8
_TOPIC_IDS_SINCE = 10
_TOPIC_REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
NO_OFFSET = OffsetAndMetadata(-1, -1, "", -1)


class _Topic(NamedTuple):
    """A topic of the request; the name is None if the id is unknown."""

    name: str | None
    topic_id: bytes
    partitions: list[int]


def handle(
    groups: GroupCoordinator,
    cache: MetadataCache,
    blocks_old_clients: Callable[[], bool],
    request: OffsetFetchRequest,
    context: RequestContext,
) -> Steps[OffsetFetchResponse]:
    """Answer from committed offsets.

    `blocks_old_clients` returns `group.unstable.offsets.block.old.clients`.
    """
    version = context.api_version
    # A client that cannot request stable offsets would resume before an open transaction, and
    # repeat its work although the transaction may be committed.
    stable = request.require_stable if version >= _STABLE_SINCE else blocks_old_clients()
    asked = yield from _once((yield from _asked_groups(request, version)))
    tables = yield from in_steps(partial(_table, groups, stable, context), asked)
    for each in tables:
        if isinstance(each, asyncio.Future):
            with suppress(KafkaError):
                yield each
    return (yield from _answer(groups, cache, asked, tables, context, stable))


def _once(asked: list[OffsetFetchRequestGroup]) -> Steps[list[OffsetFetchRequestGroup]]:
    """Leave out what a request repeats: the metadata of one offset may be long."""
    groups, whole = [], set[str]()
    seen: set[tuple[str, str, bytes, int]] = set()
    for group in asked:
        yield None
        if group.topics is None:
            if group.group_id not in whole:
                whole.add(group.group_id)
                groups.append(group)
            continue
        topics = []
        for topic in group.topics:
            yield None
            named = (
                (group.group_id, topic.name, topic.topic_id, index)
                for index in topic.partition_indexes
            )
            fresh = [key[-1] for key in (yield from unseen(named, seen))]
            if fresh or not topic.partition_indexes:
                topics.append(
                    OffsetFetchRequestTopics(
                        name=topic.name, topic_id=topic.topic_id, partition_indexes=fresh
                    )
                )
        if topics or not group.topics:
            group.topics = topics
            groups.append(group)
    return groups


def _table(
    groups: GroupCoordinator,
    stable: bool,
    context: RequestContext,
    asked: OffsetFetchRequestGroup,
) -> Soon[GroupTable] | ErrorCode:
    """Return the committed state of the group's partition, once it may be looked at."""
    if not context.allows(DESCRIBE, GROUP, asked.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    try:
        return (groups.look_when_committed if stable else groups.look)(asked.group_id, _itself)
    except KafkaError as error:
        return error.code


def _itself(table: GroupTable) -> GroupTable:
    return table


def _answer(
    groups: GroupCoordinator,
    cache: MetadataCache,
    asked: list[OffsetFetchRequestGroup],
    tables: list[Soon[GroupTable] | ErrorCode],
    context: RequestContext,
    stable: bool,
) -> Steps[OffsetFetchResponse]:
    answers = []
    for group, found in zip(asked, tables, strict=True):
        yield None
        if isinstance(found, ErrorCode):
            answers.append(_group_error(group, found))
            continue
        try:
            table = found.result() if isinstance(found, asyncio.Future) else found
            answer = yield from _look(cache, group, context, stable, table)
            if groups.look(group.group_id, _itself) is not table:
                raise KafkaError(ErrorCode.NOT_COORDINATOR)
        except KafkaError as error:
            answer = _group_error(group, error.code)
        answers.append(answer)
    return (yield from _response(answers, asked, context.api_version))


def _look(
    cache: MetadataCache,
    asked: OffsetFetchRequestGroup,
    context: RequestContext,
    stable: bool,
    table: GroupTable,
) -> Steps[OffsetFetchResponseGroup]:
    offsets, version = table.offsets, context.api_version
    consumers = table.consumers.get(asked.group_id)
    if consumers is not None:
        check_fetch(consumers, asked.member_id, asked.member_epoch)
    if stable and version < _STABLE_SINCE and (yield from _is_unstable(offsets, asked)):
        # Every client knows this error, and asks again.
        return _group_error(asked, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    if asked.topics is None:
        topics = yield from _all_topics(cache, offsets.of_group(asked.group_id), version)
    else:
        topics = yield from in_steps(partial(_resolve, cache, version), asked.topics)
    answer = OffsetFetchResponseGroup(group_id=asked.group_id)
    for topic in topics:
        yield None
        find = partial(_offset, offsets, asked.group_id, topic, stable)
        if topic.name is not None and not context.allows(
            DESCRIBE, TOPIC, topic.name, log_denied=asked.topics is not None
        ):
            if asked.topics is None:
                continue
            find = partial(_partition, committed=NO_OFFSET, code=_TOPIC_REFUSED)
        answer.topics.append(
            OffsetFetchResponseTopics(
                name=topic.name or "",
                topic_id=topic.topic_id,
                partitions=(yield from in_steps(find, topic.partitions)),
            )
        )
    return answer


def _is_unstable(offsets: Offsets, asked: OffsetFetchRequestGroup) -> Steps[bool]:
    if asked.topics is None:
        return asked.group_id in offsets.pending
    for topic in asked.topics:
        yield None
        for index in topic.partition_indexes:
            if offsets.pending.has(asked.group_id, topic.name, index):
                return True
            yield None
    return False


def _all_topics(
    cache: MetadataCache, committed: Mapping[str, Iterable[int]], version: int
) -> Steps[list[_Topic]]:
    found = []
    # Commits of the group may come in between.
    for name, partitions in list(committed.items()):
        yield None
        known = cache.topic(name)
        if known is not None:
            found.append(_Topic(name, known.topic_id, list(partitions)))
        elif version < _TOPIC_IDS_SINCE:
            found.append(_Topic(name, ZERO_UUID, list(partitions)))
    return found


def _resolve(cache: MetadataCache, version: int, topic: OffsetFetchRequestTopics) -> _Topic:
    if version >= _TOPIC_IDS_SINCE:
        name = cache.topic_name(topic.topic_id)
        return _Topic(name, topic.topic_id, topic.partition_indexes)
    # Also by name: offsets of a deleted topic do not belong to a new topic of that name.
    known = cache.topic(topic.name)
    topic_id = ZERO_UUID if known is None else known.topic_id
    return _Topic(topic.name, topic_id, topic.partition_indexes)


def _offset(
    offsets: Offsets, group_id: str, topic: _Topic, stable: bool, index: int
) -> OffsetFetchResponsePartitions:
    if topic.name is None:
        return _partition(index, NO_OFFSET, ErrorCode.UNKNOWN_TOPIC_ID)
    if stable and offsets.pending.has(group_id, topic.name, index):
        return _partition(index, NO_OFFSET, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    committed = offsets.find(group_id, topic.name, index, topic.topic_id)
    return _partition(index, committed or NO_OFFSET)


def _asked_groups(
    request: OffsetFetchRequest, version: int
) -> Steps[list[OffsetFetchRequestGroup]]:
    if version >= _GROUPS_SINCE:
        return request.groups
    asked = OffsetFetchRequestGroup(group_id=request.group_id, topics=None)
    if request.topics is not None:
        asked.topics = yield from in_steps(_newer, request.topics)
    return [asked]


def _newer(topic: OffsetFetchRequestTopic) -> OffsetFetchRequestTopics:
    return OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)


def _group_error(asked: OffsetFetchRequestGroup, code: ErrorCode) -> OffsetFetchResponseGroup:
    return OffsetFetchResponseGroup(group_id=asked.group_id, error_code=code)


def _response(
    groups: list[OffsetFetchResponseGroup], asked: list[OffsetFetchRequestGroup], version: int
) -> Steps[OffsetFetchResponse]:
    if version >= _GROUPS_SINCE:
        return OffsetFetchResponse(groups=groups)
    return (yield from _of_one_group(groups[0], asked[0]))


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
) -> Steps[OffsetFetchResponse]:
    """Return the response of versions with a single group.

    v1 has no error of the group. The others have the error in both places: aiokafka reads only
    partitions, and a response without them looks like a group that never committed.
    """
    response = OffsetFetchResponse(error_code=group.error_code, topics=[])
    if group.error_code != ErrorCode.NONE:
        for wanted in asked.topics or ():
            yield None
            refuse = partial(_refused, group.error_code)
            refused = yield from in_steps(refuse, wanted.partition_indexes)
            response.topics.append(OffsetFetchResponseTopic(name=wanted.name, partitions=refused))
        return response
    for topic in group.topics:
        yield None
        partitions = yield from in_steps(_older, topic.partitions)
        response.topics.append(OffsetFetchResponseTopic(name=topic.name, partitions=partitions))
    return response


def _refused(code: int, index: int) -> OffsetFetchResponsePartition:
    return _older(_partition(index, NO_OFFSET, code))


def _older(found: OffsetFetchResponsePartitions) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=found.partition_index,
        committed_offset=found.committed_offset,
        committed_leader_epoch=found.committed_leader_epoch,
        metadata=found.metadata,
        error_code=found.error_code,
    )


def error_response(
    request: OffsetFetchRequest, code: ErrorCode, version: int
) -> Steps[OffsetFetchResponse]:
    """Answer every group with the error."""
    asked = yield from _asked_groups(request, version)
    refused = yield from in_steps(partial(_group_error, code=code), asked)
    return (yield from _response(refused, asked, version))
