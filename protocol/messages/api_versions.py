"""ApiVersions (key 18): what the broker serves. The first request on a connection.

v3 flexible, software of the client (KIP-511), features (KIP-584); v4 features of minimal version 0
(KIP-1022). A version that the broker lacks is answered in v0.

Errors: UNSUPPORTED_VERSION, INVALID_REQUEST for a software name that is malformed.
"""

from barnabas.protocol.schema import Api, field, message, since, tagged
from barnabas.protocol.types import Array, Bool, Int16, Int32, Int64, String


@message
class ApiVersionsRequest:
    """Name and version of the client's software, from v3 on."""

    client_software_name: String = since(3, default="", ignorable=True)
    client_software_version: String = since(3, default="", ignorable=True)


@message
class ApiVersion:
    """The versions served of one API."""

    api_key: Int16
    min_version: Int16
    max_version: Int16


@message
class SupportedFeatureKey:
    """Levels of a feature that this broker could run."""

    name: String = since(3, default="")
    min_version: Int16 = since(3, default=0)
    max_version: Int16 = since(3, default=0)


@message
class FinalizedFeatureKey:
    """The level of a feature that the cluster has settled on."""

    name: String = since(3, default="")
    max_version_level: Int16 = since(3, default=0)
    min_version_level: Int16 = since(3, default=0)


@message
class ApiVersionsResponse:
    """Its header never carries tagged fields, so that any client can read it."""

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


API = Api(
    key=18,
    name="ApiVersions",
    versions=range(5),
    flexible=3,
    request=ApiVersionsRequest,
    response=ApiVersionsResponse,
)
