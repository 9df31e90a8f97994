"""Who is in sync with the leader of a partition: what it knows of its followers, and its judgement.

A follower that asks for records from an offset on has everything before it. It is caught up as of
the last time at which it had all that the leader had then; in the set it may lag behind for
`replica.lag.time.max.ms` since, and outside of it may come back when it has what is committed and
what the leader found when it was elected. Pure: times are monotonic seconds, and come in.

The leader proposes, the controller decides (KIP-497). While a proposal is under way nobody knows
which of the two sets holds, so what is committed must be in both: the *maximal* in-sync set.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from barnabas.broker.replication.partition import Partition

UNKNOWN = -1
NEVER = float("-inf")


class Attendance:
    """When a follower last asked, over which connection: one for all partitions of a session."""

    __slots__ = ("at", "before", "connection_id")

    def __init__(self, at: float, connection_id: int = UNKNOWN) -> None:
        self.at = self.before = at
        self.connection_id = connection_id

    def asked(self, now: float, connection_id: int) -> None:
        """Another request has come."""
        self.before, self.at = self.at, now
        self.connection_id = connection_id


class Follower:
    """What a leader knows of one follower of one partition; all unknown until its first fetch.

    A session of a thousand partitions asks for those again where something has changed, and its
    attendance counts for all of them. So the time of a follower that has everything is not written
    down, but read from the attendance.
    """

    __slots__ = (
        "_attendance",
        "_caught_up_at",
        "_leader_end",
        "asked",
        "broker_epoch",
        "log_end",
        "log_start",
    )

    def __init__(self, caught_up_at: float) -> None:
        """A leader that is elected takes members of the in-sync set for caught up."""
        self.log_end = self.log_start = UNKNOWN
        self.broker_epoch = UNKNOWN
        self.asked = False
        """Since it last left the in-sync set or its connection was closed, if that happened."""
        self._leader_end = UNKNOWN
        self._attendance = Attendance(caught_up_at)
        self._caught_up_at = caught_up_at

    def fetched(
        self, log_end: int, log_start: int, broker_epoch: int, leader_end: int, at: Attendance
    ) -> None:
        """It asked for records from `log_end` on, while the leader's log ended at `leader_end`."""
        known = self._attendance
        if max(log_end, self.log_end) >= self._leader_end:
            before = at.before if at is known else known.at
            if before > self._caught_up_at:
                self._caught_up_at = before
        self.log_end, self.log_start = log_end, log_start
        self.broker_epoch = broker_epoch
        self.asked = True
        self._leader_end = leader_end
        self._attendance = at

    def left(self) -> None:
        """Its session goes on without this partition: later requests say nothing of it."""
        self._attendance = Attendance(self._attendance.at, self._attendance.connection_id)

    @property
    def attendance(self) -> Attendance:
        """Its last request that was about this partition."""
        return self._attendance

    @property
    def caught_up_at(self) -> float:
        """When it last had everything that the leader had at that time."""
        return self._attendance.at if self.log_end >= self._leader_end else self._caught_up_at

    def is_caught_up(self, leader_end: int, now: float, max_lag: float) -> bool:
        """Whether it has everything, or had it within the last `max_lag` seconds."""
        return self.log_end == leader_end or now - self.caught_up_at <= max_lag


class InSyncSets(Protocol):
    """What a broker's partitions share: a clock, and a way to the controller."""

    def now(self) -> float:
        """Monotonic time in seconds."""
        ...

    def is_alive(self, replica: int, /) -> bool:
        """Whether the cluster knows the broker."""
        ...

    def awaits(self, replica: int, follower: Follower, leader_end: int, /) -> bool:
        """Whether a follower outside the set is so near that its joining should be waited for."""
        ...

    def invite(self, partition: "Partition", /) -> None:
        """A follower of the partition has all it takes to be in sync: propose it."""
        ...


class InSyncSet:
    """The in-sync set of one partition; its followers are known only where this broker leads."""

    __slots__ = (
        "_broker_id",
        "_shared",
        "epoch_start",
        "followers",
        "isr",
        "proposed",
        "replicas",
    )

    def __init__(self, broker_id: int, shared: InSyncSets) -> None:
        self._broker_id = broker_id
        self._shared = shared
        self.epoch_start = 0
        """Where the log ended when this leader was elected."""
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        """As the controller last decided."""
        self.proposed: tuple[int, ...] | None = None
        """What this leader has asked for and has no answer to."""
        self.followers: dict[int, Follower] = {}

    def decided(self, replicas: Iterable[int], isr: Iterable[int]) -> bool:
        """Take over the controller's decision; a proposal from before it is void. True where a
        follower has left: it must ask again before it may come back."""
        before = self.isr
        self.replicas, self.isr = tuple(replicas), tuple(isr)
        self.proposed = None
        left = [each for each in before if each not in self.isr and each in self.followers]
        for replica in left:
            self.followers[replica].asked = False
        return bool(left)

    def follow(self) -> None:
        """Another broker leads."""
        self.followers = {}
        self.proposed = None

    def lead(self, now: float) -> None:
        """This broker leads, as before: know every other replica."""
        for replica in self.replicas:
            if replica != self._broker_id and replica not in self.followers:
                self.followers[replica] = Follower(now if replica in self.isr else NEVER)
        for gone in self.followers.keys() - set(self.replicas):
            del self.followers[gone]

    def begin(self, epoch_start: int, now: float) -> None:
        """This broker leads in a new epoch, from `epoch_start` on: what followers have is unknown,
        since each of them may first have to truncate."""
        self.epoch_start = epoch_start
        self.followers = {}
        self.lead(now)

    def end(self, leader_end: int) -> int:
        """The end of what the maximal in-sync set has, and those who are about to join it."""
        end = leader_end
        for replica, follower in self.followers.items():
            if follower.log_end < end and (
                replica in self.isr
                or (self.proposed is not None and replica in self.proposed)
                or (follower.asked and self._shared.awaits(replica, follower, leader_end))
            ):
                end = follower.log_end
        return end

    def start(self, leader_start: int) -> int:
        """The first offset of the replica that starts first, of those that are alive."""
        return min(
            (
                follower.log_start
                for replica, follower in self.followers.items()
                if follower.log_start < leader_start and self._shared.is_alive(replica)
            ),
            default=leader_start,
        )

    def may_join(self, replica: int, high_watermark: int) -> bool:
        """Whether a follower may be proposed: it has what is committed, and its log goes on where
        this leader's epoch began (KAFKA-7128)."""
        if self.proposed is not None or replica in self.isr:
            return False
        follower = self.followers[replica]
        end = follower.log_end
        return follower.asked and end >= high_watermark and end >= self.epoch_start

    def lagging(self, leader_end: int, now: float, max_lag: float) -> Iterator[int]:
        """Members that are behind for longer than `max_lag` seconds."""
        for replica in self.isr:
            follower = self.followers.get(replica)
            if follower is not None and not follower.is_caught_up(leader_end, now, max_lag):
                yield replica

    def cut_off(self, connection_id: int, closed_at: float) -> list[int]:
        """Members that fetched over a connection and were not heard of since it was closed; those
        who were to become members are waited for no more."""
        gone = [
            replica
            for replica, follower in self.followers.items()
            if follower.attendance.connection_id == connection_id
            and follower.attendance.at <= closed_at
        ]
        for replica in gone:
            self.followers[replica].asked = False
        return [replica for replica in self.isr if replica in gone]
