"""DeleteTopics (key 20)."""

from barnabas.protocol.schema import Api, field, message, since
from barnabas.protocol.types import ZERO_UUID, Array, Int16, Int32, NullableString, String, Uuid


@message
class DeleteTopicState:
    name: NullableString = since(6, default=None)
    topic_id: Uuid = since(6, default=ZERO_UUID)


@message
class DeleteTopicsRequest:
    topics: Array[DeleteTopicState] = since(6, default_factory=list)
    topic_names: Array[String] = field(until=5, default_factory=list, ignorable=True)
    timeout_ms: Int32


@message
class DeletableTopicResult:
    name: NullableString = field(nullable=6)
    topic_id: Uuid = since(6, default=ZERO_UUID, ignorable=True)
    error_code: Int16 = field(default=0)
    error_message: NullableString = since(5, default=None, ignorable=True)


@message
class DeleteTopicsResponse:
    throttle_time_ms: Int32 = field(default=0, ignorable=True)
    responses: Array[DeletableTopicResult]


API = Api(
    key=20,
    name="DeleteTopics",
    versions=range(1, 7),
    flexible=4,
    request=DeleteTopicsRequest,
    response=DeleteTopicsResponse,
)
