"""AddPartitionsToTxn (key 24): partitions that a transaction is going to write (KIP-98).

v2 may be told PRODUCER_FENCED (KIP-588); v3 flexible, the last one for clients; v4 between brokers:
many transactions, added to or only verified; v5 may be told TRANSACTION_ABORTABLE (KIP-890).

A group's offsets can be registered in the same call (KIP-609), in a tagged field of our own.

Errors of all: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR,
CLUSTER_AUTHORIZATION_FAILED. By partition: INVALID_REQUEST, INVALID_TXN_STATE,
INVALID_PRODUCER_ID_MAPPING, INVALID_PRODUCER_EPOCH, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS,
TRANSACTION_ABORTABLE, UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED,
TRANSACTIONAL_ID_AUTHORIZATION_FAILED, OPERATION_NOT_ATTEMPTED.
"""

from barnabas.protocol.schema import FIRST_OWN_TAG, Api, field, message, since, tagged
from barnabas.protocol.types import Array, Bool, Int16, Int32, Int64, NullableString, String


@message
class AddPartitionsToTxnTopic:
    """Partitions of one topic."""

    name: String
    partitions: Array[Int32]


@message
class AddPartitionsToTxnTransaction:
    """One transaction; `verify_only` asks whether the partitions are in it, and adds none."""

    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    verify_only: Bool = field(default=False)
    topics: Array[AddPartitionsToTxnTopic]


@message
class AddPartitionsToTxnRequest:
    """One transaction of a client up to v3, any number of a broker's from v4 on.

    `group_id` is ours: the group whose offsets the transaction will commit, None for none.
    """

    transactions: Array[AddPartitionsToTxnTransaction] = since(4, default_factory=list)
    v3_and_below_transactional_id: String = field(until=3, default="")
    v3_and_below_producer_id: Int64 = field(until=3, default=-1)
    v3_and_below_producer_epoch: Int16 = field(until=3, default=-1)
    v3_and_below_topics: Array[AddPartitionsToTxnTopic] = field(until=3, default_factory=list)
    group_id: NullableString = tagged(FIRST_OWN_TAG, since=3, until=3, default=None)


@message
class AddPartitionsToTxnPartitionResult:
    """What became of one partition."""

    partition_index: Int32
    partition_error_code: Int16 = field(default=0)


@message
class AddPartitionsToTxnTopicResult:
    """Answers for the partitions of one topic."""

    name: String
    results_by_partition: Array[AddPartitionsToTxnPartitionResult]


@message
class AddPartitionsToTxnResult:
    """Answers for one transaction."""

    transactional_id: String
    topic_results: Array[AddPartitionsToTxnTopicResult]


@message
class AddPartitionsToTxnResponse:
    """All or nothing: beside a refused partition, the others were not attempted."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = since(4, default=0, ignorable=True)
    results_by_transaction: Array[AddPartitionsToTxnResult] = since(4, default_factory=list)
    results_by_topic_v3_and_below: Array[AddPartitionsToTxnTopicResult] = field(
        until=3, default_factory=list
    )


API = Api(
    key=24,
    name="AddPartitionsToTxn",
    versions=range(6),
    flexible=3,
    request=AddPartitionsToTxnRequest,
    response=AddPartitionsToTxnResponse,
)
