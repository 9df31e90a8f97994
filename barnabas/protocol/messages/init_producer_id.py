"""InitProducerId (key 22): allocates a producer id and epoch (KIP-98).

v2 flexible; v3 the producer's current id and epoch (KIP-360); v4 may return PRODUCER_FENCED
(KIP-588); v5 may return TRANSACTION_ABORTABLE (KIP-890); v6 two-phase commit (KIP-939).

Errors: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, INVALID_REQUEST,
INVALID_TRANSACTION_TIMEOUT, CONCURRENT_TRANSACTIONS, INVALID_PRODUCER_EPOCH, PRODUCER_FENCED,
TRANSACTIONAL_ID_AUTHORIZATION_FAILED (two-phase commit is disabled), UNSUPPORTED_VERSION (two-phase
commit below `transaction.version` 2), CLUSTER_AUTHORIZATION_FAILED.
"""

from typing import Final

from barnabas.protocol.apis import declare
from barnabas.protocol.schema import field, message, since
from barnabas.protocol.types import Bool, Int16, Int32, Int64, NullableString


@message
class InitProducerIdRequest:
    """The request; without a transactional id, any broker can answer it.

    `enable_two_phase_commit` is Kafka's Enable2Pc: the transactions of this producer have no
    timeout. `keep_prepared_txn` keeps an open transaction instead of aborting it.
    """

    transactional_id: NullableString
    transaction_timeout_ms: Int32
    producer_id: Int64 = since(3, default=-1)
    producer_epoch: Int16 = since(3, default=-1)
    enable_two_phase_commit: Bool = since(6, default=False)
    keep_prepared_txn: Bool = since(6, default=False)


@message
class InitProducerIdResponse:
    """The producer's id and epoch; both are -1 with an error.

    `ongoing_txn_producer_id` and its epoch name the transaction that was kept; -1 without one.
    """

    throttle_time_ms: Int32 = field(default=0, ignorable=True)
    error_code: Int16 = field(default=0)
    producer_id: Int64 = field(default=-1)
    producer_epoch: Int16
    ongoing_txn_producer_id: Int64 = since(6, default=-1)
    ongoing_txn_producer_epoch: Int16 = since(6, default=-1)


WITHOUT_TWO_PHASE_COMMIT: Final = range(6)
"""The versions that a broker announces unless two-phase commit is enabled, as Apache Kafka does."""

API = declare(
    __name__,
    flexible=2,
    request=InitProducerIdRequest,
    response=InitProducerIdResponse,
)
