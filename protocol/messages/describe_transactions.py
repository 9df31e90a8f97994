"""DescribeTransactions (key 65): what a coordinator knows of its transactional ids (KIP-664).

Errors by transactional id: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE,
NOT_COORDINATOR, INVALID_REQUEST, TRANSACTIONAL_ID_NOT_FOUND,
TRANSACTIONAL_ID_AUTHORIZATION_FAILED.

The coordinator's diary travels in tagged fields of our own, for those who ask for it.
"""

from barnabas.protocol.schema import FIRST_OWN_TAG, Api, field, message, tagged
from barnabas.protocol.types import (
    Array,
    Bool,
    Int16,
    Int32,
    Int64,
    NullableArray,
    NullableString,
    String,
)


@message
class DescribeTransactionsRequest:
    """Transactional ids that this broker coordinates; none ask for none.

    `diary` (ours) asks for the events, the time left and the client's address too.
    """

    transactional_ids: Array[String]
    diary: Bool = tagged(FIRST_OWN_TAG, since=0, default=False)


@message
class TopicData:
    """Partitions of one topic in the transaction."""

    topic: String
    partitions: Array[Int32]


@message
class DiaryEvent:
    """Something that happened to a transactional id, in words; in ms since the epoch."""

    at_ms: Int64
    text: String


@message
class TransactionState:
    """One transactional id; the start in ms since the epoch, -1 outside a transaction.

    While the transaction ends, `topics` holds the partitions that get a marker. Ours: `events`,
    oldest first, null where no diary was asked for or is kept; `time_left_ms` until the
    coordinator aborts the open transaction, -1 without one; `client_host` that last asked for the
    producer id, null where that was before the coordinator began.
    """

    error_code: Int16 = field(default=0)
    transactional_id: String
    transaction_state: String
    transaction_timeout_ms: Int32
    transaction_start_time_ms: Int64
    producer_id: Int64
    producer_epoch: Int16
    topics: Array[TopicData]
    events: NullableArray[DiaryEvent] = tagged(FIRST_OWN_TAG, since=0, default=None)
    time_left_ms: Int64 = tagged(FIRST_OWN_TAG + 1, since=0, default=-1)
    client_host: NullableString = tagged(FIRST_OWN_TAG + 2, since=0, default=None)


@message
class DescribeTransactionsResponse:
    """One entry per transactional id of the request."""

    throttle_time_ms: Int32 = field(default=0)
    transaction_states: Array[TransactionState]


API = Api(
    key=65,
    name="DescribeTransactions",
    versions=range(1),
    flexible=0,
    request=DescribeTransactionsRequest,
    response=DescribeTransactionsResponse,
)
