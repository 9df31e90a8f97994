"""Assembly of the group coordinator and the transaction coordinator."""

from functools import partial
from operator import attrgetter
from typing import NamedTuple

from barnabas.broker import gauges
from barnabas.broker.assembly.control import Control
from barnabas.broker.assembly.core import Core
from barnabas.broker.assembly.replication import Replication
from barnabas.broker.cluster.producer_ids import ProducerIdBlocks
from barnabas.broker.cluster.registration import partition_exists
from barnabas.broker.groups.group_service import GroupService
from barnabas.broker.groups.record_lags import RecordLags
from barnabas.broker.replication.partition import Partition
from barnabas.broker.transactions.transaction_service import TransactionService


class Coordination(NamedTuple):
    """The coordinators, for the partitions of internal topics that this broker leads."""

    groups: GroupService
    record_lags: RecordLags
    producer_ids: ProducerIdBlocks
    transactions: TransactionService


def make_coordination(core: Core, replication: Replication, control: Control) -> Coordination:
    platform, metrics, replicas = core.platform, core.metrics, replication.replicas

    def in_touch() -> bool:
        return core.membership.is_member and control.receiver.has_full_metadata

    def in_sync(partition: Partition) -> bool:
        known = core.cache.partition(partition.topic, partition.index)
        return known is not None and core.broker_id in known.isr

    groups = GroupService(
        core.config,
        cache=core.cache,
        replicas=replicas,
        clock=platform.clock,
        random=platform.random,
        offload=platform.offload,
        slicer=core.slicer,
        in_touch=in_touch,
        settings_of=core.group_configs.settings,
        events=core.events,
    )
    producer_ids = ProducerIdBlocks(core.store, core.broker_id)
    transactions = TransactionService(
        partial(attrgetter("current"), core.dynamic),
        broker_id=core.broker_id,
        cache=core.cache,
        connect=core.peers.to,
        replicas=replicas,
        groups=groups.runtime,
        in_touch=in_touch,
        producer_ids=producer_ids,
        # Each transaction reads both several times: no function of Python in between.
        transaction_version=partial(attrgetter("transaction_version"), core.features),
        partition_exists=lambda *place: partition_exists(core.store, *place),
        clock=platform.transaction_clock or platform.clock,
        offload=platform.offload,
        slicer=core.slicer,
        metrics=metrics.transactions,
        events=core.events,
    )
    record_lags = RecordLags(
        groups, replicas, in_sync, lambda: core.config.group_lag_counted_batches
    )
    gauges.read_groups(metrics.groups, groups, replicas, in_sync, record_lags)
    gauges.read_transactions(metrics.transactions, transactions, replicas)
    return Coordination(groups, record_lags, producer_ids, transactions)
