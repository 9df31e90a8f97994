"""ListPartitionReassignments (key 46): partitions whose replicas are changing (KIP-455).

Errors: NOT_CONTROLLER, REQUEST_TIMED_OUT.
"""

from barnabas.protocol.schema import Api, field, message
from barnabas.protocol.types import Array, Int16, Int32, NullableArray, NullableString, String


@message
class ListPartitionReassignmentsTopics:
    """Partitions of one topic."""

    name: String
    partition_indexes: Array[Int32]


@message
class ListPartitionReassignmentsRequest:
    """Null asks for every partition of the cluster."""

    timeout_ms: Int32 = field(default=60000)
    topics: NullableArray[ListPartitionReassignmentsTopics] = field(default=None)


@message
class OngoingPartitionReassignment:
    """All replicas for now, and which of them come and go."""

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
    """Partitions that are not reassigned are left out."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: NullableString = field(default=None)
    topics: Array[OngoingTopicReassignment]


API = Api(
    key=46,
    name="ListPartitionReassignments",
    versions=range(1),
    flexible=0,
    request=ListPartitionReassignmentsRequest,
    response=ListPartitionReassignmentsResponse,
)
