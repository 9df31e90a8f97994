"""Who leads a partition and who is in sync; pure.

    new ----------> led ----------> led by another (a leader died, came back, or left the set)
     (no replica     |                  ^
      is online)     v                  |
                  leaderless -----------+  (an in-sync replica came back, or the topic allows an
                                            unclean election)

Every decision that takes a partition to another state of leadership raises its leader epoch.
"""

from collections.abc import Container, Sequence

from barnabas.broker.metadata.cache import NO_LEADER
from barnabas.broker.metadata.znodes import LeaderAndIsr


def decide(
    replicas: Sequence[int],
    state: LeaderAndIsr | None,
    online: Container[int],
    *,
    unclean: bool,
    restarted: bool,
    controller_epoch: int,
) -> LeaderAndIsr | None:
    """The next state of a partition, or None if it stays as it is.

    `state` is None for a new partition, `online` has the brokers whose replica can serve.
    `restarted` says that the leader's broker registered anew after it was chosen: what an earlier
    incarnation wrote last may be lost, so even the same leader needs a new epoch.
    """
    if state is None:
        first = [replica for replica in replicas if replica in online]
        if not first:
            return None
        return LeaderAndIsr(first[0], 0, tuple(first), controller_epoch)
    isr = tuple(replica for replica in state.isr if replica in online)
    if state.leader in isr and not restarted:
        if isr == state.isr:
            return None
        return _next(state, state.leader, isr, controller_epoch)
    candidates = [replica for replica in replicas if replica in isr]
    if candidates:
        return _next(state, candidates[0], isr, controller_epoch)
    if unclean:
        for replica in replicas:
            if replica in online:
                return _next(state, replica, (replica,), controller_epoch)
    if state.leader == NO_LEADER:
        return None
    # Who was in sync last is what a later clean election needs to know.
    return _next(state, NO_LEADER, state.isr, controller_epoch)


def _next(
    state: LeaderAndIsr, leader: int, isr: tuple[int, ...], controller_epoch: int
) -> LeaderAndIsr:
    return LeaderAndIsr(leader, state.leader_epoch + 1, isr, controller_epoch)
