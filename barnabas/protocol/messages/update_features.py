"""UpdateFeatures (key 57): upgrades or downgrades the cluster's finalized features (KIP-584).

v1 types of change and a dry run (KIP-778); v2 one error for all instead of one per feature.

Errors: INVALID_REQUEST, INVALID_UPDATE_VERSION, FEATURE_UPDATE_FAILED, NOT_CONTROLLER,
REQUEST_TIMED_OUT, CLUSTER_AUTHORIZATION_FAILED.
"""

from barnabas.protocol.apis import declare
from barnabas.protocol.schema import field, message, since
from barnabas.protocol.types import Array, Bool, Int8, Int16, Int32, NullableString, String


@message
class FeatureUpdateKey:
    """The level that a feature will have; a level below 1 removes the feature.

    `upgrade_type`: 1 only upgrades, 2 downgrades if no data is lost, 3 downgrades in any case.
    """

    feature: String
    max_version_level: Int16
    allow_downgrade: Bool = field(until=0, default=False)
    upgrade_type: Int8 = since(1, default=1)


@message
class UpdateFeaturesRequest:
    """The changes, all or none of which take effect; with `validate_only` none does."""

    timeout_ms: Int32 = field(default=60000)
    feature_updates: Array[FeatureUpdateKey]
    validate_only: Bool = since(1, default=False)


@message
class UpdatableFeatureResult:
    """The result for one feature."""

    feature: String
    error_code: Int16 = field(default=0)
    error_message: NullableString


@message
class UpdateFeaturesResponse:
    """The error code of the whole request; up to v1 also one per feature."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: NullableString
    results: Array[UpdatableFeatureResult] = field(until=1, default_factory=list, ignorable=True)


API = declare(
    __name__,
    flexible=0,
    request=UpdateFeaturesRequest,
    response=UpdateFeaturesResponse,
)
