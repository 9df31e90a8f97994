"""CreatePartitions (key 37): adds partitions to existing topics (KIP-195).

v2 flexible; v3 may return THROTTLING_QUOTA_EXCEEDED (KIP-599).

Errors by topic: UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS, INVALID_REPLICA_ASSIGNMENT,
NOT_CONTROLLER, REQUEST_TIMED_OUT, INVALID_REQUEST, REASSIGNMENT_IN_PROGRESS.
"""

from barnabas.protocol.apis import declare
from barnabas.protocol.schema import field, message
from barnabas.protocol.types import Array, Bool, Int16, Int32, NullableArray, NullableString, String


@message
class CreatePartitionsAssignment:
    """The brokers of one new partition."""

    broker_ids: Array[Int32]


@message
class CreatePartitionsTopic:
    """`count` is the new total; null assignments leave the choice to the broker."""

    name: String
    count: Int32
    assignments: NullableArray[CreatePartitionsAssignment]


@message
class CreatePartitionsRequest:
    """The request; with `validate_only` nothing is created."""

    topics: Array[CreatePartitionsTopic]
    timeout_ms: Int32
    validate_only: Bool


@message
class CreatePartitionsTopicResult:
    """The result for one topic."""

    name: String
    error_code: Int16 = field(default=0)
    error_message: NullableString = field(default=None)


@message
class CreatePartitionsResponse:
    """The results: one entry per topic of the request."""

    throttle_time_ms: Int32 = field(default=0)
    results: Array[CreatePartitionsTopicResult]


API = declare(
    __name__,
    flexible=2,
    request=CreatePartitionsRequest,
    response=CreatePartitionsResponse,
)
