"""The rules of elections, placements and new topics, without a controller."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.cluster.new_topics import NewTopic
from barnabas.broker.cluster.znodes import BrokerEndpoint, BrokerInfo, LeaderAndIsr, Restart
from barnabas.broker.controller.rules.cluster_state import (
    ClusterPartition,
    ClusterState,
    ClusterTopic,
)
from barnabas.broker.controller.rules.leader_election import ElectionInputs, ElectionPolicy, decide
from barnabas.broker.controller.rules.new_topics import assign_partitions, assign_topic
from barnabas.protocol.errors import ErrorCode, KafkaError
from tests.support.steps import all_taken

brokers = st.integers(1, 6)
replica_lists = st.lists(brokers, min_size=1, max_size=4, unique=True)
online_sets = st.sets(brokers)


@st.composite
def partitions(draw: st.DrawFn) -> tuple[list[int], LeaderAndIsr | None]:
    replicas = draw(replica_lists)
    if draw(st.booleans()):
        return replicas, None
    isr = draw(st.lists(st.sampled_from(replicas), min_size=1, unique=True))
    leader = draw(st.sampled_from([*isr, -1]))
    return replicas, LeaderAndIsr(leader, draw(st.integers(0, 9)), tuple(isr), 1)


def choose(
    replicas: list[int],
    state: LeaderAndIsr | None,
    online: set[int],
    *,
    unclean: bool = False,
    restarted: bool = False,
) -> LeaderAndIsr | None:
    again = {state.leader: Restart.CLEAN} if restarted and state is not None else {}
    return decide(replicas, state, ElectionInputs(online, (), again, ElectionPolicy(unclean)), 7)


@given(partitions(), online_sets, st.booleans(), st.booleans())
def test_election_keeps_its_invariants(
    partition: tuple[list[int], LeaderAndIsr | None],
    online: set[int],
    unclean: bool,
    restarted: bool,
) -> None:
    replicas, state = partition
    decision = choose(replicas, state, online, unclean=unclean, restarted=restarted)
    if decision is None:
        return
    assert decision.controller_epoch == 7
    assert decision.isr
    assert set(decision.isr) <= set(replicas)
    assert decision.leader == -1 or decision.leader in decision.isr
    assert decision.leader == -1 or set(decision.isr) <= online
    if state is None:
        assert decision.leader_epoch == 0
        return
    same = decision.leader == state.leader and not restarted
    assert decision.leader_epoch == state.leader_epoch + (not same)
    if not unclean:
        # A clean election adds no out-of-sync replica, and keeps the last ISR.
        assert set(decision.isr) <= set(state.isr)
        assert decision.leader != -1 or decision.isr == state.isr
    # A second decision changes nothing.
    assert choose(replicas, decision, online, unclean=unclean) is None


@given(partitions(), online_sets)
def test_leader_is_found_whenever_an_in_sync_replica_is_online(
    partition: tuple[list[int], LeaderAndIsr | None], online: set[int]
) -> None:
    replicas, state = partition
    after = choose(replicas, state, online) or state
    able = set(replicas if state is None else state.isr) & online
    assert (after is not None and after.leader in able) == bool(able)


def test_restarted_leader_gets_a_new_epoch() -> None:
    state = LeaderAndIsr(1, 4, (2, 1), 1)
    assert choose([1, 2], state, {1, 2}) is None
    assert choose([1, 2], state, {1, 2}, restarted=True) == LeaderAndIsr(1, 5, (2, 1), 7)


def cluster(*ids: int) -> ClusterState:
    endpoint = BrokerEndpoint("PLAINTEXT", "PLAINTEXT", "h", 9092)
    return ClusterState({each: BrokerInfo(each, (endpoint,)) for each in ids})


def assign(new: NewTopic, state: ClusterState) -> dict[int, tuple[int, ...]]:
    steps = assign_topic(new, state, Random(1), default_partitions=3, default_replication_factor=2)
    assigned: dict[int, tuple[int, ...]] = all_taken(steps)
    return assigned


def refusal(state: ClusterState, new: NewTopic) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        assign(new, state)
    return caught.value.code


def test_defaults_replace_counts_of_minus_one() -> None:
    assigned = assign(NewTopic("t"), cluster(1, 2))
    assert [len(replicas) for replicas in assigned.values()] == [2, 2, 2]


def test_manual_assignments_must_agree_in_size() -> None:
    uneven = NewTopic("t", assignments=[(0, [1, 2]), (1, [1])])
    assert refusal(cluster(1, 2), uneven) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    repeated = NewTopic("t", assignments=[(0, [1]), (0, [2])])
    assert refusal(cluster(1, 2), repeated) is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_new_partitions_have_as_many_replicas_as_the_first() -> None:
    topic = ClusterTopic("t", bytes(16), {0: ClusterPartition((1, 2))})
    added = all_taken(assign_partitions(topic, 3, None, cluster(1, 2, 3), Random(1)))
    assert [len(replicas) for replicas in added.values()] == [2, 2]
    with pytest.raises(KafkaError, match="not consistent"):
        all_taken(assign_partitions(topic, 2, [[1]], cluster(1, 2, 3), Random(1)))
