"""ApiVersions (key 18): which APIs this broker serves, read from the dispatch table itself.

A version that is not known is answered UNSUPPORTED_VERSION in version 0, with the range of this
API alone (KIP-511). v3 features: what this broker can run, and what the cluster has settled on
(KIP-584); v4 also those whose lowest level is 0 (KIP-1022). Produce is told from version 0 on
although 0 to 2 are refused: without it old librdkafka sends its batches uncompressed (KAFKA-18659).
"""

import re
from collections.abc import Iterable

from barnabas.broker.metadata.features import Features
from barnabas.broker.server.context import RequestContext
from barnabas.broker.server.dispatch import Route
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import produce
from barnabas.protocol.messages.api_versions import (
    API,
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

__all__ = ["API", "SERVES", "ApiVersionsHandler", "error_response"]

SERVES = range(5)
_CLIENT_SINCE = 3
_MINIMUM_ZERO_SINCE = 4
"""Older Java clients fail over a feature whose lowest level is 0 (KAFKA-17011)."""
_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


class ApiVersionsHandler:
    """Answers from a table that is complete before the first request, and the features of now."""

    def __init__(self, features: Features) -> None:
        self._features = features
        self._served: list[ApiVersion] = []

    def announce(self, routes: Iterable[Route]) -> None:
        """Take over the dispatch table."""
        self._served = [
            ApiVersion(
                api_key=route.api.key,
                min_version=0 if route.api.key == produce.API.key else route.serves.start,
                max_version=route.serves.stop - 1,
            )
            for route in sorted(routes, key=lambda each: each.api.key)
        ]

    def handle(self, request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
        if context.api_version >= _CLIENT_SINCE and not (
            _NAME.fullmatch(request.client_software_name)
            and _NAME.fullmatch(request.client_software_version)
        ):
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        return ApiVersionsResponse(
            api_keys=self._served,
            supported_features=self._supported(context.api_version),
            finalized_features_epoch=self._features.epoch,
            finalized_features=[
                FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
                for name, level in self._features.finalized.items()
            ],
        )

    def _supported(self, version: int) -> list[SupportedFeatureKey]:
        return [
            SupportedFeatureKey(name=name, min_version=lowest, max_version=highest)
            for name, (lowest, highest) in self._features.supported.items()
            if lowest > 0 or version >= _MINIMUM_ZERO_SINCE
        ]


def error_response(
    _request: ApiVersionsRequest | None,
    code: ErrorCode,
    _version: int,
) -> ApiVersionsResponse:
    """An answer without features; UNSUPPORTED_VERSION tells the versions of this API."""
    known = []
    if code is ErrorCode.UNSUPPORTED_VERSION:
        known = [ApiVersion(api_key=API.key, min_version=SERVES.start, max_version=SERVES.stop - 1)]
    return ApiVersionsResponse(error_code=code, api_keys=known)
