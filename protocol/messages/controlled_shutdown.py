"""ControlledShutdown (key 7): a broker that wants to stop hands its leaderships over. Brokers only.

As Kafka 3.9 had it: v1 is v0 with a common request header, and the first here; v2 broker epochs
(KIP-380); v3 flexible.

Errors: NOT_CONTROLLER, STALE_BROKER_EPOCH, BROKER_NOT_AVAILABLE.
"""

from barnabas.protocol.schema import Api, field, message, since
from barnabas.protocol.types import Array, Int16, Int32, Int64, String


@message
class ControlledShutdownRequest:
    """The broker that asks."""

    broker_id: Int32
    broker_epoch: Int64 = since(2, default=-1, ignorable=True)


@message
class RemainingPartition:
    """A partition that has nobody else to lead it."""

    topic_name: String
    partition_index: Int32


@message
class ControlledShutdownResponse:
    """What the broker still leads: nothing, if it may stop."""

    error_code: Int16 = field(default=0)
    remaining_partitions: Array[RemainingPartition] = field(default_factory=list)


API = Api(
    key=7,
    name="ControlledShutdown",
    versions=range(1, 4),
    flexible=3,
    request=ControlledShutdownRequest,
    response=ControlledShutdownResponse,
)
