"""StopReplica (key 5): the controller stops or deletes replicas of a broker. Between brokers only.

The versions of Kafka 3.9: v1 grouped by topic, broker epochs (KIP-380); v2 flexible; v3 leader
epochs and deletion by partition (KIP-570); v4 both types of controllers (KIP-866).

Errors: STALE_CONTROLLER_EPOCH, STALE_BROKER_EPOCH. By partition: FENCED_LEADER_EPOCH,
KAFKA_STORAGE_ERROR.
"""

from barnabas.protocol.apis import declare
from barnabas.protocol.schema import MAX_CONTROLLER_ELEMENTS, field, message, since
from barnabas.protocol.types import Array, Bool, Int16, Int32, Int64, String


@message
class StopReplicaPartitionV0:
    """A partition in v0, which has no topics."""

    topic_name: String = field(until=0, default="")
    partition_index: Int32 = field(until=0, default=0)


@message
class StopReplicaTopicV1:
    """Partitions of one topic in v1 and v2."""

    name: String = since(1, until=2, default="")
    partition_indexes: Array[Int32] = since(1, until=2, default_factory=list)


@message
class StopReplicaPartitionState:
    """Stop one replica, or stop and delete it."""

    partition_index: Int32 = since(3, default=0)
    leader_epoch: Int32 = since(3, default=-1)
    delete_partition: Bool = since(3, default=False)


@message
class StopReplicaTopicState:
    """Partitions of one topic since v3."""

    topic_name: String = since(3, default="")
    partition_states: Array[StopReplicaPartitionState] = since(3, default_factory=list)


@message
class StopReplicaRequest:
    """The request; refused if its controller epoch is below the highest one seen."""

    controller_id: Int32
    is_kraft_controller: Bool = since(4, default=False)
    controller_epoch: Int32
    broker_epoch: Int64 = since(1, default=-1, ignorable=True)
    delete_partitions: Bool = field(until=2, default=False)
    ungrouped_partitions: Array[StopReplicaPartitionV0] = field(until=0, default_factory=list)
    topics: Array[StopReplicaTopicV1] = since(1, until=2, default_factory=list)
    topic_states: Array[StopReplicaTopicState] = since(3, default_factory=list)


@message
class StopReplicaPartitionError:
    """The result for one replica."""

    topic_name: String
    partition_index: Int32
    error_code: Int16 = field(default=0)


@message
class StopReplicaResponse:
    """The results, one per replica of the request."""

    error_code: Int16 = field(default=0)
    partition_errors: Array[StopReplicaPartitionError]


API = declare(
    __name__,
    flexible=2,
    request=StopReplicaRequest,
    response=StopReplicaResponse,
    max_elements=MAX_CONTROLLER_ELEMENTS,
)
