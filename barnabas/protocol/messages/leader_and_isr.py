"""LeaderAndIsr (key 4): the controller makes brokers leaders or followers. Brokers only.

The versions of Kafka 3.9: v1 marks new replicas; v2 grouped by topic, broker epochs (KIP-380); v3
reassignments (KIP-455); v4 flexible; v5 topic ids (KIP-516); v6 recovery state (KIP-704); v7 both
types of controllers (KIP-866).

Errors: STALE_CONTROLLER_EPOCH, STALE_BROKER_EPOCH. By partition: KAFKA_STORAGE_ERROR,
INCONSISTENT_TOPIC_ID, STALE_CONTROLLER_EPOCH.
"""

from barnabas.protocol.apis import declare
from barnabas.protocol.schema import MAX_CONTROLLER_ELEMENTS, field, message, since
from barnabas.protocol.types import ZERO_UUID, Array, Bool, Int8, Int16, Int32, Int64, String, Uuid


@message
class LeaderAndIsrPartitionState:
    """Leader, ISR and replicas of one partition in one leader epoch."""

    topic_name: String = field(until=1, default="", ignorable=True)
    partition_index: Int32
    controller_epoch: Int32
    leader: Int32
    leader_epoch: Int32
    isr: Array[Int32]
    partition_epoch: Int32
    replicas: Array[Int32]
    adding_replicas: Array[Int32] = since(3, default_factory=list, ignorable=True)
    removing_replicas: Array[Int32] = since(3, default_factory=list, ignorable=True)
    is_new: Bool = since(1, default=False, ignorable=True)
    leader_recovery_state: Int8 = since(6, default=0)


@message
class LeaderAndIsrTopicState:
    """Partitions of one topic."""

    topic_name: String = since(2, default="")
    topic_id: Uuid = since(5, default=ZERO_UUID, ignorable=True)
    partition_states: Array[LeaderAndIsrPartitionState] = since(2, default_factory=list)


@message
class LeaderAndIsrLiveLeader:
    """The address of a leader, for its followers."""

    broker_id: Int32
    host_name: String
    port: Int32


@message
class LeaderAndIsrRequest:
    """The request; refused if its controller epoch is below the highest one seen."""

    controller_id: Int32
    is_kraft_controller: Bool = since(7, default=False)
    controller_epoch: Int32
    broker_epoch: Int64 = since(2, default=-1, ignorable=True)
    type: Int8 = since(5, default=0)
    ungrouped_partition_states: Array[LeaderAndIsrPartitionState] = field(
        until=1, default_factory=list
    )
    topic_states: Array[LeaderAndIsrTopicState] = since(2, default_factory=list)
    live_leaders: Array[LeaderAndIsrLiveLeader]


@message
class LeaderAndIsrPartitionError:
    """The result for one partition."""

    topic_name: String = field(until=4, default="", ignorable=True)
    partition_index: Int32
    error_code: Int16 = field(default=0)


@message
class LeaderAndIsrTopicError:
    """The results of one topic's partitions."""

    topic_id: Uuid = since(5, default=ZERO_UUID)
    partition_errors: Array[LeaderAndIsrPartitionError] = since(5, default_factory=list)


@message
class LeaderAndIsrResponse:
    """The results: by partition up to v4, by topic id since v5."""

    error_code: Int16 = field(default=0)
    partition_errors: Array[LeaderAndIsrPartitionError] = field(until=4, default_factory=list)
    topics: Array[LeaderAndIsrTopicError] = since(5, default_factory=list)


API = declare(
    __name__,
    flexible=4,
    request=LeaderAndIsrRequest,
    response=LeaderAndIsrResponse,
    max_elements=MAX_CONTROLLER_ELEMENTS,
)
