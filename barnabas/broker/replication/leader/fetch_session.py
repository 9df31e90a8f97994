"""Incremental fetch sessions (KIP-227): a client's partitions, kept between its requests.

A full request lists every partition. An incremental request lists only the changes, and its
response only the partitions with news. Pure bookkeeping: times and ids are passed in.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from barnabas.config.key import INT_MAX
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, PartitionData
from barnabas.protocol.steps import Steps

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
NO_SESSION = 0
EVICTION_MS = 120_000
"""Age and idle time from which a session may be evicted for another."""
TOPIC_IDS_SINCE = 13
MANY = 500
"""The partitions of a Fetch from which it is served in slices, and of a step of its session."""
SESSION_ERRORS = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)
_MAX_EPOCH = 2**31 - 1
_UNKNOWN = -1

TopicKey = str | bytes
"""The topic as the client names it: by name, or by id in versions with topic ids."""


class FetchedPartition:
    """A partition of a session: the client's last request for it and the state last answered."""

    __slots__ = ("high_watermark", "log_start_offset", "topic", "wanted")

    def __init__(self, topic: TopicKey, wanted: FetchPartition) -> None:
        self.topic = topic
        self.wanted = wanted
        self.high_watermark = _UNKNOWN
        self.log_start_offset = _UNKNOWN

    def update(self, wanted: FetchPartition) -> None:
        """Take over the client's new request for the partition."""
        self.wanted = wanted

    def forget(self) -> None:
        """Release the partition: the session does not read it any more."""

    def has_news(self, answer: PartitionData) -> bool:
        """Whether an incremental answer must name this partition; remembers the answered state."""
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
            # Forces news in the next answer too, so that the client learns when the error is over.
            self.high_watermark = _UNKNOWN
            return True
        return news


Partitions = dict[tuple[TopicKey, int], FetchedPartition]
Answers = list[tuple[FetchedPartition, PartitionData]]


class SessionOwner(Protocol):
    """The owner of a session: one follower, or any consumer."""

    @property
    def replica_id(self) -> int:
        """The follower's broker id, -1 for consumers."""
        ...

    def partition(self, topic: TopicKey, wanted: FetchPartition, /) -> FetchedPartition:
        """Make the session's record of a partition."""
        ...


class ConsumerOwner:
    """The owner of all sessions that are not a follower's."""

    replica_id = _UNKNOWN

    def partition(self, topic: TopicKey, wanted: FetchPartition) -> FetchedPartition:
        return FetchedPartition(topic, wanted)


CONSUMER = ConsumerOwner()


class FetchSession:
    """The partitions of one client, in the order in which the next answer serves them."""

    __slots__ = (
        "counted",
        "created_ms",
        "epoch",
        "id",
        "owner",
        "partitions",
        "used_ms",
        "uses_topic_ids",
    )

    def __init__(
        self,
        session_id: int,
        partitions: Partitions,
        now_ms: int,
        owner: SessionOwner,
        *,
        uses_topic_ids: bool,
    ) -> None:
        self.id = session_id
        self.epoch = 1
        self.partitions = partitions
        self.counted = len(partitions)
        """The partitions that the cache has counted."""
        self.owner = owner
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = self.used_ms = now_ms

    def go_on(self) -> None:
        """Advance to the epoch of the next request."""
        self.epoch = 1 if self.epoch == _MAX_EPOCH else self.epoch + 1

    def forget(self, name: TopicKey, indexes: Iterable[int]) -> None:
        """Leave out partitions of a topic from now on."""
        for index in indexes:
            known = self.partitions.pop((name, index), None)
            if known is not None:
                known.forget()

    @property
    def privileged(self) -> bool:
        """Whether it is a follower's session, for which a consumer's may be evicted."""
        return self.owner.replica_id >= 0

    def end(self) -> None:
        """Release the partitions: no more requests come in this session."""
        if self.privileged:
            _forget(self.partitions)

    def answered(self, served: Iterable[FetchedPartition]) -> None:
        """Move partitions that got records to the end: the others are served first next time."""
        for partition in served:
            key = (partition.topic, partition.wanted.partition)
            if self.partitions.pop(key, None) is not None:
                self.partitions[key] = partition


class FetchContext:
    """One Fetch request, in its session or without one."""

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
        owner: SessionOwner,
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

    def close(self, answers: Answers) -> tuple[int, Answers]:
        """Return the session id to answer with, and the partitions that belong in the response."""
        news = []
        if self._session is not None or self._wants_session:
            news = [pair for pair in answers if pair[0].has_news(pair[1])]
        return self._closed(answers, news)

    def closing(self, answers: Answers) -> Steps[tuple[int, Answers]]:
        """Do what `close` does, in a step for each partition."""
        news = []
        for pair in answers:
            if pair[0].has_news(pair[1]):
                news.append(pair)
            yield None
        return self._closed(answers, news)

    def postpone(self) -> int:
        """Return the session id to answer with, if the response has no partitions at all.

        The session tells its news the next time; there is no new one.
        """
        if self._session is not None:
            return self._session.id
        self.abandon()
        return NO_SESSION

    def _closed(self, answers: Answers, news: Answers) -> tuple[int, Answers]:
        if self._session is not None:
            if not self._session.privileged:
                self._session.answered(pair[0] for pair in news if pair[1].records)
            return self._session.id, news
        if not self._wants_session:
            self.abandon()
            return NO_SESSION, answers
        session_id = self._cache.create(
            self.partitions, self._now_ms, self.owner, uses_topic_ids=self.uses_topic_ids
        )
        if session_id == NO_SESSION:
            self.abandon()
        return session_id, answers

    @property
    def is_kept(self) -> bool:
        """Whether a session remains for the next request, provided that a slot is free."""
        return self._session is not None or (self._wants_session and self._cache.has_slots)

    def abandon(self) -> None:
        """Release the partitions of a request that leaves no session behind."""
        if self._session is None and self.owner.replica_id >= 0:
            _forget(self.partitions)


class FetchSessionCache:
    """A bounded number of sessions (`max.incremental.fetch.session.cache.slots`), and of partitions
    in all of them (`max.incremental.fetch.session.cache.partitions`)."""

    def __init__(
        self, slots: int, random_id: Callable[[], int], *, max_partitions: int = INT_MAX
    ) -> None:
        """`random_id` returns ids from 1 to 2**31-1."""
        self._slots = slots
        self._max_partitions = max_partitions
        self.partitions = 0
        """The number of partitions in all sessions."""
        self._random_id = random_id
        self._sessions: dict[int, FetchSession] = {}
        """In the order of their last use."""

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def has_slots(self) -> bool:
        """Whether the configuration allows any sessions."""
        return self._slots > 0

    def __iter__(self) -> Iterator[FetchSession]:
        return iter(self._sessions.values())

    def get(self, session_id: int) -> FetchSession | None:
        """Return a session by its id."""
        return self._sessions.get(session_id)

    def is_next(self, session: FetchSession, epoch: int, only: FetchedPartition) -> bool:
        """Whether a request with this epoch is the next of a session that has `only` one
        partition."""
        return (
            self._sessions.get(session.id) is session
            and session.epoch == epoch
            and len(session.partitions) == 1
            and only in session.partitions.values()
        )

    def used(self, session: FetchSession, now_ms: int) -> None:
        """Advance a session to its next epoch, from a request that changes no partitions."""
        session.go_on()
        session.used_ms = now_ms
        del self._sessions[session.id]
        self._sessions[session.id] = session

    def open(
        self, request: FetchRequest, version: int, now_ms: int, owner: SessionOwner = CONSUMER
    ) -> FetchContext:
        """Do what `opening` does, in one go."""
        by_id = version >= TOPIC_IDS_SINCE
        session = self._find(request, owner, by_id=by_id)
        partitions: Partitions = {}
        if session is not None:
            partitions, owner = session.partitions, session.owner
        for topic in request.topics:
            _add(partitions, topic.topic_id if by_id else topic.topic, topic.partitions, owner)
        if session is None:
            return self._without_session(request, partitions, now_ms, owner, by_id=by_id)
        for forgotten in request.forgotten_topics_data:
            name = forgotten.topic_id if by_id else forgotten.topic
            session.forget(name, forgotten.partitions)
        return self._within(session, now_ms)

    def opening(
        self, request: FetchRequest, version: int, now_ms: int, owner: SessionOwner = CONSUMER
    ) -> Steps[FetchContext]:
        """Find the session of a request, in steps; a new session belongs to `owner`.

        Raises KafkaError: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, or
        FETCH_SESSION_TOPIC_ID_ERROR where a session mixes topic names and topic ids.
        """
        by_id = version >= TOPIC_IDS_SINCE
        session = self._find(request, owner, by_id=by_id)
        partitions: Partitions = {}
        if session is not None:
            partitions, owner = session.partitions, session.owner
        for name, some in _portions(request.topics, by_id=by_id):
            if some is None:
                yield None
            else:
                _add(partitions, name, some, owner)
        if session is None:
            return self._without_session(request, partitions, now_ms, owner, by_id=by_id)
        for name, some in _portions(request.forgotten_topics_data, by_id=by_id):
            if some is None:
                yield None
            else:
                session.forget(name, some)
        return self._within(session, now_ms)

    def _find(
        self, request: FetchRequest, owner: SessionOwner, *, by_id: bool
    ) -> FetchSession | None:
        """Return the session of a request, and advance it to its next epoch.

        None for a full request, which ends the session that it names.
        """
        session = self._sessions.get(request.session_id)
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session is not None:
                self._drop(session)
            return None
        if session is None or session.owner.replica_id != owner.replica_id:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != by_id:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        # Before the first step: no other request may have the same epoch.
        session.go_on()
        return session

    def _without_session(
        self,
        request: FetchRequest,
        partitions: Partitions,
        now_ms: int,
        owner: SessionOwner,
        *,
        by_id: bool,
    ) -> FetchContext:
        return FetchContext(
            self,
            partitions,
            now_ms,
            owner,
            session=None,
            wants_session=request.session_epoch == INITIAL_EPOCH,
            uses_topic_ids=by_id,
        )

    def _within(self, session: FetchSession, now_ms: int) -> FetchContext:
        """Return the context of a request whose changes the session has."""
        self._count(session, now_ms)
        session.used_ms = now_ms
        is_empty = not session.partitions
        known = self._sessions.pop(session.id, None)
        if known is not None and not is_empty:
            self._sessions[session.id] = session
        return FetchContext(
            self,
            session.partitions,
            now_ms,
            session.owner,
            session=None if is_empty else session,
            wants_session=False,
            uses_topic_ids=session.uses_topic_ids,
        )

    def create(
        self, partitions: Partitions, now_ms: int, owner: SessionOwner, *, uses_topic_ids: bool
    ) -> int:
        """Create a session and return its id; 0 where no slot is free and none may be evicted."""
        privileged = owner.replica_id >= 0
        size = len(partitions)
        if not (
            self._has_room(size, now_ms, privileged=privileged)
            and self._evict_for(size, now_ms, privileged=privileged)
        ):
            return NO_SESSION
        self.partitions += size
        session_id = self._random_id()
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._random_id()
        self._sessions[session_id] = FetchSession(
            session_id, partitions, now_ms, owner, uses_topic_ids=uses_topic_ids
        )
        return session_id

    def _evict_for(self, size: int, now_ms: int, *, privileged: bool) -> bool:
        """Free a slot; False where that is not possible.

        Evicts the least recently used session if it is stale, otherwise an old session with fewer
        partitions. A follower may evict any consumer's session.
        """
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
        self._drop(oldest)
        return True

    def _count(self, session: FetchSession, now_ms: int) -> None:
        """Count the partitions that a request has changed.

        Raises FETCH_SESSION_ID_NOT_FOUND if there is no room for them: the client asks for a new
        session, does not get one, and continues without.
        """
        if self._sessions.get(session.id) is not session:
            return
        added = len(session.partitions) - session.counted
        session.counted += added
        self.partitions += added
        session.used_ms = now_ms
        if added > 0 and not self._has_room(0, now_ms, privileged=session.privileged):
            self._drop(session)
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)

    def _has_room(self, size: int, now_ms: int, *, privileged: bool) -> bool:
        """Make room for `size` more partitions; False where that is not possible.

        Evicts stale sessions, and those of consumers for a follower, which always has room.
        """
        excess = self.partitions + size - self._max_partitions
        if excess <= 0:
            return True
        evicted = [
            each
            for each in self
            if now_ms - each.used_ms > EVICTION_MS or (privileged and not each.privileged)
        ]
        if not privileged and sum(each.counted for each in evicted) < excess:
            return False
        for each in evicted:
            if self.partitions + size <= self._max_partitions:
                break
            self._drop(each)
        return True

    def _drop(self, session: FetchSession) -> None:
        del self._sessions[session.id]
        self.partitions -= session.counted
        session.end()


def _portions(topics: Iterable[Any], *, by_id: bool) -> Iterator[tuple[TopicKey, Any]]:
    """Yield topics with some of their partitions each, and with None where a step ends."""
    left = MANY
    for topic in topics:
        name: TopicKey = topic.topic_id if by_id else topic.topic
        for first in range(0, len(topic.partitions), MANY):
            some = topic.partitions[first : first + MANY]
            yield name, some
            left -= len(some)
        left -= 1
        if left < 0:
            left = MANY
            yield name, None


def _add(
    partitions: Partitions, name: TopicKey, some: Iterable[FetchPartition], owner: SessionOwner
) -> None:
    """Add partitions of a topic, or change those that are there."""
    for wanted in some:
        known = partitions.get((name, wanted.partition))
        if known is None:
            partitions[name, wanted.partition] = owner.partition(name, wanted)
        else:
            known.update(wanted)


def _forget(partitions: Partitions) -> None:
    for partition in partitions.values():
        partition.forget()
