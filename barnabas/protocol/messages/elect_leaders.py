"""ElectLeaders (key 43): elects preferred leaders, or any live replica (KIP-183).

v1 types of elections (KIP-460); v2 flexible.

Errors: NOT_CONTROLLER, REQUEST_TIMED_OUT, INVALID_REQUEST (unknown type). By partition:
UNKNOWN_TOPIC_OR_PARTITION, ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE,
ELIGIBLE_LEADERS_NOT_AVAILABLE.
"""

from barnabas.protocol.apis import declare
from barnabas.protocol.schema import field, message, since
from barnabas.protocol.types import Array, Int8, Int16, Int32, NullableArray, NullableString, String

PREFERRED, UNCLEAN = 0, 1
"""Types of elections: the first replica if in the ISR; any live one if there is no leader."""


@message
class TopicPartitions:
    """Partitions of one topic."""

    topic: String
    partitions: Array[Int32]


@message
class ElectLeadersRequest:
    """The partitions that need an election, or null for all of the cluster."""

    election_type: Int8 = since(1, default=PREFERRED)
    topic_partitions: NullableArray[TopicPartitions]
    timeout_ms: Int32 = field(default=60000)


@message
class PartitionResult:
    """The result for one partition."""

    partition_id: Int32
    error_code: Int16 = field(default=0)
    error_message: NullableString = field(default=None)


@message
class ReplicaElectionResult:
    """Partitions of one topic."""

    topic: String
    partition_result: Array[PartitionResult]


@message
class ElectLeadersResponse:
    """The results; for a request without partitions, those that needed no election are left out."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = since(1, default=0)
    replica_election_results: Array[ReplicaElectionResult]


API = declare(
    __name__,
    flexible=2,
    request=ElectLeadersRequest,
    response=ElectLeadersResponse,
)
