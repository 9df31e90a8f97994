"""ApiVersions (key 18): the APIs that the broker serves. The first request on a connection.

v3 flexible, the client's software (KIP-511), features (KIP-584); v4 features of minimal version 0
(KIP-1022); v5 the cluster and the broker that the client means (KIP-1242). A version that the
broker does not know is answered in v0.

Errors: UNSUPPORTED_VERSION; INVALID_REQUEST for a malformed software name, or one of the two ids
alone; REBOOTSTRAP_REQUIRED if the client means another cluster or broker.
"""

from typing import Final

from barnabas.protocol.apis import declare
from barnabas.protocol.schema import field, message, since, tagged
from barnabas.protocol.types import Array, Bool, Int16, Int32, Int64, NullableString, String

NO_NODE: Final = -1
"""The node id of a client that does not know which broker it reaches."""


@message
class ApiVersionsRequest:
    """The name and version of the client's software, since v3.

    `cluster_id` and `node_id` are those of the broker that the client means to reach; null and -1
    if it knows neither.
    """

    client_software_name: String = since(3, default="", ignorable=True)
    client_software_version: String = since(3, default="", ignorable=True)
    cluster_id: NullableString = since(5, default=None, nullable=5, ignorable=True)
    node_id: Int32 = since(5, default=NO_NODE, ignorable=True)


@message
class ApiVersion:
    """The served versions of one API."""

    api_key: Int16
    min_version: Int16
    max_version: Int16


@message
class SupportedFeatureKey:
    """The levels of a feature that this broker supports."""

    name: String = since(3, default="")
    min_version: Int16 = since(3, default=0)
    max_version: Int16 = since(3, default=0)


@message
class FinalizedFeatureKey:
    """The finalized level of a feature in the cluster."""

    name: String = since(3, default="")
    max_version_level: Int16 = since(3, default=0)
    min_version_level: Int16 = since(3, default=0)


@message
class ApiVersionsResponse:
    """The response; its header never has tagged fields, so that every client can read it."""

    error_code: Int16 = field(default=0)
    api_keys: Array[ApiVersion]
    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    supported_features: Array[SupportedFeatureKey] = tagged(
        0, since=3, default_factory=list, ignorable=True
    )
    finalized_features_epoch: Int64 = tagged(1, since=3, default=-1, ignorable=True)
    finalized_features: Array[FinalizedFeatureKey] = tagged(
        2, since=3, default_factory=list, ignorable=True
    )
    zk_migration_ready: Bool = tagged(3, since=3, default=False, ignorable=True)


API = declare(
    __name__,
    flexible=3,
    request=ApiVersionsRequest,
    response=ApiVersionsResponse,
)
