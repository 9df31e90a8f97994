"""AddPartitionsToTxn (key 24): adds the partitions that a transaction will write (KIP-98).

v2 may return PRODUCER_FENCED (KIP-588); v3 is flexible and the last version for clients; v4 is for
brokers: it has many transactions, and adds or only verifies partitions; v5 may return
TRANSACTION_ABORTABLE (KIP-890).

The same call can add a group's offsets (KIP-609), in a tagged field of our own.

Errors of all: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR,
CLUSTER_AUTHORIZATION_FAILED. By partition: INVALID_REQUEST, INVALID_TXN_STATE,
INVALID_PRODUCER_ID_MAPPING, INVALID_PRODUCER_EPOCH, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS,
TRANSACTION_ABORTABLE, UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED,
TRANSACTIONAL_ID_AUTHORIZATION_FAILED, OPERATION_NOT_ATTEMPTED.
"""

from barnabas.protocol.apis import declare
from barnabas.protocol.schema import FIRST_OWN_TAG, field, message, since, tagged
from barnabas.protocol.types import Array, Bool, Int16, Int32, Int64, NullableString, String


@message
class AddPartitionsToTxnTopic:
    """Partitions of one topic."""

    name: String
    partitions: Array[Int32]


@message
class AddPartitionsToTxnTransaction:
    """One transaction; with `verify_only` its partitions are checked and none is added.

    `principal` is our own field: the client's, if the brokers have an authorizer.
    """

    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    verify_only: Bool = field(default=False)
    topics: Array[AddPartitionsToTxnTopic]
    principal: NullableString = tagged(FIRST_OWN_TAG, since=4, default=None)


@message
class AddPartitionsToTxnRequest:
    """One transaction of a client up to v3, any number of transactions of a broker since v4.

    `group_id` is our own field: the group whose offsets the transaction will commit, or None.
    """

    transactions: Array[AddPartitionsToTxnTransaction] = since(4, default_factory=list)
    v3_and_below_transactional_id: String = field(until=3, default="")
    v3_and_below_producer_id: Int64 = field(until=3, default=-1)
    v3_and_below_producer_epoch: Int16 = field(until=3, default=-1)
    v3_and_below_topics: Array[AddPartitionsToTxnTopic] = field(until=3, default_factory=list)
    group_id: NullableString = tagged(FIRST_OWN_TAG, since=3, until=3, default=None)


@message
class AddPartitionsToTxnPartitionResult:
    """The result for one partition."""

    partition_index: Int32
    partition_error_code: Int16 = field(default=0)


@message
class AddPartitionsToTxnTopicResult:
    """The results of one topic's partitions."""

    name: String
    results_by_partition: Array[AddPartitionsToTxnPartitionResult]


@message
class AddPartitionsToTxnResult:
    """The results of one transaction."""

    transactional_id: String
    topic_results: Array[AddPartitionsToTxnTopicResult]


@message
class AddPartitionsToTxnResponse:
    """The results; a transaction adds all partitions or none: if one is refused, the others get
    OPERATION_NOT_ATTEMPTED."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = since(4, default=0, ignorable=True)
    results_by_transaction: Array[AddPartitionsToTxnResult] = since(4, default_factory=list)
    results_by_topic_v3_and_below: Array[AddPartitionsToTxnTopicResult] = field(
        until=3, default_factory=list
    )


API = declare(
    __name__,
    flexible=3,
    request=AddPartitionsToTxnRequest,
    response=AddPartitionsToTxnResponse,
)
