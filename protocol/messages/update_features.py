"""UpdateFeatures (key 57): raise or lower the cluster's finalized features (KIP-584).

v1 kinds of change and a dry run (KIP-778); v2 one error for all in place of one per feature.

Errors: INVALID_REQUEST, INVALID_UPDATE_VERSION, FEATURE_UPDATE_FAILED, NOT_CONTROLLER,
REQUEST_TIMED_OUT, CLUSTER_AUTHORIZATION_FAILED.
"""

from barnabas.protocol.schema import Api, field, message, since
from barnabas.protocol.types import Array, Bool, Int8, Int16, Int32, NullableString, String


@message
class FeatureUpdateKey:
    """The level a feature shall have; one below 1 takes the feature away.

    `upgrade_type`: 1 only raises, 2 lowers where nothing is lost, 3 lowers whatever it costs.
    """

    feature: String
    max_version_level: Int16
    allow_downgrade: Bool = field(until=0, default=False)
    upgrade_type: Int8 = since(1, default=1)


@message
class UpdateFeaturesRequest:
    """All of the changes or none; `validate_only` makes none."""

    timeout_ms: Int32 = field(default=60000)
    feature_updates: Array[FeatureUpdateKey]
    validate_only: Bool = since(1, default=False)


@message
class UpdatableFeatureResult:
    """What became of one feature."""

    feature: String
    error_code: Int16 = field(default=0)
    error_message: NullableString


@message
class UpdateFeaturesResponse:
    """The error of the whole; up to v1 also one per feature."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: NullableString
    results: Array[UpdatableFeatureResult] = field(until=1, default_factory=list, ignorable=True)


API = Api(
    key=57,
    name="UpdateFeatures",
    versions=range(3),
    flexible=0,
    request=UpdateFeaturesRequest,
    response=UpdateFeaturesResponse,
)
