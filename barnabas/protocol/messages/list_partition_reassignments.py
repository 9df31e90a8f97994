"""ListPartitionReassignments (key 46): lists the partitions that are being reassigned (KIP-455).

Errors: NOT_CONTROLLER, REQUEST_TIMED_OUT.
"""

from barnabas.protocol.apis import declare
from barnabas.protocol.schema import field, message
from barnabas.protocol.types import Array, Int16, Int32, NullableArray, NullableString, String


@message
class ListPartitionReassignmentsTopics:
    """Partitions of one topic."""

    name: String
    partition_indexes: Array[Int32]


@message
class ListPartitionReassignmentsRequest:
    """The partitions to list, or null for all of the cluster."""

    timeout_ms: Int32 = field(default=60000)
    topics: NullableArray[ListPartitionReassignmentsTopics] = field(default=None)


@message
class OngoingPartitionReassignment:
    """All current replicas; those being added and removed."""

    partition_index: Int32
    replicas: Array[Int32]
    adding_replicas: Array[Int32]
    removing_replicas: Array[Int32]


@message
class OngoingTopicReassignment:
    """Partitions of one topic."""

    name: String
    partitions: Array[OngoingPartitionReassignment]


@message
class ListPartitionReassignmentsResponse:
    """The ongoing reassignments; other partitions are left out."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: NullableString = field(default=None)
    topics: Array[OngoingTopicReassignment]


API = declare(
    __name__,
    flexible=0,
    request=ListPartitionReassignmentsRequest,
    response=ListPartitionReassignmentsResponse,
)
