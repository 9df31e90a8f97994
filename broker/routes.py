"""The dispatch table: one row for every file of broker/handlers."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from barnabas.broker.clock import Clock
from barnabas.broker.controller.controller import Controller
from barnabas.broker.controller.receiver import ControlReceiver
from barnabas.broker.controller.replica_admin import ReplicaAdmin
from barnabas.broker.controller.topic_creator import TopicCreator
from barnabas.broker.coordination.transactions import TransactionCoordination
from barnabas.broker.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    allocate_producer_ids,
    alter_configs,
    alter_partition,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    api_versions,
    controlled_shutdown,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    describe_transactions,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leader_and_isr,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    stop_replica,
    sync_group,
    txn_offset_commit,
    update_features,
    update_metadata,
    write_txn_markers,
)
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.metadata.config_admin import ConfigAdmin
from barnabas.broker.metadata.configs import Configs
from barnabas.broker.metadata.features import Features
from barnabas.broker.metadata.producer_ids import ProducerIdBlocks
from barnabas.broker.observability.logging import LoggerLevels
from barnabas.broker.offload import Offload
from barnabas.broker.replication.fetch_lookup import FetchLookup
from barnabas.broker.replication.fetch_session import FetchSessionCache
from barnabas.broker.replication.follower_read import FollowerServices
from barnabas.broker.replication.quota import ReplicationQuotas
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.replication.replica_selector import ReplicaSelector
from barnabas.broker.server.dispatch import Handle, Route
from barnabas.config.broker import BrokerConfig
from barnabas.config.dynamic import DynamicConfig
from barnabas.coordinator.group.coordinator import GroupCoordinator
from barnabas.metrics.catalogue import BrokerMetrics
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.schema import Api
from barnabas.storage.log_manager import LogManager


class HandlerModule(Protocol):
    """What every file of broker/handlers offers beside its handler."""

    API: Api
    SERVES: range

    @property
    def error_response(self) -> Callable[[Any, ErrorCode, int], Any]: ...


class Parts(NamedTuple):
    """The parts of a broker that handlers work with."""

    broker_id: int
    dynamic: DynamicConfig
    configs: Configs
    features: Features
    config_admin: ConfigAdmin
    loggers: LoggerLevels
    cache: MetadataCache
    controller: Controller
    receiver: ControlReceiver
    topic_creator: TopicCreator
    producer_ids: ProducerIdBlocks
    replicas: ReplicaManager
    quotas: ReplicationQuotas
    logs: LogManager
    sessions: FetchSessionCache
    groups: GroupCoordinator
    transactions: TransactionCoordination
    clock: Clock
    offload: Offload
    metrics: BrokerMetrics

    def config(self) -> BrokerConfig:
        """What holds now."""
        return self.dynamic.current


def client_routes(parts: Parts) -> list[Route]:
    """What clients are served; where brokers have no listener for themselves, that is all."""
    rows = _common_routes(parts)
    if parts.config().in_cluster:
        rows = [_for_clients(row) for row in rows]
    return _announced(parts, rows)


def inter_broker_routes(parts: Parts) -> list[Route]:
    """What brokers are served: all that clients are, and what only brokers may say."""
    return _announced(parts, [*_common_routes(parts), *_control_routes(parts)])


def _common_routes(parts: Parts) -> list[Route]:
    return [
        *_data_routes(parts),
        *_topic_routes(parts),
        *_replica_routes(parts),
        *_config_routes(parts),
        *_group_routes(parts),
        *_transaction_routes(parts),
    ]


def _for_clients(row: Route) -> Route:
    """Without the versions by which brokers speak for their clients."""
    if row.api is add_partitions_to_txn.API:
        return row._replace(serves=add_partitions_to_txn.SERVES_CLIENTS)
    return row


def _control_routes(parts: Parts) -> list[Route]:
    """Between a controller and its brokers."""
    controller, receiver = parts.controller, parts.receiver
    allocating = allocate_producer_ids.AllocateProducerIdsHandler(controller, parts.producer_ids)
    stopping = controlled_shutdown.ControlledShutdownHandler(controller)
    return [
        route(leader_and_isr, leader_and_isr.LeaderAndIsrHandler(receiver).handle),
        route(stop_replica, stop_replica.StopReplicaHandler(receiver).handle),
        route(update_metadata, update_metadata.UpdateMetadataHandler(receiver).handle),
        route(controlled_shutdown, stopping.handle),
        route(alter_partition, alter_partition.AlterPartitionHandler(controller).handle),
        route(allocate_producer_ids, allocating.handle),
    ]


def _announced(parts: Parts, rows: list[Route]) -> list[Route]:
    """With ApiVersions, which announces them all, itself included."""
    announcing = api_versions.ApiVersionsHandler(parts.features)
    rows = [route(api_versions, announcing.handle), *rows]
    announcing.announce(rows)
    return rows


def route(module: HandlerModule, handle: Handle) -> Route:
    """The row of a handler that lives in `module`."""
    return Route(module.API, module.SERVES, handle, module.error_response)


def _data_routes(parts: Parts) -> list[Route]:
    replicas, cache = parts.replicas, parts.cache
    lookup = FetchLookup(replicas, cache)
    fetching = fetch.FetchHandler(
        cache,
        parts.sessions,
        parts.clock,
        lookup=lookup,
        selector=ReplicaSelector(
            parts.broker_id, cache, lambda: parts.config().replica_selector_class
        ),
        followers=FollowerServices(lookup, parts.quotas.leader, parts.metrics.replication),
        max_bytes=lambda: parts.config().fetch_max_bytes,
    )
    return [
        route(
            produce, produce.ProduceHandler(replicas, cache, parts.transactions.admission).handle
        ),
        route(fetch, fetching.handle),
        route(list_offsets, list_offsets.ListOffsetsHandler(replicas).handle),
        route(delete_records, delete_records.DeleteRecordsHandler(replicas).handle),
        route(
            offset_for_leader_epoch,
            offset_for_leader_epoch.OffsetForLeaderEpochHandler(replicas).handle,
        ),
        route(
            describe_log_dirs,
            describe_log_dirs.DescribeLogDirsHandler(parts.logs, parts.offload).handle,
        ),
        route(
            alter_replica_log_dirs,
            alter_replica_log_dirs.AlterReplicaLogDirsHandler(replicas).handle,
        ),
    ]


def _topic_routes(parts: Parts) -> list[Route]:
    controller, cache = parts.controller, parts.cache
    telling = metadata.MetadataHandler(
        cache,
        auto_create=lambda: parts.config().auto_create_topics_enable,
        create=parts.topic_creator.create,
    )
    deleting = delete_topics.DeleteTopicsHandler(
        controller, cache, lambda: parts.config().delete_topic_enable
    )
    describing = describe_topic_partitions.DescribeTopicPartitionsHandler(
        cache, lambda: parts.config().max_request_partition_size_limit
    )
    return [
        route(metadata, telling.handle),
        route(create_topics, create_topics.CreateTopicsHandler(controller, parts.dynamic).handle),
        route(delete_topics, deleting.handle),
        route(create_partitions, create_partitions.CreatePartitionsHandler(controller).handle),
        route(describe_cluster, describe_cluster.DescribeClusterHandler(cache).handle),
        route(describe_topic_partitions, describing.handle),
    ]


def _replica_routes(parts: Parts) -> list[Route]:
    admin = ReplicaAdmin(parts.controller)
    altering = alter_partition_reassignments.AlterPartitionReassignmentsHandler(admin)
    listing = list_partition_reassignments.ListPartitionReassignmentsHandler(admin)
    return [
        route(elect_leaders, elect_leaders.ElectLeadersHandler(admin).handle),
        route(alter_partition_reassignments, altering.handle),
        route(list_partition_reassignments, listing.handle),
    ]


def _config_routes(parts: Parts) -> list[Route]:
    admin, configs, cache = parts.config_admin, parts.configs, parts.cache
    describing = describe_configs.DescribeConfigsHandler(
        configs, cache, parts.broker_id, parts.loggers
    )
    listing = list_config_resources.ListConfigResourcesHandler(configs, cache)
    return [
        route(describe_configs, describing.handle),
        route(alter_configs, alter_configs.AlterConfigsHandler(admin).handle),
        route(
            incremental_alter_configs,
            incremental_alter_configs.IncrementalAlterConfigsHandler(admin).handle,
        ),
        route(list_config_resources, listing.handle),
        route(update_features, update_features.UpdateFeaturesHandler(parts.features).handle),
    ]


def _group_routes(parts: Parts) -> list[Route]:
    groups, cache = parts.groups, parts.cache
    finding = find_coordinator.FindCoordinatorHandler(
        groups, parts.transactions.coordinator, cache, parts.topic_creator.ensure_internal_topic
    )
    fetching = offset_fetch.OffsetFetchHandler(
        groups, cache, lambda: parts.config().group_unstable_offsets_block_old_clients
    )
    return [
        route(find_coordinator, finding.handle),
        route(join_group, join_group.JoinGroupHandler(groups).handle),
        route(sync_group, sync_group.SyncGroupHandler(groups).handle),
        route(heartbeat, heartbeat.HeartbeatHandler(groups).handle),
        route(leave_group, leave_group.LeaveGroupHandler(groups).handle),
        route(offset_commit, offset_commit.OffsetCommitHandler(groups, cache).handle),
        route(offset_fetch, fetching.handle),
        route(offset_delete, offset_delete.OffsetDeleteHandler(groups, cache).handle),
        route(describe_groups, describe_groups.DescribeGroupsHandler(groups).handle),
        route(list_groups, list_groups.ListGroupsHandler(groups).handle),
        route(delete_groups, delete_groups.DeleteGroupsHandler(groups).handle),
    ]


def _transaction_routes(parts: Parts) -> list[Route]:
    transactions, groups, cache = parts.transactions.coordinator, parts.groups, parts.cache
    beginning = init_producer_id.InitProducerIdHandler(parts.producer_ids.next_id, transactions)
    adding = add_partitions_to_txn.AddPartitionsToTxnHandler(transactions, groups, cache)
    adding_offsets = add_offsets_to_txn.AddOffsetsToTxnHandler(transactions, groups)
    marking = write_txn_markers.WriteTxnMarkersHandler(parts.transactions.writer)
    describing = describe_transactions.DescribeTransactionsHandler(transactions)
    committing = txn_offset_commit.TxnOffsetCommitHandler(groups, cache, parts.transactions.gate)
    listing = list_transactions.ListTransactionsHandler(transactions, parts.clock)
    return [
        route(init_producer_id, beginning.handle),
        route(add_partitions_to_txn, adding.handle),
        route(add_offsets_to_txn, adding_offsets.handle),
        route(txn_offset_commit, committing.handle),
        route(end_txn, end_txn.EndTxnHandler(transactions).handle),
        route(write_txn_markers, marking.handle),
        route(describe_transactions, describing.handle),
        route(list_transactions, listing.handle),
        route(
            describe_producers, describe_producers.DescribeProducersHandler(parts.replicas).handle
        ),
    ]
