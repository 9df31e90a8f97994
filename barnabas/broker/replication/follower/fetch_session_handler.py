"""The requesting side of an incremental fetch session (KIP-227): only changes are sent.

An empty request fetches thousands of quiet partitions from a leader. Pure.
"""

from collections.abc import Iterable, Mapping

from barnabas.broker.replication.follower.follower_state import FollowerState
from barnabas.broker.replication.leader.fetch_session import INITIAL_EPOCH, NO_SESSION
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


class FetchSessionHandler:
    """The fetch session with one leader, on one connection; Kafka's FetchSessionHandler."""

    def __init__(self, max_bytes: int) -> None:
        """`max_bytes` is the limit per partition."""
        self._max_bytes = max_bytes
        self._id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._asked: dict[Key, FetchPartition] = {}
        self._changed: dict[Key, None] = {}

    @property
    def begins(self) -> bool:
        """Whether the next request begins a session: it names all partitions that are ready."""
        return self._epoch == INITIAL_EPOCH

    def changed(self, key: Key) -> None:
        """Note that the session's request for a partition is out of date."""
        self._changed[key] = None

    def asked(self, key: Key) -> FetchPartition | None:
        """Return the last request for a partition, if the session has one."""
        return self._asked.get(key)

    def build_request(self, followers: Mapping[Key, FollowerState], request: FetchRequest) -> bool:
        """Fill in the changes; False where no partition is to be fetched."""
        full = self.begins
        if full:
            self._asked = {}
        wanted: dict[Key, FetchPartition] = {}
        forgotten: list[Key] = []
        for key in followers if full else self._changed:
            follower = followers.get(key)
            if follower is not None and follower.ready:
                wanted[key] = follower.wanted(self._max_bytes)
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

    def handle_response(self, response: FetchResponse) -> bool:
        """Update the session from a response; False where the response is an error."""
        if response.error_code:
            if response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._id = NO_SESSION
            self.restart()
            return False
        if self.begins or response.session_id == NO_SESSION:
            # No id: the leader has no free slot for a session, or has closed this one.
            self._id = response.session_id
            self._epoch = 1 if self._id else INITIAL_EPOCH
        else:
            self._epoch = 1 if self._epoch == _MAX_EPOCH else self._epoch + 1
        return True

    def restart(self) -> None:
        """Begin a new session with the next request; the leader closes the old one."""
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
