"""A follower's fetch session: the partitions that have changed since it last read them.

A follower fetches thousands of partitions at a time, of which a few have news. Each partition is
therefore watched at the end of its log (`Partition.follower_watches`) and marks itself unread when
it changes; a request reads the unread partitions only. The time of the last request is stored once
for all partitions of the session (`isr_state.LastFetch`).
"""

from typing import Protocol

from barnabas.broker.replication.isr_state import NEVER, UNKNOWN, LastFetch
from barnabas.broker.replication.leader.fetch_session import FetchedPartition, TopicKey
from barnabas.broker.replication.partition import Partition
from barnabas.protocol.messages.fetch import FetchPartition


class DelayedFollowerFetch(Protocol):
    """The session's Fetch that waits for news."""

    def wake(self) -> None:
        """Look again: there are records to send."""
        ...

    def wake_soon(self) -> None:
        """Answer within a short time: there is news, best sent together with records."""
        ...


class FollowerPartition(FetchedPartition):
    """A partition in a follower's session."""

    __slots__ = ("_session", "replica")

    def __init__(self, topic: TopicKey, wanted: FetchPartition, session: "FollowerSession") -> None:
        super().__init__(topic, wanted)
        self._session = session
        self.replica: Partition | None = None
        """The replica that served the last read."""
        session.unread[self] = None

    def update(self, wanted: FetchPartition) -> None:
        self.wanted = wanted
        self._session.unread[self] = None

    def forget(self) -> None:
        self._session.unread.pop(self, None)
        if self.replica is not None:
            self.replica.follower_watches.pop(self, None)
            follower = self.replica.isr_state.followers.get(self._session.replica_id)
            if follower is not None and follower.last_fetch is self._session.last_fetch:
                follower.leave_session()
            self.replica = None

    def watch(self, partition: Partition) -> None:
        """Register for the changes of the replica."""
        self.replica = partition
        partition.follower_watches[self] = None

    def mark_read(self) -> None:
        """Note that it was read to the end."""
        self._session.unread.pop(self, None)

    def mark_served(self) -> None:
        """Note that the response has records of it: the others are served first next time."""
        unread = self._session.unread
        unread.pop(self, None)
        unread[self] = None

    def log_grew(self) -> None:
        session = self._session
        session.unread[self] = None
        if session.delayed_fetch is not None:
            session.delayed_fetch.wake()

    def watermark_moved(self) -> None:
        session = self._session
        session.unread[self] = None
        if session.delayed_fetch is not None:
            session.delayed_fetch.wake_soon()


class FollowerSession:
    """The fetch session of one follower; a request without a session has one for itself."""

    __slots__ = ("broker_epoch", "delayed_fetch", "last_fetch", "replica_id", "unread")

    def __init__(self, replica_id: int) -> None:
        self.replica_id = replica_id
        self.broker_epoch = UNKNOWN
        self.last_fetch = LastFetch(NEVER)
        self.unread: dict[FollowerPartition, None] = {}
        """Partitions to read, in the order in which they are served."""
        self.delayed_fetch: DelayedFollowerFetch | None = None

    def partition(self, topic: TopicKey, wanted: FetchPartition) -> FollowerPartition:
        """Make the session's record of a partition, to be read from `wanted` on."""
        return FollowerPartition(topic, wanted, self)
