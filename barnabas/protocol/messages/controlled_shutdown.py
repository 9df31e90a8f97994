"""ControlledShutdown (key 7): moves the leaderships of a broker that will stop. Brokers only.

The versions of Kafka 3.9: v1 is v0 with the common request header, and the first version here; v2
broker epochs (KIP-380); v3 flexible.

Errors: NOT_CONTROLLER, STALE_BROKER_EPOCH, BROKER_NOT_AVAILABLE.
"""

from barnabas.protocol.apis import declare
from barnabas.protocol.schema import field, message, since
from barnabas.protocol.types import Array, Int16, Int32, Int64, String


@message
class ControlledShutdownRequest:
    """The broker that will stop."""

    broker_id: Int32
    broker_epoch: Int64 = since(2, default=-1, ignorable=True)


@message
class RemainingPartition:
    """A partition that no other broker can lead."""

    topic_name: String
    partition_index: Int32


@message
class ControlledShutdownResponse:
    """The partitions that the broker still leads; it may stop if there are none."""

    error_code: Int16 = field(default=0)
    remaining_partitions: Array[RemainingPartition] = field(default_factory=list)


API = declare(
    __name__,
    flexible=3,
    request=ControlledShutdownRequest,
    response=ControlledShutdownResponse,
)
