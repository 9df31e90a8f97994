"""AlterPartitionReassignments (key 45): begins or cancels reassignments of partitions (KIP-455).

v1 can demand that the number of replicas stays the same (KIP-860).

Errors: NOT_CONTROLLER, REQUEST_TIMED_OUT. By partition: UNKNOWN_TOPIC_OR_PARTITION,
INVALID_REPLICA_ASSIGNMENT, INVALID_REPLICATION_FACTOR, NO_REASSIGNMENT_IN_PROGRESS.
"""

from barnabas.protocol.apis import declare
from barnabas.protocol.schema import field, message, since
from barnabas.protocol.types import (
    Array,
    Bool,
    Int16,
    Int32,
    NullableArray,
    NullableString,
    String,
)


@message
class ReassignablePartition:
    """The brokers that the partition will have, the preferred leader first; null cancels."""

    partition_index: Int32
    replicas: NullableArray[Int32] = field(default=None)


@message
class ReassignableTopic:
    """Partitions of one topic."""

    name: String
    partitions: Array[ReassignablePartition]


@message
class AlterPartitionReassignmentsRequest:
    """The request is answered when the reassignments have begun, not when they are complete."""

    timeout_ms: Int32 = field(default=60000)
    allow_replication_factor_change: Bool = since(1, default=True)
    topics: Array[ReassignableTopic]


@message
class ReassignablePartitionResponse:
    """The result for one partition."""

    partition_index: Int32
    error_code: Int16 = field(default=0)
    error_message: NullableString = field(default=None)


@message
class ReassignableTopicResponse:
    """Partitions of one topic."""

    name: String
    partitions: Array[ReassignablePartitionResponse]


@message
class AlterPartitionReassignmentsResponse:
    """The results: one entry per partition of the request."""

    throttle_time_ms: Int32 = field(default=0)
    allow_replication_factor_change: Bool = since(1, default=True, ignorable=True)
    error_code: Int16 = field(default=0)
    error_message: NullableString = field(default=None)
    responses: Array[ReassignableTopicResponse]


API = declare(
    __name__,
    flexible=0,
    request=AlterPartitionReassignmentsRequest,
    response=AlterPartitionReassignmentsResponse,
)
