"""DescribeClientQuotas (key 48): the quotas of users, client ids and addresses (KIP-546).

v1 is flexible.

Errors: CLUSTER_AUTHORIZATION_FAILED, INVALID_REQUEST, UNSUPPORTED_VERSION (an unknown entity type).
"""

from barnabas.protocol.apis import declare
from barnabas.protocol.schema import field, message
from barnabas.protocol.types import (
    Array,
    Bool,
    Float64,
    Int8,
    Int16,
    Int32,
    NullableArray,
    NullableString,
    String,
)

USER = "user"
CLIENT_ID = "client-id"
IP = "ip"
"""The entity types."""
EXACT = 0
OF_OTHERS = 1
SPECIFIED = 2
"""The match types: a name, the entity of all others, and either of them."""


@message
class ComponentData:
    """A part that entities must have; a name is given for the type EXACT alone."""

    entity_type: String
    match_type: Int8
    match: NullableString


@message
class DescribeClientQuotasRequest:
    """A filter. A strict one matches entities without other parts."""

    components: Array[ComponentData]
    strict: Bool


@message
class EntityData:
    """A part of an entity; null is the name of the entity of all others."""

    entity_type: String
    entity_name: NullableString


@message
class ValueData:
    """A limit."""

    key: String
    value: Float64


@message
class EntryData:
    """An entity with its limits."""

    entity: Array[EntityData]
    values: Array[ValueData]


@message
class DescribeClientQuotasResponse:
    """The matching entities; null if the request failed."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: NullableString = field(default=None)
    entries: NullableArray[EntryData]


API = declare(
    __name__,
    flexible=1,
    request=DescribeClientQuotasRequest,
    response=DescribeClientQuotasResponse,
)
