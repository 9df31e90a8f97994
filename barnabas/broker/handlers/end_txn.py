"""EndTxn (key 26): commit or abort a transaction.

The response leaves when the decision is committed, before the markers are written.

From v5 on (KIP-890) every transaction has its own epoch, and the response has the producer id
and epoch for the next transaction. A client may list the partitions that it has written to, so that
partitions that were only registered need no marker (KIP-609).
"""

from typing import Final

from barnabas.broker.security.rights import TRANSACTIONAL_ID, WRITE, Need, Rights
from barnabas.broker.server.context import RequestContext
from barnabas.broker.server.repeats import Repeat
from barnabas.coordinator.soon import Soon, map_answer, settle
from barnabas.coordinator.transaction.coordinator import TransactionCoordinator
from barnabas.coordinator.transaction.ending import EndTxn
from barnabas.coordinator.transaction.metadata import TV0, TV2, Producer
from barnabas.protocol.messages.end_txn import API, EndTxnRequest, EndTxnResponse, WrittenTopic
from barnabas.protocol.steps import Steps
from barnabas.protocol.topic_partition import TopicPartition

__all__ = ["API", "RIGHTS", "again", "handle"]

RIGHTS = Rights(whole=(Need(WRITE, TRANSACTIONAL_ID, "transactional_id"),))

_EPOCH_PER_TRANSACTION_SINCE = 5
_PRODUCER: Final = ("producer_id", "producer_epoch")


def handle(
    transactions: TransactionCoordinator, request: EndTxnRequest, context: RequestContext
) -> Soon[EndTxnResponse] | Steps[EndTxnResponse]:
    """Ask the coordinator of the transactional id, which must be this broker."""
    if request.written is None:
        return _end(transactions, request, None, context)
    return _handle_written(transactions, request, request.written, context)


def _end(
    transactions: TransactionCoordinator,
    request: EndTxnRequest,
    written: frozenset[TopicPartition] | None,
    context: RequestContext,
) -> Soon[EndTxnResponse]:
    return map_answer(transactions.end(_ending(request, written, context)), _response)


def _ending(
    request: EndTxnRequest,
    written: frozenset[TopicPartition] | None,
    context: RequestContext,
) -> EndTxn:
    newer = context.api_version >= _EPOCH_PER_TRANSACTION_SINCE
    return EndTxn(
        request.transactional_id,
        Producer(request.producer_id, request.producer_epoch),
        request.committed,
        TV2 if newer else TV0,
        written,
        context.connection_id,
        context.owner,
    )


def again(
    transactions: TransactionCoordinator,
    request: EndTxnRequest,
    context: RequestContext,
    response: EndTxnResponse,
) -> Repeat | None:
    """Serve a client that ends further transactions of its id.

    In the older protocol its requests are equal. In the newer one they differ in producer and
    outcome, and the responses in the producer that the client uses next.
    """
    if response.error_code or request.written is not None:
        return None
    ending = _ending(request, None, context)
    step = transactions.repeated(ending)
    if context.api_version < _EPOCH_PER_TRANSACTION_SINCE:
        return Repeat(step.again, (ending.producer, ending.committed))
    return Repeat(step.again, None, (*_PRODUCER, "committed"), _PRODUCER)


def _handle_written(
    transactions: TransactionCoordinator,
    request: EndTxnRequest,
    topics: list[WrittenTopic],
    context: RequestContext,
) -> Steps[EndTxnResponse]:
    written: set[TopicPartition] = set()
    for topic in topics:
        for each in topic.partitions:
            written.add(TopicPartition(topic.name, each))
            yield None
        yield None
    return (yield from settle(_end(transactions, request, frozenset(written), context)))


def _response(producer: Producer) -> EndTxnResponse:
    return EndTxnResponse(producer_id=producer.producer_id, producer_epoch=producer.epoch)
