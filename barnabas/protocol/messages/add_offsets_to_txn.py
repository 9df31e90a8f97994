"""AddOffsetsToTxn (key 25): adds a group's offsets to a transaction that will commit them (KIP-98).

v2 may return PRODUCER_FENCED (KIP-588); v3 flexible; v4 may return TRANSACTION_ABORTABLE (KIP-890).

Errors: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, INVALID_REQUEST,
INVALID_TXN_STATE, INVALID_PRODUCER_ID_MAPPING, INVALID_PRODUCER_EPOCH, PRODUCER_FENCED,
CONCURRENT_TRANSACTIONS, TRANSACTION_ABORTABLE, TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
GROUP_AUTHORIZATION_FAILED.
"""

from barnabas.protocol.apis import declare
from barnabas.protocol.schema import field, message
from barnabas.protocol.types import Int16, Int32, Int64, String


@message
class AddOffsetsToTxnRequest:
    """The request adds the `__consumer_offsets` partition of the group to the transaction."""

    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    group_id: String


@message
class AddOffsetsToTxnResponse:
    """The response, an error code only."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)


API = declare(
    __name__,
    flexible=3,
    request=AddOffsetsToTxnRequest,
    response=AddOffsetsToTxnResponse,
)
