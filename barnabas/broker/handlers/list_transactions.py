"""ListTransactions (key 66): the transactional ids of this coordinator (KIP-664).

v1 a filter by duration (KIP-994), v2 by an RE2 pattern (KIP-1152). The response lists unknown
states of the filter. Errors: COORDINATOR_LOAD_IN_PROGRESS, INVALID_REGULAR_EXPRESSION, and
UNSUPPORTED_VERSION for a pattern if the package google-re2, the extra `re2`, is not installed.
v2 is not announced then: Kafka's clients then report that the broker does not take the pattern.
"""

from collections.abc import Callable
from functools import cache

from barnabas.broker.observability.logging import get_logger
from barnabas.broker.security.rights import DESCRIBE, TRANSACTIONAL_ID, Need, Rights, Shown
from barnabas.broker.server.context import RequestContext
from barnabas.coordinator.expressions import (
    NOT_INSTALLED,
    ExpressionError,
    NotInstalledError,
    compiled,
)
from barnabas.coordinator.ports import Clock
from barnabas.coordinator.transaction.coordinator import TransactionCoordinator
from barnabas.coordinator.transaction.metadata import TransactionMetadata
from barnabas.coordinator.transaction.states import BY_NAME
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.list_transactions import (
    API,
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from barnabas.protocol.steps import Steps

__all__ = ["API", "RIGHTS", "handle"]

RIGHTS = Rights(
    shown=Shown("transaction_states", Need(DESCRIBE, TRANSACTIONAL_ID, "transactional_id"))
)

_log = get_logger(__name__)
_NEEDS_RE2 = f"a pattern in ListTransactions {NOT_INSTALLED}"


def handle(
    transactions: TransactionCoordinator,
    clock: Clock,
    request: ListTransactionsRequest,
    _context: RequestContext,
) -> Steps[ListTransactionsResponse]:
    """List the transactional ids that this broker coordinates."""
    transactions.require_loaded()
    wanted = _filter(request, clock.now_ms())
    found = []
    for txn in list(transactions.transactions()):
        yield None
        if wanted(txn):
            found.append(
                TransactionState(
                    transactional_id=txn.transactional_id,
                    producer_id=txn.producer_id,
                    transaction_state=txn.state.value,
                )
            )
    return ListTransactionsResponse(
        unknown_state_filters=[each for each in request.state_filters if each not in BY_NAME],
        transaction_states=found,
    )


def _filter(request: ListTransactionsRequest, now_ms: int) -> Callable[[TransactionMetadata], bool]:
    states = {BY_NAME[each] for each in request.state_filters if each in BY_NAME}
    producers = set(request.producer_id_filters)
    duration = request.duration_filter
    matches = _pattern(request.transactional_id_pattern)

    def wanted(txn: TransactionMetadata) -> bool:
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
    try:
        return compiled(pattern).matches
    except NotInstalledError as error:
        _warn_of_missing_re2()
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, _NEEDS_RE2) from error
    except ExpressionError as error:
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from error


@cache
def _warn_of_missing_re2() -> None:
    """Log the warning with the first request only: requests must not fill the log."""
    _log.warning(_NEEDS_RE2)
