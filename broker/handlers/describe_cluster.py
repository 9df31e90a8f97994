"""DescribeCluster (key 60): who is there (KIP-700).

v1 endpoint types (KIP-919): only brokers answer here, MISMATCHED_ENDPOINT_TYPE or
UNSUPPORTED_ENDPOINT_TYPE otherwise. v2 fenced brokers, of which there are none: a broker that is
not alive is not registered.
"""

from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.metadata.operations import CLUSTER_OPERATIONS, NOT_ASKED
from barnabas.broker.server.context import RequestContext
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.describe_cluster import (
    API,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

__all__ = ["API", "SERVES", "DescribeClusterHandler", "error_response"]

SERVES = range(3)
_BROKERS, _CONTROLLERS = 1, 2


class DescribeClusterHandler:
    """Answers from the metadata cache."""

    def __init__(self, cache: MetadataCache) -> None:
        self._cache = cache

    def handle(
        self, request: DescribeClusterRequest, context: RequestContext
    ) -> DescribeClusterResponse:
        if request.endpoint_type == _CONTROLLERS:
            return error_response(request, ErrorCode.MISMATCHED_ENDPOINT_TYPE, context.api_version)
        if request.endpoint_type != _BROKERS:
            return error_response(request, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, context.api_version)
        wants_operations = request.include_cluster_authorized_operations
        return DescribeClusterResponse(
            cluster_id=self._cache.cluster_id,
            controller_id=self._cache.controller_id,
            brokers=[
                DescribeClusterBroker(
                    broker_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack
                )
                for broker in self._cache.brokers.values()
                if (endpoint := broker.endpoints.get(context.listener)) is not None
            ],
            cluster_authorized_operations=CLUSTER_OPERATIONS if wants_operations else NOT_ASKED,
        )


def error_response(
    request: DescribeClusterRequest,  # noqa: ARG001
    code: ErrorCode,
    version: int,  # noqa: ARG001
) -> DescribeClusterResponse:
    """No brokers, and why."""
    return DescribeClusterResponse(
        error_code=code, error_message=code.text, cluster_id="", brokers=[]
    )
