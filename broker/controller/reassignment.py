"""How a partition's replicas become others; pure.

    {1,2,3} --begin--> {4,5,3,1,2}, adding 4,5, removing 1,2 --finish--> {4,5,3}
                              |                                (when 4, 5 and 3 are all in sync)
                              +--cancel--> {3,1,2}

While it goes on, the partition has the replicas of both sides, the target's first: those that come
catch up, those that go still serve, and whoever is in sync may lead. Nothing is dropped before the
whole target is in sync. Everything there is to know stands in the topic's node, so that another
controller goes on where this one stopped (KIP-455).

Each step raises the leader epoch: the leader has to hear of the replicas, and whatever it still
says about an in-sync set of those before is refused.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from barnabas.broker.controller.election import Situation, decide
from barnabas.broker.metadata.cache import NO_LEADER
from barnabas.broker.metadata.znodes import LeaderAndIsr
from barnabas.protocol.errors import ErrorCode, KafkaError


class Assignment(NamedTuple):
    """The replicas of a partition, the preferred leader first, and which of them come or go."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def ongoing(self) -> bool:
        """Whether it is on its way to another."""
        return bool(self.adding or self.removing)

    @property
    def target(self) -> tuple[int, ...]:
        """What it shall be."""
        return tuple(each for each in self.replicas if each not in self.removing)

    @property
    def origin(self) -> tuple[int, ...]:
        """What it was before anything began, in an order of its own."""
        return tuple(each for each in self.replicas if each not in self.adding)

    def towards(self, target: Sequence[int]) -> "Assignment":
        """On the way to `target`, from where the way so far began."""
        origin = self.origin
        replicas = (*target, *(each for each in origin if each not in target))
        return Assignment(
            replicas,
            adding=tuple(each for each in replicas if each not in origin),
            removing=tuple(each for each in replicas if each not in target),
        )


class Step(NamedTuple):
    """What becomes of a partition. The state is None where it never had a leader."""

    assignment: Assignment
    state: LeaderAndIsr | None
    dropped: tuple[int, ...] = ()
    """Replicas that are to be deleted."""


def begin(
    now: Assignment,
    target: Sequence[int],
    state: LeaderAndIsr | None,
    situation: Situation,
    controller_epoch: int,
) -> Step:
    """Set out for `target`, also in the middle of another reassignment; it may be there at once.

    Raises INVALID_REPLICA_ASSIGNMENT where the way there begins with the loss of every replica
    that is in sync: those that the other reassignment was adding.
    """
    if state is None:
        # There is nothing that could be lost, and nothing to wait for.
        return Step(Assignment(tuple(target)), None, _missing(now.replicas, target))
    on_the_way = now.towards(target)
    if set(target) <= set(state.isr):
        on_the_way = Assignment(tuple(target))
    return _take(now, on_the_way, state, situation, controller_epoch)


def is_due(now: Assignment, state: LeaderAndIsr) -> bool:
    """Whether it is time to finish: the whole target is in sync."""
    return now.ongoing and set(now.target) <= set(state.isr)


def finish(
    now: Assignment, state: LeaderAndIsr, situation: Situation, controller_epoch: int
) -> Step:
    """The end of a reassignment that is due."""
    return _take(now, Assignment(now.target), state, situation, controller_epoch)


def cancel(
    now: Assignment, state: LeaderAndIsr | None, situation: Situation, controller_epoch: int
) -> Step:
    """Back to the replicas before.

    Raises NO_REASSIGNMENT_IN_PROGRESS, and INVALID_REPLICA_ASSIGNMENT where only replicas that are
    being added are in sync and the topic does not allow an unclean election.
    """
    if not now.ongoing:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    if state is None:
        return Step(Assignment(now.origin), None, now.adding)
    return _take(now, Assignment(now.origin), state, situation, controller_epoch)


def _take(
    now: Assignment,
    then: Assignment,
    state: LeaderAndIsr,
    situation: Situation,
    controller_epoch: int,
) -> Step:
    """The step from `now` to `then`, with a leader among those that stay."""
    replicas = then.replicas
    isr = tuple(each for each in state.isr if each in replicas)
    if not isr and not (situation.policy.unclean and situation.online & set(replicas)):
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
    decided = decide(replicas, cut, situation, controller_epoch)
    return Step(then, decided or cut, _missing(now.replicas, replicas))


def _missing(before: Sequence[int], after: Sequence[int]) -> tuple[int, ...]:
    return tuple(each for each in before if each not in after)
