"""AllocateProducerIds (key 67), between brokers only: a block of producer ids (KIP-730).

Brokers of this cluster take their blocks from the metadata store themselves, even without a
controller; the blocks of this API come from the same place.
"""

from barnabas.broker.cluster.producer_ids import ProducerIdBlocks
from barnabas.broker.controller.controller import Controller
from barnabas.broker.security.rights import OF_BROKERS
from barnabas.broker.server.context import RequestContext
from barnabas.broker.store.metadata_store import StoreError
from barnabas.coordinator.soon import in_task
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.allocate_producer_ids import (
    API,
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from barnabas.protocol.steps import Steps

__all__ = ["API", "RIGHTS", "handle"]

RIGHTS = OF_BROKERS


def handle(
    controller: Controller,
    blocks: ProducerIdBlocks,
    request: AllocateProducerIdsRequest,
    _context: RequestContext,
) -> Steps[AllocateProducerIdsResponse]:
    """Answer on the controller only, to brokers that are registered."""
    controller.require_broker(request.broker_id, request.broker_epoch)
    try:
        block = yield in_task(blocks.allocate(request.broker_id))
    except StoreError as cause:
        raise KafkaError(ErrorCode.NOT_CONTROLLER) from cause
    return AllocateProducerIdsResponse(producer_id_start=block.start, producer_id_len=len(block))
