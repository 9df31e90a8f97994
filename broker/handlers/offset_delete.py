"""OffsetDelete (key 47): a group forgets how far it has read (KIP-496).

Errors: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, and those of coordinators; by partition
GROUP_SUBSCRIBED_TO_TOPIC, UNKNOWN_TOPIC_OR_PARTITION.
"""

from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.server.context import RequestContext
from barnabas.coordinator.group.coordinator import GroupCoordinator, settled
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.offset_delete import (
    API,
    OffsetDeleteRequest,
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
        known = [each for each in request.topics if self._cache.topic(each.name) is not None]
        refused = [
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=each.partition_index,
                        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
            if self._cache.topic(topic.name) is None
        ]
        asked = OffsetDeleteRequest(group_id=request.group_id, topics=known)
        response: OffsetDeleteResponse = await settled(self._groups.delete_offsets(asked))
        response.topics += refused
        return response


def error_response(
    request: OffsetDeleteRequest,  # noqa: ARG001
    code: ErrorCode,
    version: int,  # noqa: ARG001
) -> OffsetDeleteResponse:
    """Nothing was forgotten."""
    return OffsetDeleteResponse(error_code=code, topics=[])
