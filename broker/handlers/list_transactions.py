"""ListTransactions (key 66): the transactional ids that a coordinator knows (KIP-664).

v1 a filter by duration (KIP-994), v2 by a pattern of RE2 (KIP-1152). States that nobody knows are
told in the answer. Errors: COORDINATOR_LOAD_IN_PROGRESS, INVALID_REGULAR_EXPRESSION.
"""

import asyncio
from collections.abc import Callable

from barnabas.broker.clock import Clock
from barnabas.broker.server.context import RequestContext
from barnabas.coordinator.transaction.coordinator import TransactionCoordinator
from barnabas.coordinator.transaction.metadata import Transaction
from barnabas.coordinator.transaction.states import BY_NAME
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.list_transactions import (
    API,
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)

__all__ = ["API", "SERVES", "ListTransactionsHandler", "error_response"]

SERVES = range(3)
_PER_TURN = 1000
"""Transactional ids that are looked at before the loop is for others: a millisecond or two."""
_PATTERN_BYTES = 1 << 20
"""What a compiled pattern may take: the library keeps the last ones."""


class ListTransactionsHandler:
    """Answers for what this broker coordinates."""

    def __init__(self, coordinator: TransactionCoordinator, clock: Clock) -> None:
        self._coordinator = coordinator
        self._clock = clock

    async def handle(
        self,
        request: ListTransactionsRequest,
        context: RequestContext,  # noqa: ARG002
    ) -> ListTransactionsResponse:
        self._coordinator.require_loaded()
        wanted = _filter(request, self._clock.now_ms())
        found: list[Transaction] = []
        known = list(self._coordinator.transactions())
        for start in range(0, len(known), _PER_TURN):
            # A coordinator may know a hundred thousand: others have their turn in between.
            await asyncio.sleep(0)
            found += filter(wanted, known[start : start + _PER_TURN])
        return ListTransactionsResponse(
            unknown_state_filters=[each for each in request.state_filters if each not in BY_NAME],
            transaction_states=[
                TransactionState(
                    transactional_id=each.transactional_id,
                    producer_id=each.producer_id,
                    transaction_state=each.state.value,
                )
                for each in found
            ],
        )


def _filter(request: ListTransactionsRequest, now_ms: int) -> Callable[[Transaction], bool]:
    states = {BY_NAME[each] for each in request.state_filters if each in BY_NAME}
    producers = set(request.producer_id_filters)
    duration = request.duration_filter
    matches = _pattern(request.transactional_id_pattern)

    def wanted(txn: Transaction) -> bool:
        return (
            (not producers or txn.producer_id in producers)
            and (not request.state_filters or txn.state in states)
            and (duration < 0 or now_ms - txn.start_ms > duration)
            and matches(txn.transactional_id)
        )

    return wanted


def _pattern(pattern: str | None) -> Callable[[str], bool]:
    if not pattern:
        return lambda _: True
    # Imported when it is asked for: no broker needs it to start. RE2 takes time in proportion to
    # the text whatever the pattern, which Python's own expressions do not.
    import re2

    options = re2.Options()
    # What a client mistypes is told to the client alone.
    options.log_errors = False
    options.max_mem = _PATTERN_BYTES
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from error
    return lambda text: compiled.fullmatch(text) is not None


def error_response(
    _request: ListTransactionsRequest, code: ErrorCode, _version: int
) -> ListTransactionsResponse:
    """The error, and nothing listed."""
    return ListTransactionsResponse(
        error_code=code, unknown_state_filters=[], transaction_states=[]
    )
