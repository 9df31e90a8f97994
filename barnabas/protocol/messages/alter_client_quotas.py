"""AlterClientQuotas (key 49): sets and removes limits of users, client ids and addresses (KIP-546).

v1 is flexible.

Errors by entity: CLUSTER_AUTHORIZATION_FAILED, INVALID_REQUEST.
"""

from barnabas.protocol.apis import declare
from barnabas.protocol.messages.describe_client_quotas import EntityData
from barnabas.protocol.schema import field, message
from barnabas.protocol.types import Array, Bool, Float64, Int16, Int32, NullableString, String


@message
class OpData:
    """A limit to be set, or to be removed."""

    key: String
    value: Float64
    remove: Bool


@message
class AlterEntryData:
    """An entity with the changes of its limits."""

    entity: Array[EntityData]
    ops: Array[OpData]


@message
class AlterClientQuotasRequest:
    """The changes; all of an entity are made, or none."""

    entries: Array[AlterEntryData]
    validate_only: Bool


@message
class AlteredEntryData:
    """The result for an entity."""

    error_code: Int16 = field(default=0)
    error_message: NullableString = field(default=None)
    entity: Array[EntityData]


@message
class AlterClientQuotasResponse:
    """The results by entity."""

    throttle_time_ms: Int32 = field(default=0)
    entries: Array[AlteredEntryData]


API = declare(
    __name__,
    flexible=1,
    request=AlterClientQuotasRequest,
    response=AlterClientQuotasResponse,
)
