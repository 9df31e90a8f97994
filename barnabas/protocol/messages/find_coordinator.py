"""FindCoordinator (key 10): finds the coordinator of a group or a transactional id.

v1 key types: 0 group, 1 transaction; v3 flexible; v4 several keys (KIP-699); v5 may return
TRANSACTION_ABORTABLE (KIP-890); v6 key type 2, share groups (KIP-932).

Errors by key: COORDINATOR_NOT_AVAILABLE, INVALID_REQUEST, GROUP_AUTHORIZATION_FAILED,
TRANSACTIONAL_ID_AUTHORIZATION_FAILED, INVALID_GROUP_ID.
"""

from barnabas.protocol.apis import declare
from barnabas.protocol.schema import field, message, since
from barnabas.protocol.types import Array, Int8, Int16, Int32, NullableString, String


@message
class FindCoordinatorRequest:
    """One `key` up to v3, `coordinator_keys` since v4."""

    key: String = field(until=3, default="")
    key_type: Int8 = since(1, default=0)
    coordinator_keys: Array[String] = since(4, default_factory=list)


@message
class Coordinator:
    """The coordinator of one key; node -1 and an empty host with an error."""

    key: String = since(4, default="")
    node_id: Int32 = since(4, default=0)
    host: String = since(4, default="")
    port: Int32 = since(4, default=0)
    error_code: Int16 = since(4, default=0)
    error_message: NullableString = since(4, default=None, ignorable=True)


@message
class FindCoordinatorResponse:
    """One coordinator up to v3, an entry per key since v4."""

    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    error_code: Int16 = field(until=3, default=0)
    error_message: NullableString = since(1, until=3, default=None, ignorable=True)
    node_id: Int32 = field(until=3, default=0)
    host: String = field(until=3, default="")
    port: Int32 = field(until=3, default=0)
    coordinators: Array[Coordinator] = since(4, default_factory=list)


API = declare(
    __name__,
    flexible=3,
    request=FindCoordinatorRequest,
    response=FindCoordinatorResponse,
)
