"""InitProducerId (key 22): a producer id and epoch, for idempotence or for transactions (KIP-98).

v2 flexible; v3 the producer's current id and epoch (KIP-360); v4 may be told PRODUCER_FENCED
(KIP-588); v5 may be told TRANSACTION_ABORTABLE (KIP-890).

Errors: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, INVALID_REQUEST,
INVALID_TRANSACTION_TIMEOUT, CONCURRENT_TRANSACTIONS, INVALID_PRODUCER_EPOCH, PRODUCER_FENCED,
TRANSACTIONAL_ID_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED.
"""

from barnabas.protocol.schema import Api, field, message, since
from barnabas.protocol.types import Int16, Int32, Int64, NullableString


@message
class InitProducerIdRequest:
    """Without a transactional id, any broker may answer."""

    transactional_id: NullableString
    transaction_timeout_ms: Int32
    producer_id: Int64 = since(3, default=-1)
    producer_epoch: Int16 = since(3, default=-1)


@message
class InitProducerIdResponse:
    """Id and epoch are -1 beside an error."""

    throttle_time_ms: Int32 = field(default=0, ignorable=True)
    error_code: Int16 = field(default=0)
    producer_id: Int64 = field(default=-1)
    producer_epoch: Int16


API = Api(
    key=22,
    name="InitProducerId",
    versions=range(6),
    flexible=2,
    request=InitProducerIdRequest,
    response=InitProducerIdResponse,
)
