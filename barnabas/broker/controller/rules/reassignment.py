"""The reassignment of a partition's replicas; pure.

    {1,2,3} --begin--> {4,5,3,1,2}, adding 4,5, removing 1,2 --finish--> {4,5,3}
                              |                                (when 4, 5 and 3 are all in sync)
                              +--cancel--> {3,1,2}

During a reassignment the partition has the replicas of both sides, the target's first. Added
replicas catch up, replicas to be removed still serve, and any in-sync replica may lead. No replica
is dropped before the whole target is in sync. The topic's node has the complete state, so another
controller can continue (KIP-455).

Each step raises the leader epoch: the leader has to learn the new replicas, and its ISR proposals
for the old ones are refused.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from barnabas.broker.cluster.cache import NO_LEADER
from barnabas.broker.cluster.znodes import LeaderAndIsr
from barnabas.broker.controller.rules.leader_election import ElectionInputs, decide
from barnabas.protocol.errors import ErrorCode, KafkaError


class Assignment(NamedTuple):
    """The replicas of a partition, preferred leader first, with those being added and removed."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def ongoing(self) -> bool:
        """Whether a reassignment is in progress."""
        return bool(self.adding or self.removing)

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas after the reassignment."""
        return tuple(each for each in self.replicas if each not in self.removing)

    @property
    def origin(self) -> tuple[int, ...]:
        """The replicas before the reassignment, in any order."""
        return tuple(each for each in self.replicas if each not in self.adding)

    def towards(self, target: Sequence[int]) -> "Assignment":
        """Return the assignment in progress to `target`, with the same origin."""
        origin = self.origin
        replicas = (*target, *(each for each in origin if each not in target))
        return Assignment(
            replicas,
            adding=tuple(each for each in replicas if each not in origin),
            removing=tuple(each for each in replicas if each not in target),
        )


class Step(NamedTuple):
    """The next assignment and state of a partition. The state is None if it never had a leader."""

    assignment: Assignment
    state: LeaderAndIsr | None
    dropped: tuple[int, ...] = ()
    """Replicas to delete."""


def begin(
    now: Assignment,
    target: Sequence[int],
    state: LeaderAndIsr | None,
    inputs: ElectionInputs,
    controller_epoch: int,
) -> Step:
    """Start a reassignment to `target`, also during another one; it may be complete at once.

    Raises INVALID_REPLICA_ASSIGNMENT if the first step would lose every in-sync replica, because
    the reassignment in progress was adding them.
    """
    if state is None:
        # There are no records to lose, and no replica to wait for.
        return Step(Assignment(tuple(target)), None, _missing(now.replicas, target))
    on_the_way = now.towards(target)
    if set(target) <= set(state.isr):
        on_the_way = Assignment(tuple(target))
    return _take(now, on_the_way, state, inputs, controller_epoch)


def is_due(now: Assignment, state: LeaderAndIsr) -> bool:
    """Return whether the reassignment can finish: all replicas of the target are in sync."""
    return now.ongoing and set(now.target) <= set(state.isr)


def finish(
    now: Assignment, state: LeaderAndIsr, inputs: ElectionInputs, controller_epoch: int
) -> Step:
    """Complete a reassignment that is due."""
    return _take(now, Assignment(now.target), state, inputs, controller_epoch)


def cancel(
    now: Assignment, state: LeaderAndIsr | None, inputs: ElectionInputs, controller_epoch: int
) -> Step:
    """Return to the replicas before the reassignment.

    Raises NO_REASSIGNMENT_IN_PROGRESS, and INVALID_REPLICA_ASSIGNMENT if only replicas that are
    being added are in sync and the topic does not allow an unclean election.
    """
    if not now.ongoing:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    if state is None:
        return Step(Assignment(now.origin), None, now.adding)
    return _take(now, Assignment(now.origin), state, inputs, controller_epoch)


def _take(
    now: Assignment,
    then: Assignment,
    state: LeaderAndIsr,
    inputs: ElectionInputs,
    controller_epoch: int,
) -> Step:
    """Return the step from `now` to `then`, with a leader among the replicas that stay."""
    replicas = then.replicas
    isr = tuple(each for each in state.isr if each in replicas)
    if not isr and not (inputs.policy.unclean and inputs.online & set(replicas)):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Unable to revert partition assignment because it would require an unclean leader "
            "election.",
        )
    cut = replace(
        state,
        leader=state.leader if state.leader in isr else NO_LEADER,
        leader_epoch=state.leader_epoch + 1,
        isr=isr,
        controller_epoch=controller_epoch,
        doubtful=tuple(each for each in state.doubtful if each in isr),
    )
    decided = decide(replicas, cut, inputs, controller_epoch)
    return Step(then, decided or cut, _missing(now.replicas, replicas))


def _missing(before: Sequence[int], after: Sequence[int]) -> tuple[int, ...]:
    return tuple(each for each in before if each not in after)
