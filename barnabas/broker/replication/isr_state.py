"""The ISR of a partition: the leader's knowledge of its followers, and the rules that follow.

A follower that asks for records from an offset on has every record before it. It is caught up as of
the last time at which it had all records that the leader had then. A member of the ISR may lag
behind for `replica.lag.time.max.ms` since that time. A follower outside the ISR may join when it
has all committed records and all records that the leader had when it was elected. Pure: times are
monotonic seconds and are passed in.

The leader proposes, the controller decides (KIP-497). While a proposal is in flight either set may
be in force, so a record is committed only when all members of both sets have it. The union of both
is the *maximal ISR*.
"""

from collections.abc import Iterable, Iterator
from typing import Protocol

UNKNOWN = -1
NEVER = float("-inf")


def effective_min_isr(configured: int, replica_count: int) -> int:
    """Return min.insync.replicas, limited to the number of replicas of the partition."""
    return min(configured, replica_count)


def committed_end(current: int, maximal_isr_end: int, isr_size: int, min_isr: int) -> int:
    """Return the new high watermark, given the end that all members of the maximal ISR have.

    A record is committed when every in-sync replica has it (KIP-101, KIP-966). The high watermark
    never moves back. It stands still while the ISR has fewer than `min_isr` members, so that a
    sole survivor commits no record that acks=all would have refused (KIP-966).
    """
    if isr_size < min_isr:
        return current
    return max(current, maximal_isr_end)


class LastFetch:
    """Time and connection of a follower's last Fetch, shared by all partitions of its session."""

    __slots__ = ("at", "before", "connection_id")

    def __init__(self, at: float, connection_id: int = UNKNOWN) -> None:
        self.at = self.before = at
        self.connection_id = connection_id

    def record(self, now: float, connection_id: int) -> None:
        """Record another request."""
        self.before, self.at = self.at, now
        self.connection_id = connection_id


class Follower:
    """One follower of one partition, as its leader knows it; all unknown until its first Fetch.

    In a session of a thousand partitions a request names only those that have changed, and stands
    for all others too. The caught-up time of a follower that has every record is therefore not
    stored here: it is read from the session's `LastFetch`.
    """

    __slots__ = (
        "_caught_up_at",
        "_last_fetch",
        "_leader_end",
        "asked",
        "broker_epoch",
        "log_end",
        "log_start",
        "refused",
    )

    def __init__(self, caught_up_at: float) -> None:
        """A new leader counts the members of the ISR as caught up."""
        self.log_end = self.log_start = UNKNOWN
        self.broker_epoch = UNKNOWN
        self.asked = False
        """Whether it has fetched since it last left the ISR and since its connection was closed."""
        self.refused = False
        """Whether the controller has refused it as ineligible since it last fetched."""
        self._leader_end = UNKNOWN
        self._last_fetch = LastFetch(caught_up_at)
        self._caught_up_at = caught_up_at

    def update_fetch_state(
        self, log_end: int, log_start: int, broker_epoch: int, leader_end: int, at: LastFetch
    ) -> None:
        """Record a Fetch from offset `log_end` on, made while the leader's log ended at
        `leader_end`."""
        known = self._last_fetch
        if max(log_end, self.log_end) >= self._leader_end:
            before = at.before if at is known else known.at
            if before > self._caught_up_at:
                self._caught_up_at = before
        self.log_end, self.log_start = log_end, log_start
        self.broker_epoch = broker_epoch
        self.asked = True
        self.refused = False
        self._leader_end = leader_end
        self._last_fetch = at

    def leave_session(self) -> None:
        """Keep the last fetch as it is: later requests of the session do not cover this
        partition."""
        self._last_fetch = LastFetch(self._last_fetch.at, self._last_fetch.connection_id)

    @property
    def last_fetch(self) -> LastFetch:
        """The last request that covered this partition."""
        return self._last_fetch

    @property
    def caught_up_at(self) -> float:
        """The last time at which it had all records that the leader had then."""
        return self._last_fetch.at if self.log_end >= self._leader_end else self._caught_up_at

    def is_caught_up(self, leader_end: int, now: float, max_lag: float) -> bool:
        """Whether it has all records, or had them within the last `max_lag` seconds."""
        return self.log_end == leader_end or now - self.caught_up_at <= max_lag


class FollowerLiveness(Protocol):
    """The broker-wide knowledge about followers that an ISR decision needs."""

    def is_alive(self, replica: int, /) -> bool:
        """Whether the controller counts a broker as alive."""
        ...

    def awaits(self, replica: int, follower: Follower, leader_end: int, /) -> bool:
        """Whether the high watermark waits for a follower outside the ISR: it is alive, caught up,
        and its proposal comes soon."""
        ...


class IsrState:
    """The replicas of one partition, its ISR and its followers."""

    __slots__ = (
        "_broker_id",
        "_liveness",
        "epoch_start",
        "followers",
        "isr",
        "proposed",
        "replicas",
    )

    def __init__(self, broker_id: int, liveness: FollowerLiveness) -> None:
        self._broker_id = broker_id
        self._liveness = liveness
        self.epoch_start = 0
        """The log end offset at the time this leader was elected."""
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        """The ISR that the controller last decided."""
        self.proposed: tuple[int, ...] | None = None
        """The ISR that this leader has proposed and that the controller has not answered."""
        self.followers: dict[int, Follower] = {}

    def apply_decision(self, replicas: Iterable[int], isr: Iterable[int]) -> bool:
        """Take over the controller's decision and void an earlier proposal; True where a follower
        left the ISR. That follower must fetch again before it may join."""
        before = self.isr
        self.replicas, self.isr = tuple(replicas), tuple(isr)
        self.proposed = None
        left = [each for each in before if each not in self.isr and each in self.followers]
        for replica in left:
            self.followers[replica].asked = False
        return bool(left)

    def drop_proposal(self, *, ineligible: bool) -> None:
        """Drop the proposal. If it was refused because followers are `ineligible`, they are not
        awaited until they fetch again: their log directory may have failed."""
        for replica in self.proposed or ():
            if ineligible and replica not in self.isr:
                self.followers[replica].refused = True
        self.proposed = None

    def become_follower(self) -> None:
        """Drop the followers and the proposal: another broker leads."""
        self.followers = {}
        self.proposed = None

    def become_leader(self, now: float) -> None:
        """Keep one `Follower` per other replica: this broker leads, in the same epoch."""
        for replica in self.replicas:
            if replica != self._broker_id and replica not in self.followers:
                self.followers[replica] = Follower(now if replica in self.isr else NEVER)
        for gone in self.followers.keys() - set(self.replicas):
            del self.followers[gone]

    def begin_epoch(self, epoch_start: int, now: float) -> None:
        """Lead in a new epoch that begins at offset `epoch_start`, with the followers' logs
        unknown: each of them may have to truncate first."""
        self.epoch_start = epoch_start
        self.followers = {}
        self.become_leader(now)

    def maximal_isr_end(self, leader_end: int) -> int:
        """Return the end of the records that every member of the maximal ISR has, and every
        follower that is about to join it."""
        end = leader_end
        for replica, follower in self.followers.items():
            if follower.log_end < end and (
                replica in self.isr
                or (self.proposed is not None and replica in self.proposed)
                or (
                    follower.asked
                    and not follower.refused
                    and self._liveness.awaits(replica, follower, leader_end)
                )
            ):
                end = follower.log_end
        return end

    def low_watermark(self, leader_start: int) -> int:
        """Return the lowest log start offset of all replicas that are alive."""
        return min(
            (
                follower.log_start
                for replica, follower in self.followers.items()
                if follower.log_start < leader_start and self._liveness.is_alive(replica)
            ),
            default=leader_start,
        )

    def may_join(self, replica: int, high_watermark: int) -> bool:
        """Whether a follower may be proposed: it has all committed records, and its log reaches
        the start of this leader's epoch (KAFKA-7128)."""
        if self.proposed is not None or replica in self.isr:
            return False
        follower = self.followers[replica]
        end = follower.log_end
        return follower.asked and end >= high_watermark and end >= self.epoch_start

    def lagging(self, leader_end: int, now: float, max_lag: float) -> Iterator[int]:
        """Yield the members that have been behind for longer than `max_lag` seconds."""
        for replica in self.isr:
            follower = self.followers.get(replica)
            if follower is not None and not follower.is_caught_up(leader_end, now, max_lag):
                yield replica

    def drop_connection(self, connection_id: int, closed_at: float) -> list[int]:
        """Return the members that fetched over a connection and have not fetched since it was
        closed. Followers outside the ISR that it served are not awaited any more."""
        gone = [
            replica
            for replica, follower in self.followers.items()
            if follower.last_fetch.connection_id == connection_id
            and follower.last_fetch.at <= closed_at
        ]
        for replica in gone:
            self.followers[replica].asked = False
        return [replica for replica in self.isr if replica in gone]
