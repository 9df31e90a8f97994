"""Incremental fetch sessions (KIP-227): what a client reads from, remembered between requests.

A full request lists every partition; in an incremental one the client tells only what changed
and is told only of partitions with news. Pure bookkeeping: time and ids come in as arguments.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, PartitionData

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
NO_SESSION = 0
EVICTION_MS = 120_000
"""A session younger than this, or used within it, is not evicted for another's sake."""
TOPIC_IDS_SINCE = 13
SESSION_ERRORS = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)
_MAX_EPOCH = 2**31 - 1
_UNKNOWN = -1

TopicKey = str | bytes
"""The name, or in versions with topic ids the id, by which the client called the topic."""


class FetchedPartition:
    """A partition as the client last asked for it, and what it was last told."""

    __slots__ = ("high_watermark", "log_start_offset", "topic", "wanted")

    def __init__(self, topic: TopicKey, wanted: FetchPartition) -> None:
        self.topic = topic
        self.wanted = wanted
        self.high_watermark = _UNKNOWN
        self.log_start_offset = _UNKNOWN

    def ask(self, wanted: FetchPartition) -> None:
        """The client goes on reading elsewhere in the partition."""
        self.wanted = wanted

    def leave(self) -> None:
        """The session reads the partition no more."""

    def has_news(self, answer: PartitionData) -> bool:
        """Whether an incremental answer must name this partition; remembers what it says."""
        size = 0 if answer.records is None else len(answer.records)
        news = (
            size > 0
            or answer.high_watermark != self.high_watermark
            or answer.log_start_offset != self.log_start_offset
            or answer.diverging_epoch.epoch >= 0
            or answer.preferred_read_replica >= 0
        )
        self.high_watermark = answer.high_watermark
        self.log_start_offset = answer.log_start_offset
        if answer.error_code:
            # Told again with the next answer, so that the client learns when the error is over.
            self.high_watermark = _UNKNOWN
            return True
        return news


Partitions = dict[tuple[TopicKey, int], FetchedPartition]


class Owner(Protocol):
    """Whose session it is."""

    @property
    def replica_id(self) -> int:
        """The follower's broker id, -1 for consumers."""
        ...

    def partition(self, topic: TopicKey, wanted: FetchPartition, /) -> FetchedPartition:
        """A partition that the session is to read."""
        ...


class Consumer:
    """Owns the sessions of all who are no followers."""

    replica_id = _UNKNOWN

    def partition(self, topic: TopicKey, wanted: FetchPartition) -> FetchedPartition:
        return FetchedPartition(topic, wanted)


CONSUMER = Consumer()


class FetchSession:
    """The partitions of one client, in the order in which the next answer serves them."""

    __slots__ = ("created_ms", "epoch", "id", "owner", "partitions", "used_ms", "uses_topic_ids")

    def __init__(
        self,
        session_id: int,
        partitions: Partitions,
        now_ms: int,
        owner: Owner,
        *,
        uses_topic_ids: bool,
    ) -> None:
        self.id = session_id
        self.epoch = 1
        self.partitions = partitions
        self.owner = owner
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = self.used_ms = now_ms

    def update(self, request: FetchRequest) -> None:
        """Take over what an incremental request adds, changes and forgets."""
        by_id = self.uses_topic_ids
        for topic in request.topics:
            name: TopicKey = topic.topic_id if by_id else topic.topic
            for wanted in topic.partitions:
                known = self.partitions.get((name, wanted.partition))
                if known is None:
                    known = self.owner.partition(name, wanted)
                    self.partitions[name, wanted.partition] = known
                else:
                    known.ask(wanted)
        for forgotten in request.forgotten_topics_data:
            name = forgotten.topic_id if by_id else forgotten.topic
            for index in forgotten.partitions:
                known = self.partitions.pop((name, index), None)
                if known is not None:
                    known.leave()

    @property
    def privileged(self) -> bool:
        """Consumers make room for followers."""
        return self.owner.replica_id >= 0

    def end(self) -> None:
        """Nobody will ask in this session any more."""
        if self.privileged:
            _leave(self.partitions)

    def answered(self, served: Iterable[FetchedPartition]) -> None:
        """Put partitions that got records at the end: the others come first next time."""
        for partition in served:
            key = (partition.topic, partition.wanted.partition)
            if self.partitions.pop(key, None) is not None:
                self.partitions[key] = partition


class FetchContext:
    """One Fetch request in its session, or outside of any."""

    __slots__ = (
        "_cache",
        "_now_ms",
        "_session",
        "_wants_session",
        "owner",
        "partitions",
        "uses_topic_ids",
    )

    def __init__(
        self,
        cache: "FetchSessionCache",
        partitions: Partitions,
        now_ms: int,
        owner: Owner,
        *,
        session: FetchSession | None,
        wants_session: bool,
        uses_topic_ids: bool,
    ) -> None:
        self._cache = cache
        self._now_ms = now_ms
        self._session = session
        self._wants_session = wants_session
        self.owner = owner
        self.partitions = partitions
        self.uses_topic_ids = uses_topic_ids

    def close(self, answers: list[tuple[FetchedPartition, PartitionData]]) -> tuple[
        int, list[tuple[FetchedPartition, PartitionData]]
    ]:  # fmt: skip
        """The session id to answer with, and the partitions that belong in the answer."""
        if self._session is not None:
            news = [pair for pair in answers if pair[0].has_news(pair[1])]
            if not self._session.privileged:
                self._session.answered(pair[0] for pair in news if pair[1].records)
            return self._session.id, news
        if not self._wants_session:
            self.abandon()
            return NO_SESSION, answers
        for partition, answer in answers:
            partition.has_news(answer)
        session_id = self._cache.create(
            self.partitions, self._now_ms, self.owner, uses_topic_ids=self.uses_topic_ids
        )
        if session_id == NO_SESSION:
            self.abandon()
        return session_id, answers

    @property
    def is_kept(self) -> bool:
        """Whether the next request tells only what changes, unless all slots are taken."""
        return self._session is not None or (self._wants_session and self._cache.has_slots)

    def abandon(self) -> None:
        """The request ends without leaving a session behind."""
        if self._session is None and self.owner.replica_id >= 0:
            _leave(self.partitions)


class FetchSessionCache:
    """A bounded number of sessions (`max.incremental.fetch.session.cache.slots`)."""

    def __init__(self, slots: int, random_id: Callable[[], int]) -> None:
        """`random_id` gives ids from 1 to 2**31-1."""
        self._slots = slots
        self._random_id = random_id
        self._sessions: dict[int, FetchSession] = {}
        """In the order of their last use."""

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def has_slots(self) -> bool:
        """Whether sessions are kept at all."""
        return self._slots > 0

    def __iter__(self) -> Iterator[FetchSession]:
        return iter(self._sessions.values())

    def open(
        self, request: FetchRequest, version: int, now_ms: int, owner: Owner = CONSUMER
    ) -> FetchContext:
        """Place a request in its session; a new one is the `owner`'s.

        Raises KafkaError: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, or
        FETCH_SESSION_TOPIC_ID_ERROR where a session mixes topic names and topic ids.
        """
        by_id = version >= TOPIC_IDS_SINCE
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            old = self._sessions.pop(request.session_id, None)
            if old is not None:
                old.end()
            return FetchContext(
                self,
                _all_of(request, owner, by_id=by_id),
                now_ms,
                owner,
                session=None,
                wants_session=request.session_epoch == INITIAL_EPOCH,
                uses_topic_ids=by_id,
            )
        session = self._sessions.get(request.session_id)
        if session is None or session.owner.replica_id != owner.replica_id:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != by_id:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.update(request)
        if not session.partitions:
            del self._sessions[session.id]
            return FetchContext(
                self,
                {},
                now_ms,
                session.owner,
                session=None,
                wants_session=False,
                uses_topic_ids=by_id,
            )
        session.epoch = 1 if session.epoch == _MAX_EPOCH else session.epoch + 1
        session.used_ms = now_ms
        self._sessions[session.id] = self._sessions.pop(session.id)
        return FetchContext(
            self,
            session.partitions,
            now_ms,
            session.owner,
            session=session,
            wants_session=False,
            uses_topic_ids=by_id,
        )

    def create(
        self, partitions: Partitions, now_ms: int, owner: Owner, *, uses_topic_ids: bool
    ) -> int:
        """A new session's id; 0 where there is no slot and nobody may be evicted for it."""
        privileged = owner.replica_id >= 0
        if not self._make_room(len(partitions), now_ms, privileged=privileged):
            return NO_SESSION
        session_id = self._random_id()
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._random_id()
        self._sessions[session_id] = FetchSession(
            session_id, partitions, now_ms, owner, uses_topic_ids=uses_topic_ids
        )
        return session_id

    def _make_room(self, size: int, now_ms: int, *, privileged: bool) -> bool:
        """Evict the session unused for longest if it is stale, else an old one that is smaller; a
        follower takes the place of any consumer."""
        if len(self._sessions) < self._slots:
            return True
        if not self._slots:
            return False
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.used_ms <= EVICTION_MS:

            def rank(each: FetchSession) -> tuple[bool, int, int]:
                return each.privileged, len(each.partitions), each.id

            old = [
                each
                for each in self
                if now_ms - each.created_ms > EVICTION_MS or (privileged and not each.privileged)
            ]
            oldest = min(old, key=rank, default=oldest)
            if not old or rank(oldest)[:2] >= (privileged, size):
                return False
        del self._sessions[oldest.id]
        oldest.end()
        return True


def _all_of(request: FetchRequest, owner: Owner, *, by_id: bool) -> Partitions:
    partitions: Partitions = {}
    for topic in request.topics:
        name: TopicKey = topic.topic_id if by_id else topic.topic
        for wanted in topic.partitions:
            known = partitions.get((name, wanted.partition))
            if known is None:
                partitions[name, wanted.partition] = owner.partition(name, wanted)
            else:
                known.ask(wanted)
    return partitions


def _leave(partitions: Partitions) -> None:
    for partition in partitions.values():
        partition.leave()
