"""AlterReplicaLogDirs (key 34): in which of its log directories a broker keeps replicas (KIP-113).

v2 flexible. Only the broker that is asked moves anything.

Errors by partition: INVALID_TOPIC_EXCEPTION, LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR,
REPLICA_NOT_AVAILABLE, UNKNOWN_TOPIC_OR_PARTITION, CLUSTER_AUTHORIZATION_FAILED.
"""

from barnabas.protocol.schema import Api, field, message
from barnabas.protocol.types import Array, Int16, Int32, String


@message
class AlterReplicaLogDirTopic:
    """Partitions of one topic."""

    name: String
    partitions: Array[Int32]


@message
class AlterReplicaLogDir:
    """A directory, by its absolute path, and the replicas that are to lie in it."""

    path: String
    topics: Array[AlterReplicaLogDirTopic]


@message
class AlterReplicaLogDirsRequest:
    """Where replicas are to lie."""

    dirs: Array[AlterReplicaLogDir]


@message
class AlterReplicaLogDirPartitionResult:
    """Whether a replica moves, or lies there already."""

    partition_index: Int32
    error_code: Int16


@message
class AlterReplicaLogDirTopicResult:
    """Partitions of one topic."""

    topic_name: String
    partitions: Array[AlterReplicaLogDirPartitionResult]


@message
class AlterReplicaLogDirsResponse:
    """What became of each partition."""

    throttle_time_ms: Int32 = field(default=0)
    results: Array[AlterReplicaLogDirTopicResult]


API = Api(
    key=34,
    name="AlterReplicaLogDirs",
    versions=range(1, 3),
    flexible=2,
    request=AlterReplicaLogDirsRequest,
    response=AlterReplicaLogDirsResponse,
)
