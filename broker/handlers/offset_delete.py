"""OffsetDelete (key 47): a group forgets how far it has read (KIP-496).

Errors: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, and those of coordinators; by partition
GROUP_SUBSCRIBED_TO_TOPIC, UNKNOWN_TOPIC_OR_PARTITION.
"""

from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.server.context import RequestContext
from barnabas.coordinator.group.coordinator import GroupCoordinator
from barnabas.coordinator.soon import settled
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

__all__ = ["API", "SERVES", "OffsetDeleteHandler", "error_response"]

SERVES = range(1)


class OffsetDeleteHandler:
    """Forgets offsets of topics that exist and that no member reads."""

    def __init__(self, groups: GroupCoordinator, cache: MetadataCache) -> None:
        self._groups = groups
        self._cache = cache

    async def handle(
        self,
        request: OffsetDeleteRequest,
        context: RequestContext,  # noqa: ARG002
    ) -> OffsetDeleteResponse:
        known: list[OffsetDeleteRequestTopic] = []
        refused: list[OffsetDeleteResponseTopic] = []
        for topic in request.topics:
            there, missing = self._split(topic)
            if there:
                known.append(OffsetDeleteRequestTopic(name=topic.name, partitions=there))
            if missing:
                refused.append(OffsetDeleteResponseTopic(name=topic.name, partitions=missing))
        asked = OffsetDeleteRequest(group_id=request.group_id, topics=known)
        response = await settled(self._groups.delete_offsets(asked))
        answered = {each.name: each for each in response.topics}
        for refusal in refused:
            if refusal.name in answered:
                answered[refusal.name].partitions += refusal.partitions
            else:
                response.topics.append(refusal)
        return response

    def _split(
        self, topic: OffsetDeleteRequestTopic
    ) -> tuple[list[OffsetDeleteRequestPartition], list[OffsetDeleteResponsePartition]]:
        """The partitions that exist, and the refusals of the others."""
        there, missing = [], []
        for each in topic.partitions:
            if self._cache.partition(topic.name, each.partition_index) is not None:
                there.append(each)
            else:
                refusal = OffsetDeleteResponsePartition(
                    partition_index=each.partition_index,
                    error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                )
                missing.append(refusal)
        return there, missing


def error_response(
    request: OffsetDeleteRequest,  # noqa: ARG001
    code: ErrorCode,
    version: int,  # noqa: ARG001
) -> OffsetDeleteResponse:
    """Nothing was forgotten."""
    return OffsetDeleteResponse(error_code=code, topics=[])
