"""AllocateProducerIds (key 67): allocates producer ids to a broker (KIP-730). Brokers only.

Errors: NOT_CONTROLLER, STALE_BROKER_EPOCH, BROKER_NOT_AVAILABLE.
"""

from barnabas.protocol.apis import declare
from barnabas.protocol.schema import field, message
from barnabas.protocol.types import Int16, Int32, Int64


@message
class AllocateProducerIdsRequest:
    """The broker that needs the ids."""

    broker_id: Int32
    broker_epoch: Int64 = field(default=-1)


@message
class AllocateProducerIdsResponse:
    """A block of ids, from `producer_id_start` on, that no other broker gets."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    producer_id_start: Int64 = field(default=0)
    producer_id_len: Int32 = field(default=0)


API = declare(
    __name__,
    flexible=0,
    request=AllocateProducerIdsRequest,
    response=AllocateProducerIdsResponse,
)
