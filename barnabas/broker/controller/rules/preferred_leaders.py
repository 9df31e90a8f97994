"""Requested elections, and the balance of leaderships; pure.

A partition's preferred leader is its first replica. Placement spreads first replicas over the
brokers, so leaderships are balanced if each preferred replica leads (KIP-183, KIP-460).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from barnabas.broker.cluster.cache import NO_LEADER
from barnabas.broker.cluster.znodes import LeaderAndIsr
from barnabas.broker.controller.rules.cluster_state import ClusterPartition, ClusterState
from barnabas.broker.controller.rules.leader_election import CLEAN_ONLY, ElectionInputs, decide
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.topic_partition import TopicPartition


def elect_preferred(
    replicas: Sequence[int],
    state: LeaderAndIsr | None,
    inputs: ElectionInputs,
    controller_epoch: int,
) -> LeaderAndIsr:
    """Elect the first replica. Raise ELECTION_NOT_NEEDED if it leads already, and
    PREFERRED_LEADER_NOT_AVAILABLE if it is not in sync, offline, or shutting down."""
    preferred = replicas[0]
    if state is not None and state.leader == preferred:
        raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED)
    if state is None or not _can_lead(preferred, state, inputs):
        raise KafkaError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
    return LeaderAndIsr(preferred, state.leader_epoch + 1, state.isr, controller_epoch)


def elect_unclean(
    replicas: Sequence[int],
    state: LeaderAndIsr | None,
    inputs: ElectionInputs,
    controller_epoch: int,
) -> LeaderAndIsr:
    """Elect any online replica, in sync or not: records may be lost. Raise ELECTION_NOT_NEEDED if
    there is a leader, and ELIGIBLE_LEADERS_NOT_AVAILABLE if every replica is offline."""
    if state is not None and state.leader != NO_LEADER:
        raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED)
    at_any_price = inputs._replace(policy=inputs.policy._replace(unclean=True))
    decision = decide(replicas, state, at_any_price, controller_epoch)
    if decision is None or decision.leader == NO_LEADER:
        raise KafkaError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)
    return decision


def out_of_balance(state: ClusterState, percentage: int) -> list[TopicPartition]:
    """Return the partitions to give back to preferred leaders that can take them.

    They belong to brokers that do not lead more than `percentage` of the partitions that prefer
    them. The list is empty during reassignments, which move leaders anyway.
    """
    if state.reassigning:
        return []
    prefer: Mapping[int, list[TopicPartition]] = defaultdict(list)
    for at in state.partitions():
        prefer[state.partition(at).replicas[0]].append(at)
    found = []
    for broker, all_of_them in prefer.items():
        away = [at for at in all_of_them if state.partition(at).leader != broker]
        if len(away) * 100 > percentage * len(all_of_them):
            found += [at for at in away if _can_return(state, state.partition(at))]
    return found


def _can_return(state: ClusterState, partition: ClusterPartition) -> bool:
    if partition.state is None:
        return False
    inputs = state.election_inputs(partition, CLEAN_ONLY)
    return _can_lead(partition.replicas[0], partition.state, inputs)


def _can_lead(broker: int, state: LeaderAndIsr, inputs: ElectionInputs) -> bool:
    return (
        broker in state.isr
        and broker in inputs.online
        and broker not in inputs.missing
        and broker not in inputs.leaving
        and broker not in state.doubtful
    )
