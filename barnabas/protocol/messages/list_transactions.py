"""ListTransactions (key 66): lists the transactional ids of one coordinator (KIP-664).

v1 filter by duration (KIP-994); v2 filter by a pattern of the ids (KIP-1152).

Errors: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, INVALID_REGULAR_EXPRESSION.
"""

from typing import Final

from barnabas.protocol.apis import declare
from barnabas.protocol.schema import field, message, since
from barnabas.protocol.types import Array, Int16, Int32, Int64, NullableString, String


@message
class ListTransactionsRequest:
    """The filters, all of which must match; an empty, null or negative one matches everything.

    `duration_filter` matches transactions that have been open for longer, in ms. The
    pattern is a regular expression that must match the whole transactional id.
    """

    state_filters: Array[String]
    producer_id_filters: Array[Int64]
    duration_filter: Int64 = since(1, default=-1)
    transactional_id_pattern: NullableString = since(2, default=None)


@message
class TransactionState:
    """One transactional id."""

    transactional_id: String
    producer_id: Int64
    transaction_state: String


@message
class ListTransactionsResponse:
    """The matching ids, and the requested state names that do not exist."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    unknown_state_filters: Array[String]
    transaction_states: Array[TransactionState]


WITHOUT_PATTERNS: Final = range(2)
"""The versions that a broker announces unless it can match patterns."""

API = declare(
    __name__,
    flexible=0,
    request=ListTransactionsRequest,
    response=ListTransactionsResponse,
)
