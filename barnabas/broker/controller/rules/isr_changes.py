"""The rules by which a leader may change its ISR (AlterPartition: KIP-497, KIP-841, KIP-903);
pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from barnabas.broker.cluster.znodes import LeaderAndIsr
from barnabas.broker.controller.rules.cluster_state import ClusterPartition, ClusterState
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.alter_partition import PartitionData

UNKNOWN_EPOCH = -1


class IsrProposal(NamedTuple):
    """An ISR that a broker proposes because it believes to be leader."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    members: Mapping[int, int]
    """Broker epochs by broker id; -1 if the leader does not know the epoch."""

    @classmethod
    def of(cls, leader: int, data: PartitionData) -> "IsrProposal":
        """Return the proposal in a request of either version."""
        members = {each.broker_id: each.broker_epoch for each in data.new_isr_with_epochs}
        members |= dict.fromkeys(data.new_isr, UNKNOWN_EPOCH)
        return cls(leader, data.leader_epoch, data.partition_epoch, members)


def apply_proposal(
    state: ClusterState, partition: ClusterPartition, proposal: IsrProposal
) -> LeaderAndIsr | None:
    """Return the partition's next state, or None if the ISR is already as proposed.

    Raises NOT_CONTROLLER (the leader knows a later state, so another broker is controller),
    FENCED_LEADER_EPOCH, INVALID_REQUEST, INVALID_UPDATE_VERSION, INELIGIBLE_REPLICA.
    """
    now = partition.state
    if now is None:
        raise KafkaError(ErrorCode.NOT_CONTROLLER)
    if proposal.leader_epoch > now.leader_epoch or proposal.partition_epoch > now.partition_epoch:
        raise KafkaError(ErrorCode.NOT_CONTROLLER)
    if proposal.leader_epoch < now.leader_epoch:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
    if proposal.leader != now.leader or proposal.leader not in proposal.members:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if not set(proposal.members) <= set(partition.replicas):
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    isr = _ordered(proposal.members, now.isr)
    if set(isr) == set(now.isr):
        # This may be a retry whose response was lost, so the partition epoch does not matter.
        return None
    if proposal.partition_epoch < now.partition_epoch:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION)
    if not all(_eligible(state, partition, *member) for member in proposal.members.items()):
        raise KafkaError(ErrorCode.INELIGIBLE_REPLICA)
    return replace(now, isr=isr)


def _eligible(state: ClusterState, partition: ClusterPartition, broker_id: int, epoch: int) -> bool:
    """Return whether the replica is online, stays, and is the incarnation that the leader names."""
    broker = state.brokers.get(broker_id)
    return (
        broker is not None
        and epoch in (UNKNOWN_EPOCH, broker.epoch)
        and broker_id not in state.leaving
        and broker_id not in partition.offline
    )


def _ordered(members: Mapping[int, int], before: Sequence[int]) -> tuple[int, ...]:
    """Return members of the ISR in their order, followed by new members."""
    stay = [each for each in before if each in members]
    return (*stay, *(each for each in members if each not in before))
