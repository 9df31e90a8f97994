"""Fetch (key 1): record batches as they lie on disk, for consumers and for followers.

v7 sessions (KIP-227), v9 leader epochs (KIP-320), v11 the preferred replica (KIP-392), v12
diverging epochs (KIP-595), v13 topic ids, v15 the follower's broker epoch (KIP-903), v16 the
current leaders (KIP-951). The answer holds file ranges, not bytes: they are read while the socket
drains. A request that finds less than min_bytes is parked, and woken by appends and the high
watermark, never by polling. What is found is in `broker/replication/`: `consumer_read.py` and
`follower_read.py`.
"""

import asyncio
from collections.abc import Callable

from barnabas.broker.clock import Clock
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.replication.consumer_read import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    ConsumerRead,
)
from barnabas.broker.replication.fetch_lookup import (
    LEADERS_SINCE,
    WITH_LEADER,
    FetchLookup,
    error_of,
)
from barnabas.broker.replication.fetch_session import (
    SESSION_ERRORS,
    TOPIC_IDS_SINCE,
    FetchedPartition,
    FetchSessionCache,
)
from barnabas.broker.replication.follower_read import FollowerRead, FollowerServices
from barnabas.broker.replication.follower_session import FollowerSession
from barnabas.broker.replication.leader_hints import endpoints
from barnabas.broker.replication.replica_selector import ReplicaSelector
from barnabas.broker.server.context import RequestContext
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.fetch import (
    API,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    NodeEndpoint,
    PartitionData,
)

__all__ = ["API", "SERVES", "FetchHandler", "error_response"]

SERVES = range(4, 19)
SOON_S = 0.01
"""How long a follower's parked request waits for records once the high watermark has moved: where
they keep coming, no answer is without them."""

Read = ConsumerRead | FollowerRead
Answers = list[tuple[FetchedPartition, PartitionData]]


class FetchHandler:
    """Serves consumers, and on the listener between brokers followers."""

    def __init__(
        self,
        cache: MetadataCache,
        sessions: FetchSessionCache,
        clock: Clock,
        *,
        lookup: FetchLookup,
        selector: ReplicaSelector,
        followers: FollowerServices,
        max_bytes: Callable[[], int],
    ) -> None:
        """`max_bytes` tells `fetch.max.bytes`."""
        self._cache = cache
        self._sessions = sessions
        self._monotonic = clock.monotonic
        self._lookup = lookup
        self._selector = selector
        self._followers = followers
        self._max_bytes = max_bytes

    def handle(
        self, request: FetchRequest, context: RequestContext
    ) -> "FetchResponse | asyncio.Future[FetchResponse]":
        replica_id = max(request.replica_id, request.replica_state.replica_id)
        if replica_id >= 0 and not (
            context.inter_broker and request.replica_state.replica_epoch >= 0
        ):
            # Whoever claims to be a broker where clients are is none; and who does not say which
            # run of a broker it is may be an earlier one, with records that the present has not.
            return FetchResponse(responses=_refused(request, ErrorCode.NOT_LEADER_OR_FOLLOWER))
        read = (
            self._for_consumer(request, context)
            if replica_id < 0
            else self._for_follower(request, context, replica_id)
        )
        read.collect()
        if read.is_complete() or request.max_wait_ms <= 0:
            return self._answer(read)
        return _Parked(read, self._answer).future

    def _for_consumer(self, request: FetchRequest, context: RequestContext) -> Read:
        if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        session = self._sessions.open(request, context.api_version, context.received_ms)
        return ConsumerRead(
            self._lookup, self._selector, request, context, session, self._max_bytes()
        )

    def _for_follower(
        self, request: FetchRequest, context: RequestContext, replica_id: int
    ) -> Read:
        session = self._sessions.open(
            request, context.api_version, context.received_ms, FollowerSession(replica_id)
        )
        return FollowerRead(
            self._followers, request, context, session, self._max_bytes(), self._monotonic()
        )

    def _answer(self, read: Read) -> FetchResponse:
        session_id, answers = read.session.close(read.close())
        response = FetchResponse(session_id=session_id, responses=_by_topic(answers))
        if not read.failed:
            return response
        leaders = [
            answer.current_leader.leader_id
            for _, answer in answers
            if answer.error_code in WITH_LEADER
        ]
        if leaders and read.context.api_version >= LEADERS_SINCE:
            response.node_endpoints = [
                NodeEndpoint(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
                for node in endpoints(self._cache, leaders, read.context.listener)
            ]
        return response


class _Parked:
    """A Fetch that waits for min_bytes: woken by its partitions, answered at max_wait at last."""

    def __init__(self, read: Read, answer: Callable[[Read], FetchResponse]) -> None:
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[FetchResponse] = self._loop.create_future()
        self._read = read
        self._answer = answer
        self._looking = self._hurrying = False
        self._timer = self._loop.call_later(read.request.max_wait_ms / 1000, self._finish)
        read.watch(self)
        self.future.add_done_callback(self._leave)

    def woken(self) -> None:
        """Look again once per turn of the loop, however many appends it saw."""
        if not self._looking:
            self._looking = True
            self._loop.call_soon(self._look)

    def woken_soon(self) -> None:
        """Answer in a moment, with or without records."""
        if not self._hurrying:
            self._hurrying = True
            in_s = self._loop.time() + SOON_S
            if in_s < self._timer.when():
                self._timer.cancel()
                self._timer = self._loop.call_at(in_s, self._finish)

    def _look(self) -> None:
        self._looking = False
        if self.future.done():
            return
        self._read.collect()
        if self._read.is_complete():
            self._finish(fresh=True)

    def _finish(self, *, fresh: bool = False) -> None:
        if self.future.done():
            return
        if not fresh:
            self._read.collect()
        self.future.set_result(self._answer(self._read))

    def _leave(self, done: "asyncio.Future[FetchResponse]") -> None:
        self._timer.cancel()
        self._read.unwatch(self)
        if done.cancelled():
            self._read.session.abandon()


def _by_topic(
    answers: list[tuple[FetchedPartition, PartitionData]],
) -> list[FetchableTopicResponse]:
    """The answers under their topics, in the order of the session."""
    topics: list[FetchableTopicResponse] = []
    last = None
    for fetched, answer in answers:
        topic = fetched.topic
        if topic != last:
            last = topic
            topics.append(
                FetchableTopicResponse(topic_id=topic, partitions=[])
                if isinstance(topic, bytes)
                else FetchableTopicResponse(topic=topic, partitions=[])
            )
        topics[-1].partitions.append(answer)
    return topics


def error_response(request: FetchRequest, code: ErrorCode, version: int) -> FetchResponse:
    """An error of the whole request or of its session.

    Before topic ids every partition tells it too: the first versions have no other place for it.
    """
    if version >= TOPIC_IDS_SINCE or code in SESSION_ERRORS:
        return FetchResponse(error_code=code, responses=[])
    return FetchResponse(error_code=code, responses=_refused(request, code))


def _refused(request: FetchRequest, code: ErrorCode) -> list[FetchableTopicResponse]:
    """The same error for every partition of a request."""
    return [
        FetchableTopicResponse(
            topic=topic.topic,
            topic_id=topic.topic_id,
            partitions=[error_of(wanted, code) for wanted in topic.partitions],
        )
        for topic in request.topics
    ]
