"""EndTxn (key 26): commits or aborts the transaction of a transactional id (KIP-98).

v2 may return PRODUCER_FENCED (KIP-588); v3 flexible; v4 may return TRANSACTION_ABORTABLE; v5 each
transaction has its own epoch, and the response has the next one (KIP-890).

Partitions that were added in advance but not written need no marker (KIP-609): the client reports
the written ones in a tagged field of our own.

Errors: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, INVALID_REQUEST,
INVALID_TXN_STATE, INVALID_PRODUCER_ID_MAPPING, INVALID_PRODUCER_EPOCH, PRODUCER_FENCED,
CONCURRENT_TRANSACTIONS, TRANSACTION_ABORTABLE, TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
"""

from barnabas.protocol.apis import declare
from barnabas.protocol.schema import FIRST_OWN_TAG, field, message, since, tagged
from barnabas.protocol.types import Array, Bool, Int16, Int32, Int64, NullableArray, String


@message
class WrittenTopic:
    """Partitions of one topic."""

    name: String
    partitions: Array[Int32]


@message
class EndTxnRequest:
    """The transaction and its outcome.

    `written` is our own field: the partitions that the transaction wrote, or None for all that were
    added. The offsets of a group count as its partition of `__consumer_offsets`.
    """

    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    committed: Bool
    written: NullableArray[WrittenTopic] = tagged(FIRST_OWN_TAG, since=3, default=None)


@message
class EndTxnResponse:
    """The producer's next id and epoch; both are -1 with an error."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    producer_id: Int64 = since(5, default=-1, ignorable=True)
    producer_epoch: Int16 = since(5, default=-1, ignorable=True)


API = declare(
    __name__,
    flexible=3,
    request=EndTxnRequest,
    response=EndTxnResponse,
)
