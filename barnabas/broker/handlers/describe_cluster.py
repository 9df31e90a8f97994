"""DescribeCluster (key 60): the brokers, the controller and the cluster id (KIP-700).

v1 endpoint types (KIP-919): only endpoints of brokers are known, others get
MISMATCHED_ENDPOINT_TYPE or UNSUPPORTED_ENDPOINT_TYPE. v2 fenced brokers; this cluster has none,
because a broker that is not alive is not registered.
"""

from barnabas.broker.cluster.cache import MetadataCache
from barnabas.broker.cluster.operations import CLUSTER_OPERATIONS, NOT_ASKED
from barnabas.broker.security.rights import CLUSTER, Operations, Rights
from barnabas.broker.server.context import RequestContext
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.describe_cluster import (
    API,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

__all__ = ["API", "RIGHTS", "handle"]

RIGHTS = Rights(operations=(Operations("cluster_authorized_operations", CLUSTER),))

_BROKERS, _CONTROLLERS = 1, 2


def handle(
    cache: MetadataCache, request: DescribeClusterRequest, context: RequestContext
) -> DescribeClusterResponse:
    """Answer from the metadata cache."""
    if request.endpoint_type == _CONTROLLERS:
        raise KafkaError(ErrorCode.MISMATCHED_ENDPOINT_TYPE)
    if request.endpoint_type != _BROKERS:
        raise KafkaError(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)
    wants_operations = request.include_cluster_authorized_operations
    return DescribeClusterResponse(
        cluster_id=cache.cluster_id,
        controller_id=cache.controller_id,
        brokers=[
            DescribeClusterBroker(
                broker_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack
            )
            for broker in cache.brokers.values()
            if (endpoint := broker.endpoints.get(context.listener)) is not None
        ],
        cluster_authorized_operations=CLUSTER_OPERATIONS if wants_operations else NOT_ASKED,
    )
