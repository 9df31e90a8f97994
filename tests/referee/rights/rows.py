"""The requests that need rights: one row for each right of each API."""

import dataclasses
from typing import Any

from barnabas.protocol.config_resources import ConfigOperation
from barnabas.protocol.config_resources import ConfigResourceType as ConfigType
from barnabas.protocol.messages import alter_configs as alter
from barnabas.protocol.messages import incremental_alter_configs as incremental
from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from barnabas.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.describe_acls import DescribeAclsRequest
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest
from barnabas.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest
from barnabas.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from barnabas.protocol.messages.describe_producers import DescribeProducersRequest
from barnabas.protocol.messages.describe_producers import TopicRequest as ProducersTopic
from barnabas.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from barnabas.protocol.messages.describe_transactions import DescribeTransactionsRequest
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.protocol.messages.list_config_resources import ListConfigResourcesRequest
from barnabas.protocol.messages.list_groups import ListGroupsRequest
from barnabas.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from barnabas.protocol.messages.list_transactions import ListTransactionsRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from barnabas.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from barnabas.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from barnabas.protocol.schema import fields_of
from barnabas.security.acl.rules import AclOperation as Op
from barnabas.security.acl.rules import ResourceType as Type
from tests.referee import consumers, given
from tests.referee.given import Topic
from tests.referee.rights.cases import Given, Right, Row, owner
from tests.referee.scenarios.alter_user_scram_credentials import (
    SHA_256,
    changes,
    upsertion,
    users,
)
from tests.referee.scenarios.create_delegation_token import creation, description
from tests.support import quotas

READ = Right(Type.TOPIC, Op.READ, Op.WRITE)
WRITE = Right(Type.TOPIC, Op.WRITE, Op.READ)
DESCRIBE = Right(Type.TOPIC, Op.DESCRIBE, Op.DESCRIBE_CONFIGS)
CREATE = Right(Type.TOPIC, Op.CREATE, Op.WRITE)
DELETE = Right(Type.TOPIC, Op.DELETE, Op.DESCRIBE)
ALTER = Right(Type.TOPIC, Op.ALTER, Op.DESCRIBE)
SHOW_CONFIGS = Right(Type.TOPIC, Op.DESCRIBE_CONFIGS, Op.DESCRIBE)
SET_CONFIGS = Right(Type.TOPIC, Op.ALTER_CONFIGS, Op.ALTER)
READ_GROUP = Right(Type.GROUP, Op.READ, Op.DESCRIBE)
DESCRIBE_GROUP = Right(Type.GROUP, Op.DESCRIBE, Op.DESCRIBE_CONFIGS)
DELETE_GROUP = Right(Type.GROUP, Op.DELETE, Op.READ)
SHOW_GROUP_CONFIGS = Right(Type.GROUP, Op.DESCRIBE_CONFIGS, Op.DESCRIBE)
SET_GROUP_CONFIGS = Right(Type.GROUP, Op.ALTER_CONFIGS, Op.READ)
WRITE_ID = Right(Type.TRANSACTIONAL_ID, Op.WRITE, Op.DESCRIBE)
DESCRIBE_ID = Right(Type.TRANSACTIONAL_ID, Op.DESCRIBE, Op.TWO_PHASE_COMMIT)
TWO_PHASE = Right(Type.TRANSACTIONAL_ID, Op.TWO_PHASE_COMMIT, Op.DESCRIBE)
CREATE_ANY = Right(Type.CLUSTER, Op.CREATE, Op.DESCRIBE)
DELETE_ANY = Right(Type.CLUSTER, Op.DELETE, Op.DESCRIBE)
ALTER_CLUSTER = Right(Type.CLUSTER, Op.ALTER, Op.DESCRIBE)
DESCRIBE_CLUSTER = Right(Type.CLUSTER, Op.DESCRIBE, Op.CREATE)
ACT = Right(Type.CLUSTER, Op.CLUSTER_ACTION, Op.ALTER)
IDEMPOTENT = Right(Type.CLUSTER, Op.IDEMPOTENT_WRITE, Op.DESCRIBE)
SHOW_CLUSTER_CONFIGS = Right(Type.CLUSTER, Op.DESCRIBE_CONFIGS, Op.DESCRIBE)
SET_CLUSTER_CONFIGS = Right(Type.CLUSTER, Op.ALTER_CONFIGS, Op.ALTER)

CREATE_TOKENS = Right(Type.USER, Op.CREATE_TOKENS, Op.DESCRIBE_TOKENS)
DESCRIBE_TOKENS = Right(Type.USER, Op.DESCRIBE_TOKENS, Op.CREATE_TOKENS)
DESCRIBE_TOKEN = Right(Type.DELEGATION_TOKEN, Op.DESCRIBE, Op.DESCRIBE_CONFIGS)

BROKER = "1"
TIMEOUT_MS = 10_000


def topic(g: Given) -> Topic:
    return Topic(g.name, g.topic_id)


def metadata(g: Given, **options: Any) -> MetadataRequest:
    options = {"allow_auto_topic_creation": False} | options
    return MetadataRequest(topics=[MetadataRequestTopic(name=g.name)], **options)


def metadata_by_id(g: Given) -> MetadataRequest:
    asked = MetadataRequestTopic(topic_id=g.topic_id, name=None)
    return MetadataRequest(topics=[asked], allow_auto_topic_creation=False)


def all_metadata(_: Given) -> MetadataRequest:
    return MetadataRequest(topics=None, include_topic_authorized_operations=True)


def produce(g: Given) -> Any:
    return given.produce(topic(g), given.batch(b"a"))


def produce_idempotently(g: Given) -> Any:
    return given.produce(
        topic(g), given.batch(b"a", producer_id=9, producer_epoch=0, base_sequence=0)
    )


def produce_in_transaction(g: Given) -> Any:
    written = given.batch(
        b"a", producer_id=g.producer_id, producer_epoch=g.epoch, base_sequence=0, transactional=True
    )
    return given.produce(topic(g), written, transactional_id=g.name)


def fetch_as_follower(g: Given) -> Any:
    return given.fetch(topic(g), replica_id=7)


def create_topic(g: Given) -> CreateTopicsRequest:
    new = CreatableTopic(
        name=g.name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    return CreateTopicsRequest(topics=[new], timeout_ms=TIMEOUT_MS)


def delete_topic(g: Given) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topics=[DeleteTopicState(name=g.name)], timeout_ms=TIMEOUT_MS)


def delete_topic_by_id(g: Given) -> DeleteTopicsRequest:
    asked = DeleteTopicState(topic_id=g.topic_id)
    return DeleteTopicsRequest(topics=[asked], timeout_ms=TIMEOUT_MS)


def delete_topic_of_old(g: Given) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topic_names=[g.name], timeout_ms=TIMEOUT_MS)


def create_partitions(g: Given) -> CreatePartitionsRequest:
    more = CreatePartitionsTopic(name=g.name, count=2, assignments=None)
    return CreatePartitionsRequest(topics=[more], timeout_ms=TIMEOUT_MS, validate_only=False)


def end_offset(g: Given) -> OffsetForLeaderEpochRequest:
    wanted = OffsetForLeaderTopic(
        topic=g.name, partitions=[OffsetForLeaderPartition(partition=0, leader_epoch=0)]
    )
    return OffsetForLeaderEpochRequest(topics=[wanted], replica_id=-1)


def describe_log_dirs(g: Given) -> DescribeLogDirsRequest:
    return DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic=g.name, partitions=[0])])


def alter_log_dirs(g: Given) -> AlterReplicaLogDirsRequest:
    moved = AlterReplicaLogDirTopic(name=g.name, partitions=[0])
    return AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path="/nowhere", topics=[moved])])


def describe_partitions(g: Given) -> DescribeTopicPartitionsRequest:
    return DescribeTopicPartitionsRequest(topics=[TopicRequest(name=g.name)])


def describe_all_partitions(_: Given) -> DescribeTopicPartitionsRequest:
    return DescribeTopicPartitionsRequest(topics=[])


def elect(g: Given) -> ElectLeadersRequest:
    wanted = TopicPartitions(topic=g.name, partitions=[0])
    return ElectLeadersRequest(topic_partitions=[wanted], timeout_ms=TIMEOUT_MS)


def reassign(g: Given) -> AlterPartitionReassignmentsRequest:
    wanted = ReassignableTopic(
        name=g.name, partitions=[ReassignablePartition(partition_index=0, replicas=None)]
    )
    return AlterPartitionReassignmentsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS)


def reassign_within_the_factor(g: Given) -> AlterPartitionReassignmentsRequest:
    request = reassign(g)
    request.allow_replication_factor_change = False
    return request


def list_reassignments(g: Given) -> ListPartitionReassignmentsRequest:
    wanted = ListPartitionReassignmentsTopics(name=g.name, partition_indexes=[0])
    return ListPartitionReassignmentsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS)


def describe_configs(kind: ConfigType, name: str, key: str | None) -> DescribeConfigsRequest:
    keys = None if key is None else [key]
    asked = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    return DescribeConfigsRequest(resources=[asked])


def alter_configs(kind: ConfigType, name: str, key: str, value: str) -> alter.AlterConfigsRequest:
    changed = alter.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[alter.AlterableConfig(name=key, value=value)],
    )
    return alter.AlterConfigsRequest(resources=[changed], validate_only=False)


def change_configs(
    kind: ConfigType, name: str, key: str, value: str
) -> incremental.IncrementalAlterConfigsRequest:
    changed = incremental.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            incremental.AlterableConfig(name=key, config_operation=ConfigOperation.SET, value=value)
        ],
    )
    return incremental.IncrementalAlterConfigsRequest(resources=[changed], validate_only=False)


def list_resources(*types: int) -> ListConfigResourcesRequest:
    return ListConfigResourcesRequest(resource_types=list(types))


def update_features(_: Given) -> UpdateFeaturesRequest:
    change = FeatureUpdateKey(feature="transaction.version", max_version_level=1)
    return UpdateFeaturesRequest(feature_updates=[change], validate_only=True)


def update_features_of_old(_: Given) -> UpdateFeaturesRequest:
    change = FeatureUpdateKey(feature="no.such.feature", max_version_level=1)
    return UpdateFeaturesRequest(feature_updates=[change])


def heartbeat(g: Given) -> HeartbeatRequest:
    return HeartbeatRequest(group_id=g.name, generation_id=1, member_id="m")


def leave(g: Given) -> LeaveGroupRequest:
    return LeaveGroupRequest(group_id=g.name, members=[MemberIdentity(member_id="m")])


def delete_offset(g: Given) -> OffsetDeleteRequest:
    deleted = OffsetDeleteRequestTopic(
        name=g.name, partitions=[OffsetDeleteRequestPartition(partition_index=0)]
    )
    return OffsetDeleteRequest(group_id=g.name, topics=[deleted])


def init(id: str | None, **options: Any) -> InitProducerIdRequest:
    return InitProducerIdRequest(transactional_id=id, transaction_timeout_ms=60_000, **options)


def add_partitions(g: Given) -> AddPartitionsToTxnRequest:
    (named,) = _part(g).topics
    of_client = {f"v3_and_below_{key}": value for key, value in _who(g).items()}
    return AddPartitionsToTxnRequest(**of_client, v3_and_below_topics=[named])


def verify_partitions(g: Given) -> AddPartitionsToTxnRequest:
    part = _part(g)
    part.verify_only = True
    return AddPartitionsToTxnRequest(transactions=[part])


def _part(g: Given) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        **_who(g), topics=[AddPartitionsToTxnTopic(name=g.name, partitions=[0])]
    )


def _who(g: Given) -> dict[str, Any]:
    return {"transactional_id": g.name, "producer_id": g.producer_id, "producer_epoch": g.epoch}


def add_offsets(g: Given) -> AddOffsetsToTxnRequest:
    return AddOffsetsToTxnRequest(**_who(g), group_id=g.name)


def commit_in_transaction(g: Given) -> TxnOffsetCommitRequest:
    offset = TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=0, committed_metadata=""
    )
    topics = [TxnOffsetCommitRequestTopic(name=g.name, partitions=[offset])]
    return TxnOffsetCommitRequest(**_who(g), group_id=g.name, topics=topics)


def end(g: Given) -> EndTxnRequest:
    return EndTxnRequest(**_who(g), committed=True)


def mark(g: Given) -> WriteTxnMarkersRequest:
    marker = WritableTxnMarker(
        producer_id=g.producer_id,
        producer_epoch=g.epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=g.name, partition_indexes=[0])],
        coordinator_epoch=0,
    )
    return WriteTxnMarkersRequest(markers=[marker])


def describe_producers(g: Given) -> DescribeProducersRequest:
    return DescribeProducersRequest(topics=[ProducersTopic(name=g.name, partition_indexes=[0])])


def list_transactions(_: Given) -> ListTransactionsRequest:
    return ListTransactionsRequest(state_filters=[], producer_id_filters=[])


def describe_acls(g: Given) -> DescribeAclsRequest:
    return DescribeAclsRequest(
        resource_type_filter=Type.TOPIC,
        resource_name_filter=g.name,
        pattern_type_filter=3,
        principal_filter="User:stranger",
        host_filter=None,
        operation=Op.ANY,
        permission_type=1,
    )


def create_acl(g: Given) -> CreateAclsRequest:
    rule = AclCreation(
        resource_type=Type.TOPIC,
        resource_name=g.name,
        principal="User:stranger",
        host="*",
        operation=Op.READ,
        permission_type=3,
    )
    return CreateAclsRequest(creations=[rule])


def delete_acl(g: Given) -> DeleteAclsRequest:
    selected = DeleteAclsFilter(
        resource_type_filter=Type.TOPIC,
        resource_name_filter=g.name,
        principal_filter="User:no one",
        host_filter=None,
        operation=Op.ANY,
        permission_type=1,
    )
    return DeleteAclsRequest(filters=[selected])


def without_chance(answer: Any, _name: str) -> None:
    """Take out of an answer what is drawn at random, and the times."""
    for token in getattr(answer, "tokens", [answer]):
        for spec in fields_of(type(token)):
            if "timestamp" in spec.name or spec.name in ("token_id", "hmac"):
                setattr(token, spec.name, bool(getattr(token, spec.name)))


def only(field: str, key: str) -> Any:
    """Return the function that keeps the entries of a case in a list of the answer."""

    def pick(answer: Any, name: str) -> None:
        mine = [entry for entry in getattr(answer, field) if getattr(entry, key) == name]
        setattr(answer, field, mine)

    return pick


_TOPIC, _BROKER, _GROUP, _LOGGER = (
    ConfigType.TOPIC,
    ConfigType.BROKER,
    ConfigType.GROUP,
    ConfigType.BROKER_LOGGER,
)
_KEY, _VALUE = "retention.ms", "1000000"

_SINGLE = (
    Row("produce", 12, WRITE, produce, "t"),
    Row("produce by id", 13, WRITE, produce, "t"),
    Row("produce idempotent", 12, WRITE, produce_idempotently, "t"),
    Row("produce transactional", 11, WRITE_ID, produce_in_transaction, "txo", (WRITE,)),
    Row("produce transactional topic", 11, WRITE, produce_in_transaction, "txo", (WRITE_ID,)),
    Row("fetch", 12, READ, lambda g: given.fetch(topic(g)), "t"),
    Row("fetch by id", 17, READ, lambda g: given.fetch(topic(g)), "t"),
    Row("fetch oldest", 4, READ, lambda g: given.fetch(topic(g)), "t"),
    Row("fetch follower", 12, ACT, fetch_as_follower, "t"),
    Row("list offsets", 9, DESCRIBE, lambda g: given.list_offsets(g.name, (0, -1)), "t"),
    Row(
        "list offsets by reader",
        1,
        READ,
        lambda g: given.list_offsets(g.name, (0, -1)),
        "t",
        apart=("deny", "wrong-operation"),
    ),
    Row("metadata", 9, DESCRIBE, metadata, "t"),
    Row(
        "metadata oldest",
        1,
        DESCRIBE,
        lambda g: metadata(g, allow_auto_topic_creation=True),
        "t",
    ),
    Row("metadata of missing", 9, DESCRIBE, metadata),
    Row("metadata by id", 12, DESCRIBE, metadata_by_id, "t"),
    Row(
        "metadata all",
        12,
        DESCRIBE,
        all_metadata,
        "t",
        pick=only("topics", "name"),
        apart=("any-operation",),
    ),
    Row(
        "metadata creates by cluster",
        9,
        CREATE_ANY,
        lambda g: metadata(g, allow_auto_topic_creation=True),
        also=(DESCRIBE,),
    ),
    Row(
        "metadata creates by topic",
        9,
        CREATE,
        lambda g: metadata(g, allow_auto_topic_creation=True),
        also=(DESCRIBE,),
    ),
    Row(
        "metadata operations",
        9,
        ALTER,
        lambda g: metadata(g, include_topic_authorized_operations=True),
        "t",
        apart=("any-operation", "deny", "wrong-operation"),
    ),
    Row(
        "metadata cluster operations",
        9,
        DESCRIBE_CLUSTER,
        lambda g: metadata(g, include_cluster_authorized_operations=True),
        "t",
        apart=("any-operation",),
    ),
    Row("commit group", 9, READ_GROUP, lambda g: given.commit(g.name, topic(g), 1), "t", (READ,)),
    Row("commit topic", 9, READ, lambda g: given.commit(g.name, topic(g), 1), "t", (READ_GROUP,)),
    Row("commit by id", 10, READ, lambda g: given.commit(g.name, topic(g), 1), "t", (READ_GROUP,)),
    Row(
        "offsets group",
        9,
        DESCRIBE_GROUP,
        lambda g: given.offset_fetch(9, g.name, (topic(g), [0])),
        "tg",
        (DESCRIBE,),
    ),
    Row(
        "offsets group of one",
        7,
        DESCRIBE_GROUP,
        lambda g: given.offset_fetch(7, g.name, (topic(g), [0])),
        "tg",
        (DESCRIBE,),
    ),
    Row(
        "offsets topic",
        9,
        DESCRIBE,
        lambda g: given.offset_fetch(9, g.name, (topic(g), [0])),
        "tg",
        (DESCRIBE_GROUP,),
    ),
    Row(
        "offsets by id",
        10,
        DESCRIBE,
        lambda g: given.offset_fetch(10, g.name, (topic(g), [0])),
        "tg",
        (DESCRIBE_GROUP,),
    ),
    Row(
        "offsets all",
        9,
        DESCRIBE,
        lambda g: given.offset_fetch(9, g.name, None),
        "tg",
        (DESCRIBE_GROUP,),
    ),
    Row(
        "coordinator",
        6,
        DESCRIBE_GROUP,
        lambda g: FindCoordinatorRequest(coordinator_keys=[g.name]),
    ),
    Row("coordinator oldest", 0, DESCRIBE_GROUP, lambda g: FindCoordinatorRequest(key=g.name)),
    Row(
        "coordinator transaction",
        4,
        DESCRIBE_ID,
        lambda g: FindCoordinatorRequest(coordinator_keys=[g.name], key_type=1),
    ),
    Row("join", 9, READ_GROUP, lambda g: given.join(g.name)),
    Row("sync", 5, READ_GROUP, lambda g: given.sync(g.name, 1, "m")),
    Row("heartbeat", 4, READ_GROUP, heartbeat),
    Row("leave", 5, READ_GROUP, leave),
    Row(
        "leave oldest",
        0,
        READ_GROUP,
        lambda g: LeaveGroupRequest(group_id=g.name, member_id="m"),
    ),
    Row(
        "describe group oldest",
        0,
        DESCRIBE_GROUP,
        lambda g: DescribeGroupsRequest(groups=[g.name]),
        "tg",
    ),
    Row(
        "describe group",
        6,
        DESCRIBE_GROUP,
        lambda g: DescribeGroupsRequest(groups=[g.name], include_authorized_operations=True),
        "tg",
        apart=("any-operation",),
    ),
    Row(
        "describe group by reader",
        5,
        READ_GROUP,
        lambda g: DescribeGroupsRequest(groups=[g.name], include_authorized_operations=True),
        "tg",
        apart=("any-operation", "deny", "wrong-operation"),
    ),
    Row(
        "consumer heartbeat",
        1,
        READ_GROUP,
        lambda g: consumers.join(g.name, "m"),
    ),
    Row(
        "consumer heartbeat with topics",
        1,
        DESCRIBE,
        lambda g: consumers.join(g.name, "m", g.name),
        also=(READ_GROUP,),
    ),
    Row(
        "describe consumers",
        1,
        DESCRIBE_GROUP,
        lambda g: consumers.describe(g.name),
        "tg",
    ),
    Row(
        "list groups",
        5,
        DESCRIBE_GROUP,
        lambda _: ListGroupsRequest(),
        "tg",
        pick=only("groups", "group_id"),
    ),
    Row(
        "list groups by cluster",
        5,
        DESCRIBE_CLUSTER,
        lambda _: ListGroupsRequest(),
        "tg",
        pick=only("groups", "group_id"),
    ),
    Row(
        "delete group",
        2,
        DELETE_GROUP,
        lambda g: DeleteGroupsRequest(groups_names=[g.name]),
        "tg",
    ),
    Row("delete offset group", 0, DELETE_GROUP, delete_offset, "tg", (READ,)),
    Row("delete offset topic", 0, READ, delete_offset, "tg", (DELETE_GROUP,)),
    Row("create topic by cluster", 7, CREATE_ANY, create_topic),
    Row("create topic", 7, CREATE, create_topic, apart=("any-operation",)),
    Row("create topic shows configs", 7, SHOW_CONFIGS, create_topic, also=(CREATE,)),
    Row("delete topic", 6, DELETE, delete_topic, "t"),
    Row("delete topic described", 6, DELETE, delete_topic, "t", (DESCRIBE,)),
    Row(
        "delete topic by id", 6, DELETE, delete_topic_by_id, "t", apart=("deny", "wrong-operation")
    ),
    Row("delete topic by id described", 6, DELETE, delete_topic_by_id, "t", (DESCRIBE,)),
    Row(
        "delete topic by hidden id",
        6,
        DESCRIBE,
        delete_topic_by_id,
        "t",
        apart=("any-operation", "deny"),
    ),
    Row("delete topic by cluster", 6, DELETE_ANY, delete_topic, "t"),
    Row("delete topic by id by cluster", 6, DELETE_ANY, delete_topic_by_id, "t"),
    Row("delete topic oldest", 1, DELETE, delete_topic_of_old, "t"),
    Row("delete missing topic", 6, DELETE, delete_topic, apart=("deny", "wrong-operation")),
    Row("create partitions", 3, ALTER, create_partitions, "t"),
    Row("delete records", 2, DELETE, lambda g: given.delete_records(topic(g), 0), "t"),
    Row("epoch end", 4, DESCRIBE, end_offset, "t"),
    Row("epoch end by broker", 4, ACT, end_offset, "t"),
    Row("log dirs", 4, DESCRIBE_CLUSTER, describe_log_dirs, "t"),
    Row("alter log dirs", 2, ALTER_CLUSTER, alter_log_dirs, "t"),
    Row("describe partitions", 0, DESCRIBE, describe_partitions, "t", apart=("any-operation",)),
    Row(
        "describe all partitions",
        0,
        DESCRIBE,
        describe_all_partitions,
        "t",
        pick=only("topics", "name"),
        apart=("any-operation",),
    ),
    Row("elect", 2, ALTER_CLUSTER, elect, "t"),
    Row("reassign", 1, ALTER_CLUSTER, reassign, "t"),
    Row("reassign within the factor", 1, ALTER_CLUSTER, reassign_within_the_factor, "t"),
    Row("list reassignments", 0, DESCRIBE_CLUSTER, list_reassignments, "t"),
    Row(
        "cluster operations",
        1,
        DESCRIBE_CLUSTER,
        lambda _: DescribeClusterRequest(include_cluster_authorized_operations=True),
        apart=("any-operation",),
    ),
    Row(
        "cluster operations altered",
        1,
        ALTER_CLUSTER,
        lambda _: DescribeClusterRequest(include_cluster_authorized_operations=True),
        apart=("any-operation", "deny", "wrong-operation"),
    ),
    Row(
        "topic configs",
        4,
        SHOW_CONFIGS,
        lambda g: describe_configs(_TOPIC, g.name, _KEY),
        "t",
    ),
    Row(
        "broker configs",
        4,
        SHOW_CLUSTER_CONFIGS,
        lambda _: describe_configs(_BROKER, BROKER, "log.retention.ms"),
    ),
    Row(
        "logger configs",
        4,
        SHOW_CLUSTER_CONFIGS,
        lambda _: describe_configs(_LOGGER, BROKER, "kafka.no.logger"),
    ),
    Row(
        "group configs",
        4,
        SHOW_GROUP_CONFIGS,
        lambda g: describe_configs(_GROUP, g.name, "no.such.key"),
    ),
    Row(
        "alter topic configs",
        2,
        SET_CONFIGS,
        lambda g: alter_configs(_TOPIC, g.name, _KEY, _VALUE),
        "t",
    ),
    Row(
        "alter broker configs",
        2,
        SET_CLUSTER_CONFIGS,
        lambda _: alter_configs(_BROKER, BROKER, "log.retention.ms", _VALUE),
    ),
    Row(
        "alter group configs",
        2,
        SET_GROUP_CONFIGS,
        lambda g: alter_configs(_GROUP, g.name, "no.such.key", "1"),
    ),
    Row(
        "change topic configs",
        1,
        SET_CONFIGS,
        lambda g: change_configs(_TOPIC, g.name, _KEY, _VALUE),
        "t",
    ),
    Row(
        "change broker configs",
        1,
        SET_CLUSTER_CONFIGS,
        lambda _: change_configs(_BROKER, BROKER, "log.retention.ms", _VALUE),
    ),
    Row(
        "change group configs",
        1,
        SET_GROUP_CONFIGS,
        lambda g: change_configs(_GROUP, g.name, "no.such.key", "1"),
    ),
    Row(
        "config resources",
        1,
        SHOW_CLUSTER_CONFIGS,
        lambda _: list_resources(ConfigType.BROKER),
    ),
    Row("config resources oldest", 0, SHOW_CLUSTER_CONFIGS, lambda _: list_resources()),
    Row("features", 1, ALTER_CLUSTER, update_features),
    Row("features oldest", 0, ALTER_CLUSTER, update_features_of_old),
    Row("init id", 4, WRITE_ID, lambda g: init(g.name)),
    Row(
        "init two phase",
        6,
        TWO_PHASE,
        lambda g: init(g.name, enable_two_phase_commit=True),
        also=(WRITE_ID,),
    ),
    Row("init by cluster", 4, IDEMPOTENT, lambda _: init(None)),
    Row("init by any topic", 4, WRITE, lambda _: init(None), apart=("wrong-resource",)),
    Row("add partitions id", 3, WRITE_ID, add_partitions, "tx", (WRITE,)),
    Row("add partitions topic", 3, WRITE, add_partitions, "tx", (WRITE_ID,)),
    Row("verify partitions", 4, ACT, verify_partitions, "txo", (WRITE, WRITE_ID)),
    Row("add offsets id", 3, WRITE_ID, add_offsets, "x", (READ_GROUP,)),
    Row("add offsets group", 3, READ_GROUP, add_offsets, "x", (WRITE_ID,)),
    Row("txn commit id", 3, WRITE_ID, commit_in_transaction, "tx", (READ_GROUP, READ)),
    Row("txn commit group", 3, READ_GROUP, commit_in_transaction, "tx", (WRITE_ID, READ)),
    Row("txn commit topic", 3, READ, commit_in_transaction, "tx", (WRITE_ID, READ_GROUP)),
    Row("end", 3, WRITE_ID, end, "txo"),
    Row("mark by altering", 1, ALTER_CLUSTER, mark, "tx", apart=("deny",)),
    Row("mark by broker", 1, ACT, mark, "tx", apart=("deny", "wrong-operation")),
    Row("describe producers", 0, READ, describe_producers, "t"),
    Row(
        "describe transaction",
        0,
        DESCRIBE_ID,
        lambda g: DescribeTransactionsRequest(transactional_ids=[g.name]),
        "txo",
        (DESCRIBE,),
    ),
    Row(
        "describe transaction topic",
        0,
        DESCRIBE,
        lambda g: DescribeTransactionsRequest(transactional_ids=[g.name]),
        "txo",
        (DESCRIBE_ID,),
    ),
    Row(
        "list transactions",
        1,
        DESCRIBE_ID,
        list_transactions,
        "tx",
        pick=only("transaction_states", "transactional_id"),
    ),
    Row(
        "create token",
        3,
        CREATE_TOKENS,
        lambda g: creation(owner=owner(g.name)),
        pick=without_chance,
    ),
    Row(
        "describe tokens",
        3,
        DESCRIBE_TOKENS,
        lambda g: description(owner(g.name)),
        "d",
        pick=without_chance,
    ),
    Row(
        "describe token",
        3,
        DESCRIBE_TOKEN,
        lambda g: description(owner(g.name)),
        "d",
        pick=without_chance,
    ),
    Row("describe acls", 3, DESCRIBE_CLUSTER, describe_acls),
    Row("create acl", 3, ALTER_CLUSTER, create_acl),
    Row("delete acl", 3, ALTER_CLUSTER, delete_acl),
    Row(
        "describe quotas",
        1,
        SHOW_CLUSTER_CONFIGS,
        lambda g: quotas.filtered(quotas.exactly("user", g.name)),
    ),
    Row(
        "alter quotas",
        1,
        SET_CLUSTER_CONFIGS,
        lambda g: quotas.change(quotas.entity(user=g.name), ("producer_byte_rate", 1e9)),
    ),
    Row("describe users", 0, DESCRIBE_CLUSTER, lambda g: users(g.name)),
    Row("create user", 0, ALTER_CLUSTER, lambda g: changes(upsertion(g.name))),
    Row(
        "delete user",
        0,
        ALTER_CLUSTER,
        lambda g: changes(delete=[(g.name, SHA_256)]),
    ),
)


def with_another(row: Row) -> Row:
    """Return the row with a request that names a second subject, to which the client has rights."""

    def request(g: Given) -> Any:
        assert g.other is not None
        first, second = row.request(g), row.request(g.other)
        for spec in fields_of(type(first)):
            listed = getattr(first, spec.name)
            if isinstance(listed, list):
                setattr(first, spec.name, [*listed, *getattr(second, spec.name)])
        return first

    title, rights = f"{row.title} and another", (row.right, *row.also)
    return dataclasses.replace(row, title=title, request=request, other=rights)


_WITH_ANOTHER = {
    *("produce", "produce by id", "fetch", "fetch by id"),
    *("list offsets", "metadata", "metadata by id", "commit topic", "commit by id"),
    *("offsets group", "coordinator", "coordinator transaction", "describe group"),
    *("delete group", "delete offset topic", "create topic", "delete topic"),
    *("delete topic by id", "create partitions", "delete records", "epoch end"),
    *("describe partitions", "topic configs", "alter topic configs", "change topic configs"),
    *("add partitions topic", "txn commit topic", "describe producers", "describe transaction"),
}
ROWS = (*_SINGLE, *(with_another(row) for row in _SINGLE if row.title in _WITH_ANOTHER))
