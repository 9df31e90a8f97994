"""Elections that somebody asks for, and when leaderships are out of balance; pure.

A partition's preferred leader is the first of its replicas. Placement spreads those over the
brokers, so leaderships are balanced where each is led by it (KIP-183, KIP-460).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from barnabas.broker.controller.election import CAREFUL, Situation, decide
from barnabas.broker.controller.state import ClusterState, Partition, TopicPartition
from barnabas.broker.metadata.cache import NO_LEADER
from barnabas.broker.metadata.znodes import LeaderAndIsr
from barnabas.protocol.errors import ErrorCode, KafkaError


def elect_preferred(
    replicas: Sequence[int],
    state: LeaderAndIsr | None,
    situation: Situation,
    controller_epoch: int,
) -> LeaderAndIsr:
    """The first replica leads. Raises ELECTION_NOT_NEEDED where it does already, and
    PREFERRED_LEADER_NOT_AVAILABLE where it is not in sync, away, or about to go."""
    preferred = replicas[0]
    if state is not None and state.leader == preferred:
        raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED)
    if state is None or not _can_lead(preferred, state, situation):
        raise KafkaError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
    return LeaderAndIsr(preferred, state.leader_epoch + 1, state.isr, controller_epoch)


def elect_unclean(
    replicas: Sequence[int],
    state: LeaderAndIsr | None,
    situation: Situation,
    controller_epoch: int,
) -> LeaderAndIsr:
    """Somebody leads, in sync or not: records may be lost. Raises ELECTION_NOT_NEEDED where there
    is a leader, and ELIGIBLE_LEADERS_NOT_AVAILABLE where every replica is away."""
    if state is not None and state.leader != NO_LEADER:
        raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED)
    at_any_price = situation._replace(policy=situation.policy._replace(unclean=True))
    decision = decide(replicas, state, at_any_price, controller_epoch)
    if decision is None or decision.leader == NO_LEADER:
        raise KafkaError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)
    return decision


def out_of_balance(state: ClusterState, percentage: int) -> list[TopicPartition]:
    """Partitions to be given back to preferred leaders that can take them.

    Those of brokers that do not lead more than `percentage` of the partitions that prefer them;
    none while partitions are reassigned, which moves leaders anyway.
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


def _can_return(state: ClusterState, partition: Partition) -> bool:
    if partition.state is None:
        return False
    situation = state.situation(partition, CAREFUL)
    return _can_lead(partition.replicas[0], partition.state, situation)


def _can_lead(broker: int, state: LeaderAndIsr, situation: Situation) -> bool:
    return (
        broker in state.isr
        and broker in situation.online
        and broker not in situation.missing
        and broker not in situation.leaving
        and broker not in state.doubtful
    )
