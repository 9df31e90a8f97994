"""DescribeTransactions (key 65): returns a coordinator's state of transactional ids (KIP-664).

Errors by transactional id: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE,
NOT_COORDINATOR, INVALID_REQUEST, TRANSACTIONAL_ID_NOT_FOUND, TRANSACTIONAL_ID_AUTHORIZATION_FAILED.

Tagged fields of our own carry the coordinator's recent events, if they are requested, and the
client of a kept transaction (KIP-939).
"""

from barnabas.protocol.apis import declare
from barnabas.protocol.schema import FIRST_OWN_TAG, field, message, tagged
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
    """The transactional ids to describe, all coordinated by this broker.

    `include_events` is our own field: it requests the events, the time left and the client's
    address.
    """

    transactional_ids: Array[String]
    include_events: Bool = tagged(FIRST_OWN_TAG, since=0, default=False)


@message
class TopicData:
    """Partitions of one topic in the transaction."""

    topic: String
    partitions: Array[Int32]


@message
class TransactionEvent:
    """An event of a transactional id, as a text; its time in ms since the epoch."""

    at_ms: Int64
    text: String


@message
class TransactionState:
    """One transactional id; the start is in ms since the epoch, -1 outside a transaction.

    While the transaction ends, `topics` holds the partitions that get a marker. Our own fields:
    `events`, oldest first, null if not requested or not recorded; `time_left_ms` until the
    coordinator aborts the open transaction, -1 if none is open or it has no timeout; `client_host`
    of the last InitProducerId, null if it came before the coordinator loaded its state.

    `producer_id` and its epoch are those of the open transaction's records. If the transaction
    `is_kept` (KIP-939), only `client_producer_id` and its epoch may end it; -1 otherwise. A
    transaction of two-phase commit has the timeout 2^31-1.
    """

    error_code: Int16 = field(default=0)
    transactional_id: String
    transaction_state: String
    transaction_timeout_ms: Int32
    transaction_start_time_ms: Int64
    producer_id: Int64
    producer_epoch: Int16
    topics: Array[TopicData]
    events: NullableArray[TransactionEvent] = tagged(FIRST_OWN_TAG, since=0, default=None)
    time_left_ms: Int64 = tagged(FIRST_OWN_TAG + 1, since=0, default=-1)
    client_host: NullableString = tagged(FIRST_OWN_TAG + 2, since=0, default=None)
    client_producer_id: Int64 = tagged(FIRST_OWN_TAG + 3, since=0, default=-1)
    client_producer_epoch: Int16 = tagged(FIRST_OWN_TAG + 4, since=0, default=-1)
    is_kept: Bool = tagged(FIRST_OWN_TAG + 5, since=0, default=False)


@message
class DescribeTransactionsResponse:
    """One entry per transactional id of the request."""

    throttle_time_ms: Int32 = field(default=0)
    transaction_states: Array[TransactionState]


API = declare(
    __name__,
    flexible=0,
    request=DescribeTransactionsRequest,
    response=DescribeTransactionsResponse,
)
