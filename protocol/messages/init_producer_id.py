"""InitProducerId (key 22)."""

from barnabas.protocol.schema import Api, field, message, since
from barnabas.protocol.types import Bool, Int16, Int32, Int64, NullableString


@message
class InitProducerIdRequest:
    transactional_id: NullableString
    transaction_timeout_ms: Int32
    producer_id: Int64 = since(3, default=-1)
    producer_epoch: Int16 = since(3, default=-1)
    enable2_pc: Bool = since(6, default=False)
    keep_prepared_txn: Bool = since(6, default=False)


@message
class InitProducerIdResponse:
    throttle_time_ms: Int32 = field(default=0, ignorable=True)
    error_code: Int16 = field(default=0)
    producer_id: Int64 = field(default=-1)
    producer_epoch: Int16
    ongoing_txn_producer_id: Int64 = since(6, default=-1)
    ongoing_txn_producer_epoch: Int16 = since(6, default=-1)


API = Api(
    key=22,
    name="InitProducerId",
    versions=range(6),
    flexible=2,
    request=InitProducerIdRequest,
    response=InitProducerIdResponse,
)
