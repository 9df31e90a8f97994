"""EndTxn (key 26): commit or abort. Answered when the decision is committed, before its markers.

From v5 on the client speaks the newer protocol (KIP-890): every transaction uses up an epoch, and
the answer carries the producer id and epoch to go on with. A client may tell what it has written,
so that partitions that were only registered need no marker (KIP-609).
"""

from barnabas.broker.server.context import RequestContext
from barnabas.coordinator.soon import Soon, then
from barnabas.coordinator.transaction.coordinator import TransactionCoordinator
from barnabas.coordinator.transaction.metadata import TV0, TV2, Producer
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.end_txn import API, EndTxnRequest, EndTxnResponse
from barnabas.protocol.topic_partition import TopicPartition

__all__ = ["API", "SERVES", "EndTxnHandler", "error_response"]

SERVES = range(6)
_EPOCH_PER_TRANSACTION_SINCE = 5


class EndTxnHandler:
    """Asks the coordinator of the transactional id, which must be this broker."""

    def __init__(self, coordinator: TransactionCoordinator) -> None:
        self._coordinator = coordinator

    def handle(self, request: EndTxnRequest, context: RequestContext) -> Soon[EndTxnResponse]:
        newer = context.api_version >= _EPOCH_PER_TRANSACTION_SINCE
        answer = self._coordinator.end(
            request.transactional_id,
            Producer(request.producer_id, request.producer_epoch),
            request.committed,
            client_version=TV2 if newer else TV0,
            written=_written(request),
            connection=context.connection_id,
        )
        return then(answer, _response)


def _written(request: EndTxnRequest) -> frozenset[TopicPartition] | None:
    if request.written is None:
        return None
    return frozenset((topic.name, each) for topic in request.written for each in topic.partitions)


def _response(producer: Producer) -> EndTxnResponse:
    return EndTxnResponse(producer_id=producer.producer_id, producer_epoch=producer.epoch)


def error_response(_request: EndTxnRequest, code: ErrorCode, _version: int) -> EndTxnResponse:
    """The error, and no producer."""
    return EndTxnResponse(error_code=code)
