"""InitProducerId (key 22): a producer id for idempotent writes (KIP-98). v3 tells the old id.

Without a transactional id every call gets a fresh id and epoch 0, whatever the client sends of an
old one. Transactional ids have no coordinator yet: COORDINATOR_NOT_AVAILABLE.
"""

from collections.abc import Awaitable, Callable

from barnabas.broker.server.context import RequestContext
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.init_producer_id import (
    API,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from barnabas.protocol.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

__all__ = ["API", "SERVES", "InitProducerIdHandler", "error_response"]

SERVES = range(6)


class InitProducerIdHandler:
    """Hands out producer ids from the blocks that the metadata store gives."""

    def __init__(self, next_id: Callable[[], Awaitable[int]]) -> None:
        self._next_id = next_id

    async def handle(
        self,
        request: InitProducerIdRequest,
        _context: RequestContext,
    ) -> InitProducerIdResponse:
        has_id = request.producer_id != NO_PRODUCER_ID
        if request.transactional_id == "" or has_id != (
            request.producer_epoch != NO_PRODUCER_EPOCH
        ):
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        if request.transactional_id is not None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return InitProducerIdResponse(producer_id=await self._next_id(), producer_epoch=0)


def error_response(
    _request: InitProducerIdRequest,
    code: ErrorCode,
    _version: int,
) -> InitProducerIdResponse:
    """No producer id, and why."""
    return InitProducerIdResponse(
        error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH
    )
