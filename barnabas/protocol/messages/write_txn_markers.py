"""WriteTxnMarkers (key 27): writes the end of a transaction into its partitions (KIP-98).

The sender is the transaction coordinator, or an operator who aborts a hanging transaction
(KIP-664).

v1 flexible; v2 the transaction version that the marker's epoch follows (KIP-1228). Kafka 4.0
removed v0.

Errors by partition: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, REQUEST_TIMED_OUT,
NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS_AFTER_APPEND, INVALID_PRODUCER_EPOCH,
TRANSACTION_COORDINATOR_FENCED, CLUSTER_AUTHORIZATION_FAILED, UNSUPPORTED_VERSION,
UNSUPPORTED_FOR_MESSAGE_FORMAT, KAFKA_STORAGE_ERROR.
"""

from barnabas.protocol.apis import declare
from barnabas.protocol.schema import FIRST_OWN_TAG, field, message, since, tagged
from barnabas.protocol.types import Array, Bool, Int8, Int16, Int32, Int64, String


@message
class WritableTxnMarkerTopic:
    """Partitions of one topic."""

    name: String
    partition_indexes: Array[Int32]


@message
class WritableTxnMarker:
    """One producer's marker; `transaction_result` is true for commit, false for abort.

    A coordinator epoch below the last one that a partition saw from this producer is fenced.
    """

    producer_id: Int64
    producer_epoch: Int16
    transaction_result: Bool
    topics: Array[WritableTxnMarkerTopic]
    coordinator_epoch: Int32
    transaction_version: Int8 = since(2, default=0, ignorable=True)


@message
class WriteTxnMarkersRequest:
    """The markers of any number of transactions."""

    markers: Array[WritableTxnMarker]


@message
class WritableTxnMarkerPartitionResult:
    """The result of a marker in one partition.

    Our own field, for coordinators: with INVALID_PRODUCER_EPOCH, `nothing_open` says that the
    producer has no transaction open in the partition, so that no marker is missing there.
    """

    partition_index: Int32
    error_code: Int16 = field(default=0)
    nothing_open: Bool = tagged(FIRST_OWN_TAG, since=1, default=False)


@message
class WritableTxnMarkerTopicResult:
    """The results of one topic's partitions."""

    name: String
    partitions: Array[WritableTxnMarkerPartitionResult]


@message
class WritableTxnMarkerResult:
    """The results of one producer."""

    producer_id: Int64
    topics: Array[WritableTxnMarkerTopicResult]


@message
class WriteTxnMarkersResponse:
    """The results: one entry per marker of the request. Never throttled."""

    markers: Array[WritableTxnMarkerResult]


API = declare(
    __name__,
    flexible=1,
    request=WriteTxnMarkersRequest,
    response=WriteTxnMarkersResponse,
)
