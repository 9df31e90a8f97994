"""Who leads a partition and who is in sync; pure.

    new ----------> led ----------> led by another (a leader died, came back, is stopped, or left
     (no replica     |                  ^           the set)
      is online)     v                  |
                  leaderless -----------+  (an in-sync replica came back, or the topic allows an
                                            unclean election)

Every decision that makes or unmakes a leader raises the leader epoch. One that only takes followers
from the in-sync set does not (KAFKA-15021): the leader goes on undisturbed.
"""

from collections.abc import Container, Mapping, Sequence, Set
from dataclasses import replace
from typing import NamedTuple

from barnabas.broker.metadata.cache import NO_LEADER
from barnabas.broker.metadata.znodes import LeaderAndIsr, Restart


class ElectionPolicy(NamedTuple):
    """What a topic says of its elections."""

    unclean: bool = False
    """A replica that is not in sync may lead where no other can."""
    flushes_first: bool = False
    """What is acknowledged has been flushed: a reboot loses none of it."""


CAREFUL = ElectionPolicy()


class Situation(NamedTuple):
    """What an election looks at beside the partition's last state."""

    online: Set[int]
    """Brokers whose replica can serve."""
    leaving: Container[int] = ()
    """Brokers that want to stop: they lead only what nobody else can."""
    restarted: Mapping[int, Restart] = {}
    """Brokers that have registered anew since the last decision, and how their last run ended."""
    policy: ElectionPolicy = CAREFUL
    missing: Set[int] = frozenset()
    """Those of the brokers online that are only expected back: they keep what they have, and get
    nothing that one that is there can take."""


def decide(
    replicas: Sequence[int], state: LeaderAndIsr | None, now: Situation, controller_epoch: int
) -> LeaderAndIsr | None:
    """The next state of a partition, or None if it stays as it is; `state` is None for a new one.

    A replica that was not closed cleanly leaves every in-sync set that has another member: it may
    lack the end of what it acknowledged. A leader that was closed cleanly goes on in a new epoch.
    """
    if state is None:
        return _first(replicas, now, controller_epoch)
    isr, doubtful = _after_restarts(state, now, sole_replica=len(replicas) == 1)
    able = [each for each in isr if each in now.online and each not in doubtful]
    staying = [each for each in able if each not in now.leaving]
    if now.missing >= set(staying):
        # Nobody that is there stays: whoever wants to stop has no one to leave it to.
        staying = []
    if (
        state.leader in able
        and state.leader not in now.restarted
        and (state.leader in staying or not staying)
    ):
        decision = replace(state, isr=tuple(staying or able), doubtful=doubtful)
    elif able:
        decision = _elected(state, _leader(replicas, state, staying or able, now), staying or able)
    elif now.policy.unclean and (found := _any_online([*isr, *replicas], now)) is not None:
        decision = _elected(state, found, [found])
    else:
        # Who was in sync last is what a later clean election needs to know.
        epoch = state.leader_epoch + (state.leader != NO_LEADER)
        decision = LeaderAndIsr(NO_LEADER, epoch, isr, controller_epoch, doubtful=doubtful)
    decision = replace(decision, controller_epoch=state.controller_epoch)
    return None if decision == state else replace(decision, controller_epoch=controller_epoch)


def _first(replicas: Sequence[int], now: Situation, controller_epoch: int) -> LeaderAndIsr | None:
    there = [each for each in replicas if each in now.online and each not in now.missing]
    able = [each for each in there if each not in now.leaving] or there
    return LeaderAndIsr(able[0], 0, tuple(able), controller_epoch) if able else None


def _leader(
    replicas: Sequence[int], state: LeaderAndIsr, able: Container[int], now: Situation
) -> int:
    """One of those that can: who leads already, otherwise the first that is there."""
    if state.leader in able:
        return state.leader
    able_in_order = [each for each in replicas if each in able]
    return next((each for each in able_in_order if each not in now.missing), able_in_order[0])


_WORST_FIRST = (Restart.EMPTY, Restart.REBOOTED, Restart.KILLED)


def _after_restarts(
    state: LeaderAndIsr, now: Situation, *, sole_replica: bool
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The in-sync set without those that were not closed cleanly, and the one in doubt.

    One member always stays, the best there is. If its disk is another one, or its machine went down
    too and the topic does not flush before it acknowledges, what it has is in doubt; but a sole
    replica has no better.
    """
    isr = list(state.isr)
    crashed = {each for each in isr if now.restarted.get(each, Restart.CLEAN) != Restart.CLEAN}
    if not crashed:
        return state.isr, state.doubtful
    worst_first = sorted(
        crashed, key=lambda each: (_WORST_FIRST.index(now.restarted[each]), each == state.leader)
    )
    for each in worst_first[: len(isr) - 1 if len(crashed) == len(isr) else None]:
        isr.remove(each)
    last = isr[0]
    lost = {Restart.EMPTY} if now.policy.flushes_first else {Restart.EMPTY, Restart.REBOOTED}
    if now.restarted.get(last) in lost and not sole_replica:
        return tuple(isr), (last,)
    return tuple(isr), tuple(each for each in state.doubtful if each in isr)


def _any_online(replicas: Sequence[int], now: Situation) -> int | None:
    """The first of them that is online: one that is there and stays, or is there, if there is."""
    online = [each for each in replicas if each in now.online]
    return min(online, key=lambda each: (each in now.missing, each in now.leaving), default=None)


def _elected(state: LeaderAndIsr, leader: int, isr: Sequence[int]) -> LeaderAndIsr:
    return LeaderAndIsr(leader, state.leader_epoch + 1, tuple(isr), state.controller_epoch)
