"""AllocateProducerIds (key 67), between brokers only: a block of producer ids (KIP-730).

Brokers of this cluster take their blocks from the metadata store themselves, also while there is no
controller; what is given here comes from the same place.
"""

from barnabas.broker.controller.controller import Controller
from barnabas.broker.metadata.producer_ids import ProducerIdBlocks
from barnabas.broker.metadata.store import StoreError
from barnabas.broker.server.context import RequestContext
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.allocate_producer_ids import (
    API,
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)

__all__ = ["API", "SERVES", "AllocateProducerIdsHandler", "error_response"]

SERVES = range(1)


class AllocateProducerIdsHandler:
    """Answers on the controller only, to brokers that are registered."""

    def __init__(self, controller: Controller, blocks: ProducerIdBlocks) -> None:
        self._controller = controller
        self._blocks = blocks

    async def handle(
        self,
        request: AllocateProducerIdsRequest,
        context: RequestContext,  # noqa: ARG002
    ) -> AllocateProducerIdsResponse:
        self._controller.require_broker(request.broker_id, request.broker_epoch)
        try:
            block = await self._blocks.allocate(request.broker_id)
        except StoreError as cause:
            raise KafkaError(ErrorCode.NOT_CONTROLLER) from cause
        return AllocateProducerIdsResponse(
            producer_id_start=block.start, producer_id_len=len(block)
        )


def error_response(
    _request: AllocateProducerIdsRequest, code: ErrorCode, _version: int
) -> AllocateProducerIdsResponse:
    """The error, and no ids."""
    return AllocateProducerIdsResponse(error_code=code)
