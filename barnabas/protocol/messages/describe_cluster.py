"""DescribeCluster (key 60): returns brokers, controller and cluster id (KIP-700).

v1 type of endpoint, brokers or controllers (KIP-919); v2 fenced brokers too (KIP-1073).

Errors: MISMATCHED_ENDPOINT_TYPE, UNSUPPORTED_ENDPOINT_TYPE.
"""

from barnabas.protocol.apis import declare
from barnabas.protocol.schema import field, message, since
from barnabas.protocol.types import Array, Bool, Int8, Int16, Int32, NullableString, String


@message
class DescribeClusterRequest:
    """The request; endpoint type 1 is brokers, 2 is controllers."""

    include_cluster_authorized_operations: Bool
    endpoint_type: Int8 = since(1, default=1)
    include_fenced_brokers: Bool = since(2, default=False)


@message
class DescribeClusterBroker:
    """A broker with the address that the listener of the request advertises."""

    broker_id: Int32
    host: String
    port: Int32
    rack: NullableString = field(default=None)
    is_fenced: Bool = since(2, default=False)


@message
class DescribeClusterResponse:
    """The cluster; authorized operations are a bit field, its minimum value if not requested."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: NullableString = field(default=None)
    endpoint_type: Int8 = since(1, default=1)
    cluster_id: String
    controller_id: Int32 = field(default=-1)
    brokers: Array[DescribeClusterBroker]
    cluster_authorized_operations: Int32 = field(default=-2147483648)


API = declare(
    __name__,
    flexible=0,
    request=DescribeClusterRequest,
    response=DescribeClusterResponse,
)
