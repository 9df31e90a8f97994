"""AlterReplicaLogDirs (key 34): moves replicas between a broker's log directories (KIP-113).

v2 flexible. Only the broker that receives the request moves replicas.

Errors by partition: INVALID_TOPIC_EXCEPTION, LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR,
REPLICA_NOT_AVAILABLE, UNKNOWN_TOPIC_OR_PARTITION, CLUSTER_AUTHORIZATION_FAILED.
"""

from barnabas.protocol.apis import declare
from barnabas.protocol.schema import field, message
from barnabas.protocol.types import Array, Int16, Int32, String


@message
class AlterReplicaLogDirTopic:
    """Partitions of one topic."""

    name: String
    partitions: Array[Int32]


@message
class AlterReplicaLogDir:
    """A directory, by its absolute path, and the replicas to move there."""

    path: String
    topics: Array[AlterReplicaLogDirTopic]


@message
class AlterReplicaLogDirsRequest:
    """The target directories and their replicas."""

    dirs: Array[AlterReplicaLogDir]


@message
class AlterReplicaLogDirPartitionResult:
    """The result for one replica; no error if it moves or is there already."""

    partition_index: Int32
    error_code: Int16


@message
class AlterReplicaLogDirTopicResult:
    """Partitions of one topic."""

    topic_name: String
    partitions: Array[AlterReplicaLogDirPartitionResult]


@message
class AlterReplicaLogDirsResponse:
    """The results, one per partition of the request."""

    throttle_time_ms: Int32 = field(default=0)
    results: Array[AlterReplicaLogDirTopicResult]


API = declare(
    __name__,
    flexible=2,
    request=AlterReplicaLogDirsRequest,
    response=AlterReplicaLogDirsResponse,
)
