"""InitProducerId (key 22): a producer id for idempotent writes and for transactions (KIP-98).

Without a transactional id, any broker gives every call a fresh producer id with epoch 0, whichever
one the client had. With one, its coordinator fences the producer that had it and aborts its open
transaction;
v3 names the old id and epoch of a producer that continues after a fault (KIP-360), v4 may be told
PRODUCER_FENCED, v5 TRANSACTION_ABORTABLE. v6 has two-phase commit (KIP-939), which
`transaction.two.phase.commit.enable` enables; v6 is announced only then. A principal that has used
too many new ids gets POLICY_VIOLATION (`barnabas/broker/transactions/producer_id_limit.py`).
"""

from collections.abc import Awaitable, Callable
from functools import partial

from barnabas.broker.security.rights import (
    ANY_NAME,
    CLUSTER,
    IDEMPOTENT_WRITE,
    TOPIC,
    TRANSACTIONAL_ID,
    TWO_PHASE_COMMIT,
    WRITE,
    Need,
    Rights,
)
from barnabas.broker.server.context import RequestContext
from barnabas.broker.transactions.producer_id_limit import ProducerIdCount, ProducerIdLimit
from barnabas.coordinator.soon import Soon, map_answer, spawn
from barnabas.coordinator.transaction.coordinator import TransactionCoordinator
from barnabas.coordinator.transaction.metadata import Producer
from barnabas.coordinator.transaction.producers import Initialised, InitProducerId
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.init_producer_id import (
    API,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from barnabas.protocol.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

__all__ = ["API", "RIGHTS", "error_response", "handle"]


def _is_idempotent(request: InitProducerIdRequest) -> bool:
    """Return whether there is no transactional id."""
    return request.transactional_id is None


def _is_two_phase(request: InitProducerIdRequest) -> bool:
    """Return whether two-phase commit is asked for."""
    return request.enable_two_phase_commit or request.keep_prepared_txn


RIGHTS = Rights(
    whole=(
        Need(WRITE, TRANSACTIONAL_ID, "transactional_id"),
        Need(TWO_PHASE_COMMIT, TRANSACTIONAL_ID, "transactional_id", when=_is_two_phase),
        Need(
            WRITE,
            TOPIC,
            ANY_NAME,
            when=_is_idempotent,
            unless=Need(IDEMPOTENT_WRITE, CLUSTER),
            refusal=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ),
    )
)


def handle(
    next_id: Callable[[], Awaitable[int]],
    transactions: TransactionCoordinator,
    limit: ProducerIdLimit,
    two_phase_commit: bool,
    request: InitProducerIdRequest,
    context: RequestContext,
) -> Soon[InitProducerIdResponse]:
    """Return a producer id from this broker's block, or from the transaction coordinator."""
    if request.transactional_id is not None and not two_phase_commit:
        _refuse_two_phase_commit(request)
    has_id = request.producer_id != NO_PRODUCER_ID
    if request.transactional_id == "" or has_id != (request.producer_epoch != NO_PRODUCER_EPOCH):
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is None:
        return spawn(_idempotent(next_id, limit.admit(context)))
    count = None
    if transactions.would_create(request.transactional_id):
        count = limit.admit(context)
    answer = transactions.init_producer_id(
        InitProducerId(
            request.transactional_id,
            request.transaction_timeout_ms,
            Producer(request.producer_id, request.producer_epoch) if has_id else None,
            context.client_host,
            request.enable_two_phase_commit,
            request.keep_prepared_txn,
            context.owner,
        )
    )
    return map_answer(answer, partial(_response, count))


def _refuse_two_phase_commit(request: InitProducerIdRequest) -> None:
    # The code is Kafka's: its ACLs need the operation TWO_PHASE_COMMIT (15) as well.
    if _is_two_phase(request):
        raise KafkaError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "Two-phase commit is disabled: set transaction.two.phase.commit.enable=true.",
        )


async def _idempotent(
    next_id: Callable[[], Awaitable[int]], count: ProducerIdCount | None
) -> InitProducerIdResponse:
    producer_id = await next_id()
    if count is not None:
        count.add()
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _response(count: ProducerIdCount | None, answer: Initialised) -> InitProducerIdResponse:
    if count is not None:
        count.add()
    response = InitProducerIdResponse(
        producer_id=answer.producer.producer_id, producer_epoch=answer.producer.epoch
    )
    if answer.ongoing is not None:
        response.ongoing_txn_producer_id = answer.ongoing.producer_id
        response.ongoing_txn_producer_epoch = answer.ongoing.epoch
    return response


def error_response(
    _request: InitProducerIdRequest,
    code: ErrorCode,
    _version: int,
) -> InitProducerIdResponse:
    """Return the error without a producer id."""
    return InitProducerIdResponse(
        error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH
    )
