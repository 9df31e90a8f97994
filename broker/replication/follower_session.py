"""What a follower's fetch session has not looked at since it changed.

A follower asks for thousands of partitions at a time, of which a few have news. So each waits at
the end of its log (`Partition.tails`) and says when there is something: a request looks at these
alone. That a follower is there, and that it has everything, holds for all of them at once
(`in_sync.Attendance`).
"""

from typing import Protocol

from barnabas.broker.replication.fetch_session import FetchedPartition, TopicKey
from barnabas.broker.replication.in_sync import NEVER, UNKNOWN, Attendance
from barnabas.broker.replication.partition import Partition
from barnabas.protocol.messages.fetch import FetchPartition


class Parked(Protocol):
    """The session's request that waits for news."""

    def woken(self) -> None:
        """There are records to send."""
        ...

    def woken_soon(self) -> None:
        """There is something to tell, which goes with records where some come in time."""
        ...


class FollowedPartition(FetchedPartition):
    """A partition in a follower's session."""

    __slots__ = ("_session", "replica")

    def __init__(self, topic: TopicKey, wanted: FetchPartition, session: "FollowerSession") -> None:
        super().__init__(topic, wanted)
        self._session = session
        self.replica: Partition | None = None
        """Where it was last read."""
        session.unread[self] = None

    def ask(self, wanted: FetchPartition) -> None:
        self.wanted = wanted
        self._session.unread[self] = None

    def leave(self) -> None:
        self._session.unread.pop(self, None)
        if self.replica is not None:
            self.replica.tails.pop(self, None)
            follower = self.replica.in_sync.followers.get(self._session.replica_id)
            if follower is not None and follower.attendance is self._session.attendance:
                follower.left()
            self.replica = None

    def watch(self, partition: Partition) -> None:
        """Be told of what happens to the replica from now on."""
        self.replica = partition
        partition.tails[self] = None

    def is_read(self) -> None:
        """There is no more of it, and the answer says so."""
        self._session.unread.pop(self, None)

    def is_served(self) -> None:
        """It gets records: the others come first next time."""
        unread = self._session.unread
        unread.pop(self, None)
        unread[self] = None

    def grown(self) -> None:
        session = self._session
        session.unread[self] = None
        if session.parked is not None:
            session.parked.woken()

    def committed(self) -> None:
        session = self._session
        session.unread[self] = None
        if session.parked is not None:
            session.parked.woken_soon()


class FollowerSession:
    """One fetch session of one follower; without a session it lives as long as its request."""

    __slots__ = ("attendance", "broker_epoch", "parked", "replica_id", "unread")

    def __init__(self, replica_id: int) -> None:
        self.replica_id = replica_id
        self.broker_epoch = UNKNOWN
        self.attendance = Attendance(NEVER)
        self.unread: dict[FollowedPartition, None] = {}
        """Partitions to look at, in the order in which they are served."""
        self.parked: Parked | None = None

    def partition(self, topic: TopicKey, wanted: FetchPartition) -> FollowedPartition:
        """A partition that the session is to read, from `wanted` on."""
        return FollowedPartition(topic, wanted, self)
