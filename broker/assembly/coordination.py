"""The coordinators of groups and of transactions."""

from typing import NamedTuple

from barnabas.broker import gauges
from barnabas.broker.assembly.control import Control
from barnabas.broker.assembly.core import Core
from barnabas.broker.assembly.replication import Replication
from barnabas.broker.coordination.groups import GroupCoordination
from barnabas.broker.coordination.transactions import TransactionCoordination
from barnabas.broker.metadata.cluster import partition_exists
from barnabas.broker.metadata.producer_ids import ProducerIdBlocks
from barnabas.broker.replication.partition import Partition


class Coordination(NamedTuple):
    """What serves the partitions of the internal topics that this broker leads."""

    groups: GroupCoordination
    producer_ids: ProducerIdBlocks
    transactions: TransactionCoordination


def make_coordination(core: Core, replication: Replication, control: Control) -> Coordination:
    doors, metrics, replicas = core.doors, core.metrics, replication.replicas

    def in_touch() -> bool:
        return core.membership.is_member and control.receiver.is_told

    def in_sync(partition: Partition) -> bool:
        known = core.cache.partition(partition.topic, partition.index)
        return known is not None and core.broker_id in known.isr

    groups = GroupCoordination(
        core.config,
        cache=core.cache,
        replicas=replicas,
        clock=doors.clock,
        random=doors.random,
        offload=doors.offload,
        in_touch=in_touch,
    )
    producer_ids = ProducerIdBlocks(core.store, core.broker_id)
    transactions = TransactionCoordination(
        lambda: core.config,
        broker_id=core.broker_id,
        cache=core.cache,
        connect=core.peers.to,
        replicas=replicas,
        groups=groups.runtime,
        in_touch=in_touch,
        producer_ids=producer_ids,
        transaction_version=lambda: core.features.transaction_version,
        partition_exists=lambda *place: partition_exists(core.store, *place),
        clock=doors.transaction_clock or doors.clock,
        offload=doors.offload,
        metrics=metrics.transactions,
    )
    gauges.read_groups(metrics.groups, groups, replicas, in_sync)
    gauges.read_transactions(metrics.transactions, transactions, replicas)
    return Coordination(groups, producer_ids, transactions)
