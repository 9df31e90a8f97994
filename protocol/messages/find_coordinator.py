"""FindCoordinator (key 10)."""

from barnabas.protocol.schema import Api, field, message, since
from barnabas.protocol.types import Array, Int8, Int16, Int32, NullableString, String


@message
class FindCoordinatorRequest:
    key: String = field(until=3, default="")
    key_type: Int8 = since(1, default=0)
    coordinator_keys: Array[String] = since(4, default_factory=list)


@message
class Coordinator:
    key: String = since(4, default="")
    node_id: Int32 = since(4, default=0)
    host: String = since(4, default="")
    port: Int32 = since(4, default=0)
    error_code: Int16 = since(4, default=0)
    error_message: NullableString = since(4, default=None, ignorable=True)


@message
class FindCoordinatorResponse:
    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    error_code: Int16 = field(until=3, default=0)
    error_message: NullableString = since(1, until=3, default=None, ignorable=True)
    node_id: Int32 = field(until=3, default=0)
    host: String = field(until=3, default="")
    port: Int32 = field(until=3, default=0)
    coordinators: Array[Coordinator] = since(4, default_factory=list)


API = Api(
    key=10,
    name="FindCoordinator",
    versions=range(7),
    flexible=3,
    request=FindCoordinatorRequest,
    response=FindCoordinatorResponse,
)
