"""DescribeLogDirs (key 35): returns one broker's log directories with their replicas (KIP-113).

v2 flexible; v3 an error of the whole response; v4 sizes of the volumes (KIP-827); v5 whether a
directory is cordoned (KIP-1066).

Errors: CLUSTER_AUTHORIZATION_FAILED. By directory: KAFKA_STORAGE_ERROR.
"""

from barnabas.protocol.apis import declare
from barnabas.protocol.schema import field, message, since
from barnabas.protocol.types import Array, Bool, Int16, Int32, Int64, NullableArray, String


@message
class DescribableLogDirTopic:
    """Partitions of one topic."""

    topic: String
    partitions: Array[Int32]


@message
class DescribeLogDirsRequest:
    """The partitions to describe, or null for all."""

    topics: NullableArray[DescribableLogDirTopic]


@message
class DescribeLogDirsPartition:
    """A replica; `offset_lag` is its lag behind the high watermark."""

    partition_index: Int32
    partition_size: Int64
    offset_lag: Int64
    is_future_key: Bool


@message
class DescribeLogDirsTopic:
    """Replicas of one topic."""

    name: String
    partitions: Array[DescribeLogDirsPartition]


@message
class DescribeLogDirsResult:
    """A directory; sizes in bytes, -1 if unknown."""

    error_code: Int16 = field(default=0)
    log_dir: String
    topics: Array[DescribeLogDirsTopic]
    total_bytes: Int64 = since(4, default=-1, ignorable=True)
    usable_bytes: Int64 = since(4, default=-1, ignorable=True)
    is_cordoned: Bool = since(5, default=False, ignorable=True)


@message
class DescribeLogDirsResponse:
    """The log directories of the broker that answers."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = since(3, default=0, ignorable=True)
    results: Array[DescribeLogDirsResult]


API = declare(
    __name__,
    flexible=2,
    request=DescribeLogDirsRequest,
    response=DescribeLogDirsResponse,
)
