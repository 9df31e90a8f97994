"""UpdateFeatures (key 57): raise or lower what the cluster has settled on (KIP-584).

v1 kinds of change and a dry run (KIP-778); v2 one error for all in place of one per feature. All of
the changes are made or none, so the error is always that of the whole. As in Kafka 4.3 v0 only
raises: its `AllowDowngrade` is not looked at.

Errors: INVALID_UPDATE_VERSION; FEATURE_UPDATE_FAILED while the metadata store is out of reach.
"""

from barnabas.broker.metadata.features import FeatureChange, Features
from barnabas.broker.metadata.store import StoreError
from barnabas.broker.server.context import RequestContext
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.update_features import (
    API,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

__all__ = ["API", "SERVES", "UpdateFeaturesHandler", "error_response"]

SERVES = range(3)


class UpdateFeaturesHandler:
    """Answers when every client of this broker is told the new levels."""

    def __init__(self, features: Features) -> None:
        self._features = features

    async def handle(
        self,
        request: UpdateFeaturesRequest,
        context: RequestContext,  # noqa: ARG002
    ) -> UpdateFeaturesResponse:
        changes = [
            FeatureChange(update.feature, update.max_version_level, update.upgrade_type)
            for update in request.feature_updates
        ]
        try:
            await self._features.update(changes, validate_only=request.validate_only)
        except KafkaError as error:
            return UpdateFeaturesResponse(error_code=error.code, error_message=error.message)
        except StoreError:
            failed = ErrorCode.FEATURE_UPDATE_FAILED
            return UpdateFeaturesResponse(error_code=failed, error_message=failed.text)
        return UpdateFeaturesResponse(
            error_message=None,
            results=[
                UpdatableFeatureResult(feature=change.feature, error_message=ErrorCode.NONE.name)
                for change in changes
            ],
        )


def error_response(
    request: UpdateFeaturesRequest,  # noqa: ARG001
    code: ErrorCode,
    version: int,  # noqa: ARG001
) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(error_code=code, error_message=code.text)
