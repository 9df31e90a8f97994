"""WriteTxnMarkers (key 27): a transaction's end, written into its partitions (KIP-98).

From the transaction coordinator, or from an operator who aborts a hanging transaction (KIP-664).

v1 flexible; v2 which transaction protocol rules the marker's epoch (KIP-1228). Kafka 4.0 removed
v0.

Errors by partition: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, REQUEST_TIMED_OUT,
NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS_AFTER_APPEND, INVALID_PRODUCER_EPOCH,
TRANSACTION_COORDINATOR_FENCED, CLUSTER_AUTHORIZATION_FAILED, UNSUPPORTED_VERSION,
UNSUPPORTED_FOR_MESSAGE_FORMAT, KAFKA_STORAGE_ERROR.
"""

from barnabas.protocol.schema import Api, field, message, since
from barnabas.protocol.types import Array, Bool, Int8, Int16, Int32, Int64, String


@message
class WritableTxnMarkerTopic:
    """Partitions of one topic."""

    name: String
    partition_indexes: Array[Int32]


@message
class WritableTxnMarker:
    """One producer's marker; a `transaction_result` of true commits, one of false aborts.

    A coordinator epoch below the last one that a partition saw of this producer is fenced.
    """

    producer_id: Int64
    producer_epoch: Int16
    transaction_result: Bool
    topics: Array[WritableTxnMarkerTopic]
    coordinator_epoch: Int32
    transaction_version: Int8 = since(2, default=0, ignorable=True)


@message
class WriteTxnMarkersRequest:
    """Markers of any number of transactions."""

    markers: Array[WritableTxnMarker]


@message
class WritableTxnMarkerPartitionResult:
    """What became of the marker in one partition."""

    partition_index: Int32
    error_code: Int16 = field(default=0)


@message
class WritableTxnMarkerTopicResult:
    """Answers for the partitions of one topic."""

    name: String
    partitions: Array[WritableTxnMarkerPartitionResult]


@message
class WritableTxnMarkerResult:
    """Answers for one producer."""

    producer_id: Int64
    topics: Array[WritableTxnMarkerTopicResult]


@message
class WriteTxnMarkersResponse:
    """One entry per marker of the request. Never throttled."""

    markers: Array[WritableTxnMarkerResult]


API = Api(
    key=27,
    name="WriteTxnMarkers",
    versions=range(1, 3),
    flexible=1,
    request=WriteTxnMarkersRequest,
    response=WriteTxnMarkersResponse,
)
