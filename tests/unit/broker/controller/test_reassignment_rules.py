"""The rules of reassignment: any sequence of events reaches the target and loses no record."""

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from barnabas.broker.cluster.cache import NO_LEADER
from barnabas.broker.cluster.znodes import LeaderAndIsr
from barnabas.broker.controller.rules.leader_election import ElectionInputs, ElectionPolicy, decide
from barnabas.broker.controller.rules.reassignment import (
    Assignment,
    Step,
    begin,
    cancel,
    finish,
    is_due,
)
from barnabas.protocol.errors import ErrorCode, KafkaError

ALL = frozenset(range(1, 7))
EVERYBODY = ElectionInputs(ALL)
START = Assignment((1, 2, 3))
LED = LeaderAndIsr(1, 5, (1, 2, 3), 1)


def test_partition_has_both_sides_replicas_in_progress() -> None:
    step = begin(START, (4, 5, 3), LED, EVERYBODY, 2)
    assert step == Step(
        Assignment((4, 5, 3, 1, 2), adding=(4, 5), removing=(1, 2)),
        LeaderAndIsr(1, 6, (1, 2, 3), 2),
    )
    assert (step.assignment.target, step.assignment.origin) == ((4, 5, 3), (3, 1, 2))
    assert step.assignment.ongoing


def test_it_ends_only_when_the_whole_target_is_in_sync() -> None:
    going = begin(START, (4, 5), LED, EVERYBODY, 1).assignment
    almost = replace(LED, isr=(1, 2, 3, 4))
    assert not is_due(going, almost)
    caught_up = replace(LED, isr=(1, 2, 3, 4, 5))
    assert is_due(going, caught_up)
    assert not is_due(START, caught_up)
    step = finish(going, caught_up, EVERYBODY, 1)
    assert step == Step(Assignment((4, 5)), LeaderAndIsr(4, 7, (4, 5), 1), dropped=(1, 2, 3))


def test_leader_that_stays_is_not_replaced() -> None:
    going = Assignment((4, 3, 1, 2), adding=(4,), removing=(1, 2))
    led_by_3 = LeaderAndIsr(3, 5, (1, 2, 3, 4), 1)
    step = finish(going, led_by_3, EVERYBODY, 1)
    assert step.state == LeaderAndIsr(3, 6, (3, 4), 1)


def test_new_order_or_fewer_replicas_take_one_step() -> None:
    assert begin(START, (3, 2, 1), LED, EVERYBODY, 1) == Step(
        Assignment((3, 2, 1)), replace(LED, leader_epoch=6)
    )
    assert begin(START, (2,), LED, EVERYBODY, 1) == Step(
        Assignment((2,)), LeaderAndIsr(2, 7, (2,), 1), dropped=(1, 3)
    )


def test_smaller_target_with_a_lagging_replica_waits_for_it() -> None:
    lagging = replace(LED, isr=(1, 2))
    step = begin(START, (2, 3), lagging, EVERYBODY, 1)
    assert step.assignment == Assignment((2, 3, 1), removing=(1,))
    assert step.dropped == ()


def test_another_target_starts_from_the_first_origin() -> None:
    going = begin(START, (4, 5, 3), LED, EVERYBODY, 1).assignment
    step = begin(going, (5, 6, 1), replace(LED, isr=(1, 2, 3, 4)), EVERYBODY, 1)
    assert step.assignment == Assignment((5, 6, 1, 3, 2), adding=(5, 6), removing=(3, 2))
    assert step.dropped == (4,)
    assert step.state is not None
    assert step.state.isr == (1, 2, 3)


def test_cancel_restores_the_original_replicas() -> None:
    going = begin(START, (4, 5, 3), LED, EVERYBODY, 1).assignment
    led_by_4 = LeaderAndIsr(4, 9, (4, 2, 3), 1)
    step = cancel(going, led_by_4, EVERYBODY, 1)
    assert set(step.assignment.replicas) == {1, 2, 3}
    assert not step.assignment.ongoing
    assert step.dropped == (4, 5)
    assert step.state is not None
    assert (step.state.leader, set(step.state.isr)) == (3, {2, 3})


def test_cancel_without_a_reassignment_is_an_error() -> None:
    with pytest.raises(KafkaError) as caught:
        cancel(START, LED, EVERYBODY, 1)
    assert caught.value.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_only_in_sync_replica_is_kept_unless_the_topic_allows_its_loss() -> None:
    going = begin(START, (4, 5), LED, EVERYBODY, 1).assignment
    only_a_new_one = LeaderAndIsr(4, 9, (4,), 1)
    with pytest.raises(KafkaError) as caught:
        cancel(going, only_a_new_one, EVERYBODY, 1)
    assert caught.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    with pytest.raises(KafkaError):
        begin(going, (5, 6), only_a_new_one, EVERYBODY, 1)
    unclean = ElectionInputs(ALL, policy=ElectionPolicy(unclean=True))
    state = cancel(going, only_a_new_one, unclean, 1).state
    assert state is not None
    assert (state.leader, state.isr) == (1, (1,))


def test_partition_that_never_had_a_leader_moves_at_once() -> None:
    assert begin(START, (4, 5), None, EVERYBODY, 1) == Step(Assignment((4, 5)), None, (1, 2, 3))


BROKERS = st.sampled_from(sorted(ALL))
TARGETS = st.lists(BROKERS, min_size=1, max_size=4, unique=True).map(tuple)


class Reassignments(RuleBasedStateMachine):
    """One partition with its records, and actions of controller, leader and failures in any order.

    `records` has the number of committed records of each replica; an in-sync replica has them all.
    """

    def __init__(self) -> None:
        super().__init__()
        self.online = set(ALL)
        self.assignment = START
        self.state = LED
        self.wanted = self.began_with = START.replicas
        self.committed = 0
        self.records = dict.fromkeys(START.replicas, 0)

    def election_inputs(self) -> ElectionInputs:
        return ElectionInputs(frozenset(self.online & set(self.assignment.replicas)))

    def take(self, step: Step) -> None:
        before, after = self.state, step.state
        assert after is not None
        assert after.leader_epoch > before.leader_epoch
        assert set(after.isr) == set(before.isr) & set(step.assignment.replicas)
        assert set(step.dropped) == set(self.assignment.replicas) - set(step.assignment.replicas)
        gone = set(self.assignment.origin) & set(step.dropped)
        assert not gone or set(step.assignment.replicas) <= set(before.isr)
        if not self.assignment.ongoing:
            self.began_with = self.assignment.replicas
        self.assignment, self.state = step.assignment, after
        for broker in step.dropped:
            self.records.pop(broker, None)
        for broker in step.assignment.replicas:
            self.records.setdefault(broker, 0)

    def advance(self) -> None:
        """Do what the controller does after every event."""
        if is_due(self.assignment, self.state):
            self.take(finish(self.assignment, self.state, self.election_inputs(), 1))

    @rule(wanted=TARGETS)
    def reassign(self, wanted: tuple[int, ...]) -> None:
        try:
            step = begin(self.assignment, wanted, self.state, self.election_inputs(), 1)
        except KafkaError:
            assert set(self.state.isr) <= set(self.assignment.adding) - set(wanted)
            return
        self.wanted = wanted
        self.take(step)
        assert step.assignment.target == wanted
        self.advance()

    @precondition(lambda self: self.assignment.ongoing)
    @rule()
    def cancel(self) -> None:
        try:
            step = cancel(self.assignment, self.state, self.election_inputs(), 1)
        except KafkaError:
            assert set(self.state.isr) <= set(self.assignment.adding)
            return
        assert set(step.assignment.replicas) == set(self.assignment.origin)
        self.wanted = step.assignment.replicas
        self.take(step)

    @precondition(lambda self: self.state.leader != NO_LEADER)
    @rule()
    def write(self) -> None:
        self.committed += 1
        for broker in self.state.isr:
            self.records[broker] = self.committed

    @precondition(lambda self: self.state.leader != NO_LEADER)
    @rule(broker=BROKERS)
    def catch_up(self, broker: int) -> None:
        if broker in self.election_inputs().online and broker not in self.state.isr:
            self.records[broker] = self.committed
            self.state = replace(self.state, isr=(*self.state.isr, broker))
            self.advance()

    @rule(broker=BROKERS)
    def fall_behind(self, broker: int) -> None:
        if broker in self.state.isr and self.state.leader not in (broker, NO_LEADER):
            isr = tuple(each for each in self.state.isr if each != broker)
            self.state = replace(self.state, isr=isr)

    @rule(broker=BROKERS)
    def die_or_come_back(self, broker: int) -> None:
        self.online ^= {broker}
        decided = decide(self.assignment.replicas, self.state, self.election_inputs(), 1)
        self.state = decided or self.state
        self.advance()

    @invariant()
    def who_is_in_sync_has_every_record(self) -> None:
        assert self.state.isr
        assert set(self.state.isr) <= set(self.assignment.replicas)
        assert self.state.leader in (*self.state.isr, NO_LEADER)
        assert all(self.records[each] == self.committed for each in self.state.isr)

    @invariant()
    def nothing_of_before_is_dropped_on_the_way(self) -> None:
        now = self.assignment
        assert len(set(now.replicas)) == len(now.replicas)
        if now.ongoing:
            assert set(now.replicas) == {*self.wanted, *self.began_with}
        else:
            assert now.replicas == self.wanted
        assert now.target == self.wanted

    def teardown(self) -> None:
        """Check after recovery: the partition is at its last target, and nowhere else."""
        for broker in sorted(ALL - self.online):
            self.die_or_come_back(broker)
        for broker in sorted(ALL):
            self.catch_up(broker)
        assert self.assignment == Assignment(self.wanted)
        assert set(self.state.isr) == set(self.wanted)


TestReassignments = Reassignments.TestCase
TestReassignments.settings = settings(max_examples=150, stateful_step_count=30)
