"""CreateTopics (key 19): creates topics, or checks whether they could be created.

v4 -1 for the broker's defaults (KIP-464); v5 flexible, configs in the response (KIP-525); v6 may
return THROTTLING_QUOTA_EXCEEDED (KIP-599); v7 topic ids (KIP-516).

Errors by topic: INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS,
INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT, INVALID_CONFIG, NOT_CONTROLLER,
REQUEST_TIMED_OUT, POLICY_VIOLATION, INVALID_REQUEST.
"""

from barnabas.protocol.apis import declare
from barnabas.protocol.schema import field, message, since, tagged
from barnabas.protocol.types import (
    ZERO_UUID,
    Array,
    Bool,
    Int8,
    Int16,
    Int32,
    NullableArray,
    NullableString,
    String,
    Uuid,
)


@message
class CreatableReplicaAssignment:
    """The brokers of one partition, the preferred leader first."""

    partition_index: Int32
    broker_ids: Array[Int32]


@message
class CreatableTopicConfig:
    """An override of one config key."""

    name: String
    value: NullableString


@message
class CreatableTopic:
    """A topic; counts of -1 take the broker's defaults, assignments exclude counts."""

    name: String
    num_partitions: Int32
    replication_factor: Int16
    assignments: Array[CreatableReplicaAssignment]
    configs: Array[CreatableTopicConfig]


@message
class CreateTopicsRequest:
    """The request; with `validate_only` nothing is created."""

    topics: Array[CreatableTopic]
    timeout_ms: Int32 = field(default=60000)
    validate_only: Bool = field(default=False)


@message
class CreatableTopicConfigs:
    """One resulting config of the new topic."""

    name: String = since(5, default="")
    value: NullableString = since(5, default="")
    read_only: Bool = since(5, default=False)
    config_source: Int8 = since(5, default=-1, ignorable=True)
    is_sensitive: Bool = since(5, default=False)


@message
class CreatableTopicResult:
    """The new topic; with an error, counts are -1 and configs null."""

    name: String
    topic_id: Uuid = since(7, default=ZERO_UUID, ignorable=True)
    error_code: Int16 = field(default=0)
    error_message: NullableString = field(default=None, ignorable=True)
    topic_config_error_code: Int16 = tagged(0, since=5, default=0, ignorable=True)
    num_partitions: Int32 = since(5, default=-1, ignorable=True)
    replication_factor: Int16 = since(5, default=-1, ignorable=True)
    configs: NullableArray[CreatableTopicConfigs] = since(5, default_factory=list, ignorable=True)


@message
class CreateTopicsResponse:
    """The results: one entry per topic of the request."""

    throttle_time_ms: Int32 = field(default=0, ignorable=True)
    topics: Array[CreatableTopicResult]


API = declare(
    __name__,
    flexible=5,
    request=CreateTopicsRequest,
    response=CreateTopicsResponse,
)
