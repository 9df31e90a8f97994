"""OffsetDelete (key 47): delete a group's offsets (KIP-496).

Errors: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, and those of coordinators; by partition
GROUP_SUBSCRIBED_TO_TOPIC, UNKNOWN_TOPIC_OR_PARTITION.
"""

from typing import Any

from barnabas.broker.cluster.cache import MetadataCache
from barnabas.broker.security.rights import DELETE, GROUP, READ, TOPIC, Each, Need, Rights
from barnabas.broker.server.context import RequestContext
from barnabas.coordinator.group.coordinator import GroupCoordinator
from barnabas.coordinator.soon import settle
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.offset_delete import (
    API,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from barnabas.protocol.steps import Steps, in_steps

__all__ = ["API", "RIGHTS", "error_response", "handle"]


def _refused(topic: OffsetDeleteRequestTopic, code: ErrorCode, _version: int) -> Steps[Any]:
    def refuse(asked: OffsetDeleteRequestPartition) -> OffsetDeleteResponsePartition:
        return OffsetDeleteResponsePartition(partition_index=asked.partition_index, error_code=code)

    partitions = yield from in_steps(refuse, topic.partitions)
    return OffsetDeleteResponseTopic(name=topic.name, partitions=partitions)


RIGHTS = Rights(
    whole=(Need(DELETE, GROUP, "group_id"),),
    each=Each("topics", (Need(READ, TOPIC, "name"),), _refused, "topics"),
)


def handle(
    groups: GroupCoordinator,
    cache: MetadataCache,
    request: OffsetDeleteRequest,
    _context: RequestContext,
) -> Steps[OffsetDeleteResponse]:
    """Delete offsets of topics that exist and that no member subscribes to."""
    response = OffsetDeleteResponse(topics=[])
    known: dict[str, list[OffsetDeleteResponsePartition]] = {}
    refused: list[OffsetDeleteResponseTopic] = []
    for topic in request.topics:
        there, missing = yield from _split(cache, topic)
        if there:
            known.setdefault(topic.name, []).extend(there)
            response.topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=there))
        if missing:
            refused.append(OffsetDeleteResponseTopic(name=topic.name, partitions=missing))
    answered = {each.name: each for each in response.topics}
    for refusal in refused:
        yield None
        if refusal.name in answered:
            answered[refusal.name].partitions += refusal.partitions
        else:
            response.topics.append(refusal)
    deleted = {}
    for name, answers in known.items():
        yield None
        # A partition that is named twice is deleted once.
        deleted[name] = dict.fromkeys(each.partition_index for each in answers)
    for name in (yield from settle(groups.delete_offsets(request.group_id, deleted))):
        for answer in known[name]:
            answer.error_code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    return response


def _split(
    cache: MetadataCache, topic: OffsetDeleteRequestTopic
) -> Steps[tuple[list[OffsetDeleteResponsePartition], list[OffsetDeleteResponsePartition]]]:
    """Return the results of the partitions that exist, and the refusals of the others."""
    there, missing = [], []
    for asked in topic.partitions:
        yield None
        answer = OffsetDeleteResponsePartition(partition_index=asked.partition_index)
        if cache.partition(topic.name, asked.partition_index) is not None:
            there.append(answer)
        else:
            answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            missing.append(answer)
    yield None
    return there, missing


def error_response(
    _request: OffsetDeleteRequest, code: ErrorCode, _version: int
) -> OffsetDeleteResponse:
    """Answer with the error alone: as in Kafka, no partition has it."""
    return OffsetDeleteResponse(error_code=code, topics=[])
