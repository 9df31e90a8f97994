"""UpdateFeatures (key 57): change the finalized features of the cluster (KIP-584).

v1 upgrade types and a dry run (KIP-778); v2 one error in place of one per feature. All changes are
made or none, so the error always concerns the whole request. As in Kafka 4.4, v0 only upgrades: its
`AllowDowngrade` is ignored.

Errors: INVALID_UPDATE_VERSION; FEATURE_UPDATE_FAILED while the metadata store is out of reach.
"""

from collections.abc import Sequence

from barnabas.broker.cluster.features import FeatureChange, Features
from barnabas.broker.security.rights import ALTER, CLUSTER, Need, Rights
from barnabas.broker.server.context import RequestContext
from barnabas.broker.store.metadata_store import StoreError
from barnabas.coordinator.soon import in_task
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.update_features import (
    API,
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from barnabas.protocol.steps import Steps, in_steps

__all__ = ["API", "RIGHTS", "handle"]

RIGHTS = Rights(whole=(Need(ALTER, CLUSTER),))


def handle(
    features: Features,
    request: UpdateFeaturesRequest,
    _context: RequestContext,
) -> Steps[UpdateFeaturesResponse]:
    """Change the features; answer when this broker announces the new levels to its clients."""
    changes = yield from in_steps(_change, request.feature_updates)
    try:
        yield in_task(features.update(changes, validate_only=request.validate_only))
    except KafkaError as error:
        return UpdateFeaturesResponse(error_code=error.code, error_message=error.message)
    except StoreError:
        failed = ErrorCode.FEATURE_UPDATE_FAILED
        return UpdateFeaturesResponse(error_code=failed, error_message=failed.text)
    return (yield from _success(changes))


def _change(update: FeatureUpdateKey) -> FeatureChange:
    return FeatureChange(update.feature, update.max_version_level, update.upgrade_type)


def _success(changes: Sequence[FeatureChange]) -> Steps[UpdateFeaturesResponse]:
    def result(change: FeatureChange) -> UpdatableFeatureResult:
        return UpdatableFeatureResult(feature=change.feature, error_message=ErrorCode.NONE.name)

    results = yield from in_steps(result, changes)
    return UpdateFeaturesResponse(error_message=None, results=results)
