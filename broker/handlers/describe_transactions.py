"""DescribeTransactions (key 65): what a coordinator knows of transactional ids (KIP-664)."""

from barnabas.broker.server.context import RequestContext
from barnabas.coordinator.transaction.coordinator import TransactionCoordinator
from barnabas.coordinator.transaction.metadata import Transaction
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.describe_transactions import (
    API,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DiaryEvent,
    TopicData,
    TransactionState,
)
from barnabas.protocol.topic_partition import by_topic

__all__ = ["API", "SERVES", "DescribeTransactionsHandler", "error_response"]

SERVES = range(1)


class DescribeTransactionsHandler:
    """Each transactional id is described, or refused, on its own."""

    def __init__(self, coordinator: TransactionCoordinator) -> None:
        self._coordinator = coordinator

    def handle(
        self,
        request: DescribeTransactionsRequest,
        context: RequestContext,  # noqa: ARG002
    ) -> DescribeTransactionsResponse:
        ids = dict.fromkeys(request.transactional_ids)
        return DescribeTransactionsResponse(
            transaction_states=[self._describe(each, request.diary) for each in ids]
        )

    def _describe(self, transactional_id: str, with_diary: bool) -> TransactionState:
        try:
            txn = self._coordinator.describe(transactional_id)
        except KafkaError as error:
            return _unknown(transactional_id, error.code)
        state = _state(txn)
        if with_diary:
            diary = self._coordinator.diary(transactional_id)
            state.events = [DiaryEvent(at_ms=at, text=text) for at, text in diary.events]
            state.time_left_ms = -1 if diary.time_left_ms is None else diary.time_left_ms
            state.client_host = diary.client_host
        return state


def _state(txn: Transaction) -> TransactionState:
    topics = by_topic(sorted(txn.partitions))
    return TransactionState(
        transactional_id=txn.transactional_id,
        transaction_state=txn.state.value,
        transaction_timeout_ms=txn.timeout_ms,
        transaction_start_time_ms=txn.start_ms,
        producer_id=txn.producer_id,
        producer_epoch=txn.epoch,
        topics=[TopicData(topic=name, partitions=each) for name, each in topics.items()],
    )


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


def error_response(
    request: DescribeTransactionsRequest, code: ErrorCode, _version: int
) -> DescribeTransactionsResponse:
    """The error for every transactional id."""
    return DescribeTransactionsResponse(
        transaction_states=[_unknown(each, code) for each in request.transactional_ids]
    )
