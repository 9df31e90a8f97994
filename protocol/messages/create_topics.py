"""CreateTopics (key 19)."""

from barnabas.protocol.schema import Api, field, message, since, tagged
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
    partition_index: Int32
    broker_ids: Array[Int32]


@message
class CreatableTopicConfig:
    name: String
    value: NullableString


@message
class CreatableTopic:
    name: String
    num_partitions: Int32
    replication_factor: Int16
    assignments: Array[CreatableReplicaAssignment]
    configs: Array[CreatableTopicConfig]


@message
class CreateTopicsRequest:
    topics: Array[CreatableTopic]
    timeout_ms: Int32 = field(default=60000)
    validate_only: Bool = field(default=False)


@message
class CreatableTopicConfigs:
    name: String = since(5, default="")
    value: NullableString = since(5, default="")
    read_only: Bool = since(5, default=False)
    config_source: Int8 = since(5, default=-1, ignorable=True)
    is_sensitive: Bool = since(5, default=False)


@message
class CreatableTopicResult:
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
    throttle_time_ms: Int32 = field(default=0, ignorable=True)
    topics: Array[CreatableTopicResult]


API = Api(
    key=19,
    name="CreateTopics",
    versions=range(2, 8),
    flexible=5,
    request=CreateTopicsRequest,
    response=CreateTopicsResponse,
)
