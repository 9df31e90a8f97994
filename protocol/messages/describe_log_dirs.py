"""DescribeLogDirs (key 35)."""

from barnabas.protocol.schema import Api, field, message, since
from barnabas.protocol.types import Array, Bool, Int16, Int32, Int64, NullableArray, String


@message
class DescribableLogDirTopic:
    topic: String
    partitions: Array[Int32]


@message
class DescribeLogDirsRequest:
    topics: NullableArray[DescribableLogDirTopic]


@message
class DescribeLogDirsPartition:
    partition_index: Int32
    partition_size: Int64
    offset_lag: Int64
    is_future_key: Bool


@message
class DescribeLogDirsTopic:
    name: String
    partitions: Array[DescribeLogDirsPartition]


@message
class DescribeLogDirsResult:
    error_code: Int16 = field(default=0)
    log_dir: String
    topics: Array[DescribeLogDirsTopic]
    total_bytes: Int64 = since(4, default=-1, ignorable=True)
    usable_bytes: Int64 = since(4, default=-1, ignorable=True)
    is_cordoned: Bool = since(5, default=False, ignorable=True)


@message
class DescribeLogDirsResponse:
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = since(3, default=0, ignorable=True)
    results: Array[DescribeLogDirsResult]


API = Api(
    key=35,
    name="DescribeLogDirs",
    versions=range(1, 6),
    flexible=2,
    request=DescribeLogDirsRequest,
    response=DescribeLogDirsResponse,
)
