"""DescribeTransactions (key 65): the state of transactional ids (KIP-664), and their events."""

from barnabas.broker.security.rights import (
    CLUSTER,
    DESCRIBE,
    TOPIC,
    TRANSACTIONAL_ID,
    Each,
    Need,
    Rights,
)
from barnabas.broker.server.context import RequestContext
from barnabas.coordinator.transaction.coordinator import TransactionCoordinator
from barnabas.coordinator.transaction.metadata import TransactionMetadata
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.describe_transactions import (
    API,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionEvent,
    TransactionState,
)
from barnabas.protocol.steps import Steps, in_steps
from barnabas.security.acl.rules import CLUSTER_NAME

__all__ = ["API", "RIGHTS", "handle"]


def _wants_events(request: DescribeTransactionsRequest) -> bool:
    """Return whether the events are asked for."""
    return request.include_events


RIGHTS = Rights(
    each=Each(
        "transactional_ids",
        (Need(DESCRIBE, TRANSACTIONAL_ID),),
        lambda transactional_id, code, _: _unknown(transactional_id, code),
        "transaction_states",
    ),
    inside=(
        Need(DESCRIBE, TOPIC, "topic", without="left out of the topics of the transaction"),
        Need(DESCRIBE, CLUSTER, when=_wants_events, without="no events"),
    ),
)


def handle(
    transactions: TransactionCoordinator,
    request: DescribeTransactionsRequest,
    context: RequestContext,
) -> Steps[DescribeTransactionsResponse]:
    """Describe or refuse each transactional id on its own."""
    # Events name topics, also of earlier transactions.
    with_events = request.include_events and context.allows(DESCRIBE, CLUSTER, CLUSTER_NAME)
    states = []
    for each in dict.fromkeys(request.transactional_ids):
        yield None
        state = yield from _describe(transactions, each, with_events)
        shown = []
        for topic in state.topics:
            if context.allows(DESCRIBE, TOPIC, topic.topic):
                shown.append(topic)
            yield None
        state.topics = shown
        states.append(state)
    return DescribeTransactionsResponse(transaction_states=states)


def _describe(
    transactions: TransactionCoordinator, transactional_id: str, with_events: bool
) -> Steps[TransactionState]:
    try:
        txn = transactions.describe(transactional_id)
        known = transactions.events(transactional_id) if with_events else None
    except KafkaError as error:
        return _unknown(transactional_id, error.code)
    state = yield from _state(txn)
    if known is not None:
        state.events = [TransactionEvent(at_ms=at, text=text) for at, text in known.events]
        state.time_left_ms = -1 if known.time_left_ms is None else known.time_left_ms
        state.client_host = known.client_host
    return state


def _state(txn: TransactionMetadata) -> Steps[TransactionState]:
    topics: dict[str, list[int]] = {}
    for name, index in txn.partitions:
        yield None
        topics.setdefault(name, []).append(index)
    state = TransactionState(
        transactional_id=txn.transactional_id,
        transaction_state=txn.state.value,
        transaction_timeout_ms=txn.timeout_ms,
        transaction_start_time_ms=txn.start_ms,
        producer_id=txn.producer_id,
        producer_epoch=txn.epoch,
        topics=(
            yield from in_steps(
                lambda name: TopicData(topic=name, partitions=sorted(topics[name])), sorted(topics)
            )
        ),
    )
    if txn.is_kept:
        state.client_producer_id, state.client_producer_epoch = txn.client
        state.is_kept = True
    return state


def _unknown(transactional_id: str, code: ErrorCode) -> TransactionState:
    return TransactionState(
        error_code=code,
        transactional_id=transactional_id,
        transaction_state="",
        transaction_timeout_ms=0,
        transaction_start_time_ms=0,
        producer_id=0,
        producer_epoch=0,
        topics=[],
    )
