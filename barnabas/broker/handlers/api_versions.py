"""ApiVersions (key 18): the APIs and versions of the listener, read from the table of APIs.

An unknown version is answered with UNSUPPORTED_VERSION in version 0, with the range of this API
alone (KIP-511). v3 has features: those that this broker supports, and those that the cluster has
finalized (KIP-584); v4 also those whose lowest level is 0 (KIP-1022). A client of v5 may name the
cluster and the broker that it means: another one answers REBOOTSTRAP_REQUIRED, and serves the
connection all the same (KIP-1242). Produce is announced from
version 0 on, although 0 to 2 are refused: otherwise old librdkafka sends its batches uncompressed
(KAFKA-18659).
"""

import re
from collections.abc import Mapping

from barnabas.broker.cluster.features import Features
from barnabas.broker.security.rights import NOTHING
from barnabas.broker.server.context import RequestContext
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import (
    consumer_group_describe,
    consumer_group_heartbeat,
    init_producer_id,
    list_transactions,
    produce,
)
from barnabas.protocol.messages.api_versions import (
    API,
    NO_NODE,
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

__all__ = ["API", "RIGHTS", "announce", "error_response", "handle"]

RIGHTS = NOTHING
_CLIENT_SINCE = 3
_MINIMUM_ZERO_SINCE = 4
"""Older Java clients fail over a feature whose lowest level is 0 (KAFKA-17011)."""
_CONSUMER_GROUPS = (consumer_group_heartbeat.API.key, consumer_group_describe.API.key)
_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def announce(
    served: Mapping[int, range], *, two_phase_commit: bool = True, patterns: bool = True
) -> list[ApiVersion]:
    """Return the announced versions of the APIs; `served` has the served ones by API key.

    Without `two_phase_commit` its version of InitProducerId is served, but not announced, and
    without `patterns` that of ListTransactions.
    """
    announced = dict(served)
    if not two_phase_commit and init_producer_id.API.key in announced:
        announced[init_producer_id.API.key] = init_producer_id.WITHOUT_TWO_PHASE_COMMIT
    if not patterns and list_transactions.API.key in announced:
        announced[list_transactions.API.key] = list_transactions.WITHOUT_PATTERNS
    return [_announce(key, announced[key]) for key in sorted(announced)]


def handle(
    cluster_id: str,
    broker_id: int,
    features: Features,
    announced: list[ApiVersion],
    request: ApiVersionsRequest,
    context: RequestContext,
) -> ApiVersionsResponse:
    """Answer with the `announced` APIs of the listener, and the features as they are now.

    Consumer groups are announced while the level of `group.version` serves them.
    """
    if context.api_version >= _CLIENT_SINCE and not (
        _NAME.fullmatch(request.client_software_name)
        and _NAME.fullmatch(request.client_software_version)
    ):
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    _check_address((cluster_id, broker_id), request)
    return ApiVersionsResponse(
        api_keys=(
            announced
            if features.has_consumer_groups
            else [each for each in announced if each.api_key not in _CONSUMER_GROUPS]
        ),
        supported_features=[
            SupportedFeatureKey(name=name, min_version=lowest, max_version=highest)
            for name, (lowest, highest) in features.supported.items()
            if lowest > 0 or context.api_version >= _MINIMUM_ZERO_SINCE
        ],
        finalized_features_epoch=features.epoch,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in features.finalized.items()
        ],
    )


def _check_address(own: tuple[str, int], request: ApiVersionsRequest) -> None:
    """Raise REBOOTSTRAP_REQUIRED if the client means another cluster or broker, and INVALID_REQUEST
    if it names one of the two alone."""
    meant = request.cluster_id, request.node_id
    if meant in ((None, NO_NODE), own):
        return
    one_alone = request.cluster_id is None or request.node_id == NO_NODE
    raise KafkaError(ErrorCode.INVALID_REQUEST if one_alone else ErrorCode.REBOOTSTRAP_REQUIRED)


def _announce(api_key: int, versions: range) -> ApiVersion:
    return ApiVersion(
        api_key=api_key,
        min_version=0 if api_key == produce.API.key else versions.start,
        max_version=versions.stop - 1,
    )


def error_response(
    _request: ApiVersionsRequest | None,
    code: ErrorCode,
    _version: int,
) -> ApiVersionsResponse:
    """Answer without features; with UNSUPPORTED_VERSION tell the versions of this API."""
    known = []
    if code is ErrorCode.UNSUPPORTED_VERSION:
        known = [_announce(API.key, API.versions)]
    return ApiVersionsResponse(error_code=code, api_keys=known)
