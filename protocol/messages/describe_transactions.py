"""DescribeTransactions (key 65): what a coordinator knows of its transactional ids (KIP-664).

Errors by transactional id: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE,
NOT_COORDINATOR, INVALID_REQUEST, TRANSACTIONAL_ID_NOT_FOUND,
TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
"""

from barnabas.protocol.schema import Api, field, message
from barnabas.protocol.types import Array, Int16, Int32, Int64, String


@message
class DescribeTransactionsRequest:
    """Transactional ids that this broker coordinates; none ask for none."""

    transactional_ids: Array[String]


@message
class TopicData:
    """Partitions of one topic in the transaction."""

    topic: String
    partitions: Array[Int32]


@message
class TransactionState:
    """One transactional id; the start in ms since the epoch, -1 outside a transaction.

    While the transaction ends, `topics` holds the partitions that still lack their marker.
    """

    error_code: Int16 = field(default=0)
    transactional_id: String
    transaction_state: String
    transaction_timeout_ms: Int32
    transaction_start_time_ms: Int64
    producer_id: Int64
    producer_epoch: Int16
    topics: Array[TopicData]


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
