"""The election of a partition's leader, and its ISR; pure.

    new ----------> led ----------> led by another (the leader died, came back, is stopped, or
     (no replica     |                  ^           left the ISR)
      is online)     v                  |
                  leaderless -----------+  (an in-sync replica came back, or the topic allows an
                                            unclean election)

A decision that elects or removes a leader raises the leader epoch. A decision that only removes
followers from the ISR does not (KAFKA-15021), so the leader is not interrupted.
"""

from collections.abc import Container, Mapping, Sequence, Set
from typing import NamedTuple

from barnabas.broker.cluster.cache import NO_LEADER
from barnabas.broker.cluster.znodes import LeaderAndIsr, Restart


class ElectionPolicy(NamedTuple):
    """The election settings of a topic."""

    unclean: bool = False
    """Whether an out-of-sync replica may lead if no in-sync replica can."""
    flushes_first: bool = False
    """Whether records are flushed before they are acknowledged: a reboot then loses none of
    them."""


CLEAN_ONLY = ElectionPolicy()


class ElectionInputs(NamedTuple):
    """The inputs of an election, except the partition's last state."""

    online: Set[int]
    """Brokers whose replica can serve."""
    leaving: Container[int] = ()
    """Brokers that are shutting down: they lead only if no other replica can."""
    restarted: Mapping[int, Restart] = {}
    """Brokers that have registered again since the last decision, and how their last run ended."""
    policy: ElectionPolicy = CLEAN_ONLY
    missing: Set[int] = frozenset()
    """Brokers counted as online that are only expected back. They keep their leaderships, and get
    new ones only if no registered broker can take them."""
    keeps_epoch: bool = False
    """Whether a sole replica that was closed cleanly leads on in its epoch."""


def decide(
    replicas: Sequence[int], state: LeaderAndIsr | None, now: ElectionInputs, controller_epoch: int
) -> LeaderAndIsr | None:
    """Return the next state of a partition, or None if it stays; `state` is None for a new one.

    A replica that was not closed cleanly leaves every ISR that has another member, because it may
    lack the last records that it acknowledged. A leader that was closed cleanly continues in a new
    epoch: a follower, or a request of its earlier run, may be on its way.

    With `keeps_epoch` a sole replica leads on as if it had not stopped. Its log is the one that it
    closed, so records of two runs in one epoch contradict no reader. No other broker can have led
    meanwhile: that would have been a decision, with its own epoch. The broker epoch fences
    messages of the earlier run, and the controller epoch those of the earlier controller. The
    partition's `judged_until` stays behind: a later restart that is not clean is still seen, since
    a registration tells how the run before it ended, and a run that ended otherwise is announced
    until a controller has judged it.
    """
    if state is None:
        return _first(replicas, now, controller_epoch)
    isr, doubtful = _after_restarts(state, now, sole_replica=len(replicas) == 1)
    able = [each for each in isr if each in now.online and each not in doubtful]
    staying = [each for each in able if each not in now.leaving]
    if now.missing >= set(staying):
        # No registered broker would stay, so brokers that are shutting down keep their leaderships.
        staying = []
    if (
        state.leader in able
        and (state.leader not in now.restarted or _leads_on(replicas, state.leader, now))
        and (state.leader in staying or not staying)
    ):
        leader, epoch, isr = state.leader, state.leader_epoch, tuple(staying or able)
    elif able:
        leader = _leader(replicas, state, staying or able, now)
        epoch, isr, doubtful = state.leader_epoch + 1, tuple(staying or able), ()
    elif now.policy.unclean and (found := _any_online([*isr, *replicas], now)) is not None:
        leader, epoch, isr, doubtful = found, state.leader_epoch + 1, (found,), ()
    else:
        # A later clean election needs the last ISR.
        leader, epoch = NO_LEADER, state.leader_epoch + (state.leader != NO_LEADER)
    before = state.leader, state.leader_epoch, state.isr, state.doubtful
    if before == (leader, epoch, isr, doubtful):
        return None
    return LeaderAndIsr(leader, epoch, isr, controller_epoch, doubtful=doubtful)


def _leads_on(replicas: Sequence[int], leader: int, now: ElectionInputs) -> bool:
    restart = now.restarted[leader]
    return now.keeps_epoch and len(replicas) == 1 and restart == Restart.CLEAN


def _first(
    replicas: Sequence[int], now: ElectionInputs, controller_epoch: int
) -> LeaderAndIsr | None:
    there = [each for each in replicas if each in now.online and each not in now.missing]
    able = [each for each in there if each not in now.leaving] or there
    return LeaderAndIsr(able[0], 0, tuple(able), controller_epoch) if able else None


def _leader(
    replicas: Sequence[int], state: LeaderAndIsr, able: Container[int], now: ElectionInputs
) -> int:
    """Return the current leader if it is able, otherwise the first able replica that is
    registered."""
    if state.leader in able:
        return state.leader
    able_in_order = [each for each in replicas if each in able]
    return next((each for each in able_in_order if each not in now.missing), able_in_order[0])


_WORST_FIRST = (Restart.EMPTY, Restart.REBOOTED, Restart.KILLED)


def _after_restarts(
    state: LeaderAndIsr, now: ElectionInputs, *, sole_replica: bool
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the ISR without replicas that were not closed cleanly, and the doubtful member.

    One member always stays, the best one. It is doubtful if its disk is new, or if its machine
    rebooted and the topic does not flush before it acknowledges. A sole replica is never doubtful,
    since there is no better one.
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


def _any_online(replicas: Sequence[int], now: ElectionInputs) -> int | None:
    """Return the first online replica; prefer registered brokers, and of those the ones that
    stay."""
    online = [each for each in replicas if each in now.online]
    return min(online, key=lambda each: (each in now.missing, each in now.leaving), default=None)
