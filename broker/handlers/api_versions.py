"""ApiVersions (key 18): which APIs this broker serves, read from the dispatch table itself.

A version that is not known is answered UNSUPPORTED_VERSION in version 0, with the range of this
API alone (KIP-511). Produce is told from version 0 on although 0 to 2 are refused: without it old
librdkafka sends its batches uncompressed (KAFKA-18659).
"""

import re
from collections.abc import Iterable

from barnabas.broker.server.context import RequestContext
from barnabas.broker.server.dispatch import Route
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import produce
from barnabas.protocol.messages.api_versions import (
    API,
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)

__all__ = ["API", "SERVES", "ApiVersionsHandler", "error_response"]

SERVES = range(5)
_CLIENT_SINCE = 3
_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


class ApiVersionsHandler:
    """Answers from a table that is complete before the first request."""

    def __init__(self) -> None:
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
        return ApiVersionsResponse(api_keys=self._served, finalized_features_epoch=0)


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
