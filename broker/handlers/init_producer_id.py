"""InitProducerId (key 22): a producer id for idempotent writes and for transactions (KIP-98).

Without a transactional id every call gets a fresh id and epoch 0, whatever the client sends of an
old one, from any broker. With one, its coordinator fences whoever had it and aborts what is open;
v3 tells the old id and epoch of a producer that goes on after a fault (KIP-360), v4 may be told
PRODUCER_FENCED, v5 TRANSACTION_ABORTABLE.
"""

from collections.abc import Awaitable, Callable

from barnabas.broker.server.context import RequestContext
from barnabas.coordinator.soon import Soon, promised, then
from barnabas.coordinator.transaction.coordinator import TransactionCoordinator
from barnabas.coordinator.transaction.metadata import Producer
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

    def __init__(
        self, next_id: Callable[[], Awaitable[int]], coordinator: TransactionCoordinator
    ) -> None:
        self._next_id = next_id
        self._coordinator = coordinator

    def handle(
        self, request: InitProducerIdRequest, context: RequestContext
    ) -> Soon[InitProducerIdResponse]:
        has_id = request.producer_id != NO_PRODUCER_ID
        if request.transactional_id == "" or has_id != (
            request.producer_epoch != NO_PRODUCER_EPOCH
        ):
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        if request.transactional_id is None:
            return promised(self._idempotent())
        answer = self._coordinator.init_producer_id(
            request.transactional_id,
            request.transaction_timeout_ms,
            Producer(request.producer_id, request.producer_epoch) if has_id else None,
            context.client_host,
        )
        return then(answer, _response)

    async def _idempotent(self) -> InitProducerIdResponse:
        return _response(Producer(await self._next_id(), 0))


def _response(producer: Producer) -> InitProducerIdResponse:
    return InitProducerIdResponse(producer_id=producer.producer_id, producer_epoch=producer.epoch)


def error_response(
    _request: InitProducerIdRequest,
    code: ErrorCode,
    _version: int,
) -> InitProducerIdResponse:
    """No producer id, and why."""
    return InitProducerIdResponse(
        error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH
    )
