"""EndTxn (key 26): commit or abort the transaction of a transactional id (KIP-98).

v2 may be told PRODUCER_FENCED (KIP-588); v3 flexible; v4 may be told TRANSACTION_ABORTABLE; v5
every transaction has an epoch of its own, the answer brings the next one (KIP-890).

What was registered in advance and never written needs no marker (KIP-609): the client reports what
it wrote in a tagged field of our own.

Errors: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, INVALID_REQUEST,
INVALID_TXN_STATE, INVALID_PRODUCER_ID_MAPPING, INVALID_PRODUCER_EPOCH, PRODUCER_FENCED,
CONCURRENT_TRANSACTIONS, TRANSACTION_ABORTABLE, TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
"""

from barnabas.protocol.schema import FIRST_OWN_TAG, Api, field, message, since, tagged
from barnabas.protocol.types import Array, Bool, Int16, Int32, Int64, NullableArray, String


@message
class WrittenTopic:
    """Partitions of one topic."""

    name: String
    partitions: Array[Int32]


@message
class EndTxnRequest:
    """`written` is ours: partitions that the transaction wrote, None for all that are in it.

    Offsets of a group count as its partition of `__consumer_offsets`.
    """

    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    committed: Bool
    written: NullableArray[WrittenTopic] = tagged(FIRST_OWN_TAG, since=3, default=None)


@message
class EndTxnResponse:
    """The producer's next id and epoch; both are -1 beside an error."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    producer_id: Int64 = since(5, default=-1, ignorable=True)
    producer_epoch: Int16 = since(5, default=-1, ignorable=True)


API = Api(
    key=26,
    name="EndTxn",
    versions=range(6),
    flexible=3,
    request=EndTxnRequest,
    response=EndTxnResponse,
)
