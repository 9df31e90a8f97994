"""CreatePartitions (key 37)."""

from barnabas.protocol.schema import Api, field, message
from barnabas.protocol.types import Array, Bool, Int16, Int32, NullableArray, NullableString, String


@message
class CreatePartitionsAssignment:
    broker_ids: Array[Int32]


@message
class CreatePartitionsTopic:
    name: String
    count: Int32
    assignments: NullableArray[CreatePartitionsAssignment]


@message
class CreatePartitionsRequest:
    topics: Array[CreatePartitionsTopic]
    timeout_ms: Int32
    validate_only: Bool


@message
class CreatePartitionsTopicResult:
    name: String
    error_code: Int16 = field(default=0)
    error_message: NullableString = field(default=None)


@message
class CreatePartitionsResponse:
    throttle_time_ms: Int32 = field(default=0)
    results: Array[CreatePartitionsTopicResult]


API = Api(
    key=37,
    name="CreatePartitions",
    versions=range(4),
    flexible=2,
    request=CreatePartitionsRequest,
    response=CreatePartitionsResponse,
)
