"""AlterPartition (key 56): a leader proposes a new ISR (KIP-497). Between brokers only.

v2 topic ids (KIP-841), v3 the members' broker epochs (KIP-903).

Errors: NOT_CONTROLLER, STALE_BROKER_EPOCH. By partition: UNKNOWN_TOPIC_ID,
UNKNOWN_TOPIC_OR_PARTITION, NOT_CONTROLLER (the controller has an older leader epoch or partition
epoch than the leader), FENCED_LEADER_EPOCH, INVALID_REQUEST (not the leader, or no such replica),
INVALID_UPDATE_VERSION (another partition epoch), INELIGIBLE_REPLICA (a member is offline, restarted
or stopping), NEW_LEADER_ELECTED (written, but another broker is leader now).
"""

from barnabas.protocol.apis import declare
from barnabas.protocol.schema import field, message, since
from barnabas.protocol.types import ZERO_UUID, Array, Int8, Int16, Int32, Int64, Uuid


@message
class BrokerState:
    """A member of an ISR with the broker epoch that the leader knows, -1 if it knows none."""

    broker_id: Int32 = since(3, default=0)
    broker_epoch: Int64 = since(3, default=-1)


@message
class PartitionData:
    """The proposed ISR of a partition, to replace the state with `partition_epoch`."""

    partition_index: Int32
    leader_epoch: Int32
    new_isr: Array[Int32] = field(until=2, default_factory=list)
    new_isr_with_epochs: Array[BrokerState] = since(3, default_factory=list)
    leader_recovery_state: Int8 = field(default=0)
    partition_epoch: Int32


@message
class TopicData:
    """Partitions of one topic."""

    topic_id: Uuid = field(default=ZERO_UUID, ignorable=True)
    partitions: Array[PartitionData]


@message
class AlterPartitionRequest:
    """The proposals of one leader for any number of partitions."""

    broker_id: Int32
    broker_epoch: Int64 = field(default=-1)
    topics: Array[TopicData]


@message
class PartitionResponse:
    """The current state of one partition at the controller."""

    partition_index: Int32
    error_code: Int16 = field(default=0)
    leader_id: Int32 = field(default=0)
    leader_epoch: Int32 = field(default=0)
    isr: Array[Int32] = field(default_factory=list)
    leader_recovery_state: Int8 = field(default=0, ignorable=True)
    partition_epoch: Int32 = field(default=0)


@message
class TopicResponse:
    """Partitions of one topic."""

    topic_id: Uuid = field(default=ZERO_UUID, ignorable=True)
    partitions: Array[PartitionResponse]


@message
class AlterPartitionResponse:
    """The results: one per partition, or an error code for the whole request."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    topics: Array[TopicResponse] = field(default_factory=list)


API = declare(
    __name__,
    flexible=0,
    request=AlterPartitionRequest,
    response=AlterPartitionResponse,
)
