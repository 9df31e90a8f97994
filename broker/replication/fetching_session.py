"""The asking half of an incremental fetch session (KIP-227): only what has changed is sent.

A leader of thousands of quiet partitions is asked for all of them by an empty request. Pure.
"""

from collections.abc import Iterable, Mapping

from barnabas.broker.replication.fetch_session import INITIAL_EPOCH, NO_SESSION
from barnabas.broker.replication.follower import Following
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)

Key = tuple[bytes, int]
"""Topic id and partition."""
_MAX_EPOCH = 2**31 - 1


class FetchingSession:
    """What one leader has been asked for on one connection."""

    def __init__(self, max_bytes: int) -> None:
        """`max_bytes` of records are asked for from one partition."""
        self._max_bytes = max_bytes
        self._id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._asked: dict[Key, FetchPartition] = {}
        self._changed: dict[Key, None] = {}

    @property
    def begins(self) -> bool:
        """Whether the next request names all partitions that are ready by then."""
        return self._epoch == INITIAL_EPOCH

    def changed(self, key: Key) -> None:
        """The partition wants something else than it was asked for, or is followed no more."""
        self._changed[key] = None

    def asked(self, key: Key) -> FetchPartition | None:
        """What the leader was last asked for."""
        return self._asked.get(key)

    def ask(self, followings: Mapping[Key, Following], request: FetchRequest) -> bool:
        """Fill in what is to be told; False where no partition wants anything."""
        full = self.begins
        if full:
            self._asked = {}
        wanted: dict[Key, FetchPartition] = {}
        forgotten: list[Key] = []
        for key in followings if full else self._changed:
            following = followings.get(key)
            if following is not None and following.ready:
                wanted[key] = following.wanted(self._max_bytes)
            elif self._asked.pop(key, None) is not None:
                forgotten.append(key)
        self._asked |= wanted
        self._changed = {}
        if not self._asked:
            self.restart()
            return False
        request.session_id, request.session_epoch = self._id, self._epoch
        request.topics = _topics(wanted)
        request.forgotten_topics_data = _forgotten(forgotten)
        return True

    def answered(self, response: FetchResponse) -> bool:
        """Take note of an answer; False where the leader knows no such session."""
        if response.error_code:
            if response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._id = NO_SESSION
            self.restart()
            return False
        if self.begins or response.session_id == NO_SESSION:
            # No id: the leader has no room for a session, or has closed this one.
            self._id = response.session_id
            self._epoch = 1 if self._id else INITIAL_EPOCH
        else:
            self._epoch = 1 if self._epoch == _MAX_EPOCH else self._epoch + 1
        return True

    def restart(self) -> None:
        """The next request names all partitions; the leader closes what it has of this session."""
        self._epoch = INITIAL_EPOCH


def _topics(wanted: Mapping[Key, FetchPartition]) -> list[FetchTopic]:
    topics: dict[bytes, FetchTopic] = {}
    for (topic_id, _), partition in wanted.items():
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = FetchTopic(topic_id=topic_id, partitions=[])
        topic.partitions.append(partition)
    return list(topics.values())


def _forgotten(keys: Iterable[Key]) -> list[ForgottenTopic]:
    topics: dict[bytes, ForgottenTopic] = {}
    for topic_id, index in keys:
        topic = topics.setdefault(topic_id, ForgottenTopic(topic_id=topic_id))
        topic.partitions.append(index)
    return list(topics.values())
