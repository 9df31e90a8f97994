"""OffsetDelete (key 47): deletes committed offsets of a group (KIP-496).

Errors: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, INVALID_GROUP_ID,
GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP. By partition: UNKNOWN_TOPIC_OR_PARTITION,
GROUP_SUBSCRIBED_TO_TOPIC.
"""

from barnabas.protocol.apis import declare
from barnabas.protocol.schema import field, message
from barnabas.protocol.types import Array, Int16, Int32, String


@message
class OffsetDeleteRequestPartition:
    """A partition whose offset is deleted."""

    partition_index: Int32


@message
class OffsetDeleteRequestTopic:
    """Partitions of one topic."""

    name: String
    partitions: Array[OffsetDeleteRequestPartition]


@message
class OffsetDeleteRequest:
    """The offsets to delete, all of one group."""

    group_id: String
    topics: Array[OffsetDeleteRequestTopic]


@message
class OffsetDeleteResponsePartition:
    """The result for one offset."""

    partition_index: Int32
    error_code: Int16 = field(default=0)


@message
class OffsetDeleteResponseTopic:
    """The results of one topic's partitions."""

    name: String
    partitions: Array[OffsetDeleteResponsePartition]


@message
class OffsetDeleteResponse:
    """The error code of the group, and one per partition."""

    error_code: Int16 = field(default=0)
    throttle_time_ms: Int32 = field(default=0, ignorable=True)
    topics: Array[OffsetDeleteResponseTopic]


API = declare(
    __name__,
    flexible=None,
    request=OffsetDeleteRequest,
    response=OffsetDeleteResponse,
)
