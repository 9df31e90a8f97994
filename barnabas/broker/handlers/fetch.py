"""Fetch (key 1): record batches as they lie on disk, for consumers and for followers.

v7 sessions (KIP-227), v9 leader epochs (KIP-320), v11 the preferred replica (KIP-392), v12
diverging epochs (KIP-595), v13 topic ids, v15 the follower's broker epoch (KIP-903), v16 the
current leaders (KIP-951). The response has file ranges, not bytes: they are read as the socket
takes them. A request that finds less than min_bytes waits in purgatory, and is woken by appends and
the high watermark, not by polling. The records are found by `consumer_read.py` and
`follower_read.py` in `barnabas/broker/replication/leader/`.
"""

# The annotations of nested functions would be evaluated at each call.
from __future__ import annotations

import asyncio
from collections.abc import Callable
from copy import copy
from functools import partial
from operator import attrgetter
from typing import Any, Final

from barnabas.broker.cluster.cache import MetadataCache
from barnabas.broker.replication.leader.consumer_read import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    ConsumerRead,
)
from barnabas.broker.replication.leader.fetch_lookup import (
    LEADERS_SINCE,
    WITH_LEADER,
    FetchLookup,
    error_of,
)
from barnabas.broker.replication.leader.fetch_session import (
    CONSUMER,
    FINAL_EPOCH,
    MANY,
    NO_SESSION,
    SESSION_ERRORS,
    TOPIC_IDS_SINCE,
    Answers,
    FetchContext,
    FetchedPartition,
    FetchSessionCache,
    SessionOwner,
)
from barnabas.broker.replication.leader.follower_read import (
    FollowerRead,
    FollowerServices,
)
from barnabas.broker.replication.leader.follower_session import FollowerSession
from barnabas.broker.replication.leader.leader_hints import endpoints
from barnabas.broker.replication.leader.replica_selector import ReplicaSelector
from barnabas.broker.security.rights import CLUSTER, CLUSTER_ACTION, READ, TOPIC, Need, Rights
from barnabas.broker.server.context import RequestContext
from barnabas.broker.server.repeats import Repeat
from barnabas.broker.server.slice_reader import MIN_CHUNK
from barnabas.coordinator.soon import Soon, in_task, settle
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.fetch import (
    API,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    NodeEndpoint,
    PartitionData,
)
from barnabas.protocol.records.varint import Buffer
from barnabas.protocol.steps import Steps, in_steps
from barnabas.security.acl.rules import CLUSTER_NAME
from barnabas.storage.log.log_slice import LogSlice

__all__ = ["API", "RIGHTS", "again", "error_response", "handle"]


def _replica_id(request: FetchRequest) -> int:
    return max(request.replica_id, request.replica_state.replica_id)


def _is_consumer(request: FetchRequest) -> bool:
    """Return whether a consumer fetches."""
    return _replica_id(request) < 0


def _is_follower(request: FetchRequest) -> bool:
    """Return whether a follower fetches."""
    return _replica_id(request) >= 0


RIGHTS = Rights(
    inside=(
        Need(READ, TOPIC, "topic", "topic_id", when=_is_consumer),
        Need(
            CLUSTER_ACTION,
            CLUSTER,
            when=_is_follower,
            refusal=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ),
    )
)
SOON_S = 0.01
"""The wait of a follower's delayed Fetch for records after the high watermark has moved: under load
every response then has records."""

REPEATS_SINCE: Final = 7
"""The first version that is served again: it has sessions, and the log start offset."""
_VARYING: Final = ("session_epoch", "topics.partitions.fetch_offset")
_OF_ANSWER: Final = tuple(
    f"responses.partitions.{name}"
    for name in ("high_watermark", "last_stable_offset", "log_start_offset", "records")
)
Read = ConsumerRead | FollowerRead
_partitions_of = attrgetter("partitions")
FetchOutcome = Soon[FetchResponse] | Steps[FetchResponse]


def handle(
    sessions: FetchSessionCache,
    lookup: FetchLookup,
    selector: ReplicaSelector,
    followers: FollowerServices,
    max_bytes: Callable[[], int],
    request: FetchRequest,
    context: RequestContext,
) -> FetchOutcome:
    """Serve consumers, and followers on the inter-broker listener.

    `max_bytes` returns `fetch.max.bytes`.
    """

    replica_id = _replica_id(request)
    if replica_id >= 0:
        return _serve_follower(sessions, followers, max_bytes(), request, context, replica_id)
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    most = max_bytes()
    if context.charge is not None:
        most = min(most, context.charge.max_fetch)
    read = partial(ConsumerRead, lookup, selector, request, context, most)
    return _serve(sessions, lookup.cache, request, context, CONSUMER, read)


def _serve_follower(
    sessions: FetchSessionCache,
    followers: FollowerServices,
    most: int,
    request: FetchRequest,
    context: RequestContext,
    replica_id: int,
) -> FetchOutcome:
    broker_epoch = request.replica_state.replica_epoch
    if not context.allows(CLUSTER_ACTION, CLUSTER, CLUSTER_NAME):
        return _refused(request, ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.NONE)
    if not context.inter_broker or broker_epoch < 0:
        # Replica fetches are served on the inter-broker listener only, and only with a broker
        # epoch: an earlier run of the broker may have had records that the present one lacks.
        return _refused(request, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE)

    context.charge = None

    def answer(*, present: bool) -> FetchOutcome:
        if present:
            read = partial(FollowerRead, followers, request, context, most)
            cache, owner = followers.lookup.cache, FollowerSession(replica_id)
            return _serve(sessions, cache, request, context, owner, read)
        return FetchResponse(error_code=ErrorCode.STALE_BROKER_EPOCH, responses=[])

    def answer_later(asked: asyncio.Future[bool]) -> Steps[FetchResponse]:
        return (yield from settle(answer(present=(yield asked))))

    present = followers.is_present(replica_id, broker_epoch)
    return answer(present=present) if isinstance(present, bool) else answer_later(in_task(present))


def _serve(
    sessions: FetchSessionCache,
    cache: MetadataCache,
    request: FetchRequest,
    context: RequestContext,
    owner: SessionOwner,
    read_of: Callable[[FetchContext], Read],
) -> FetchOutcome:
    version, now_ms = context.api_version, context.received_ms
    if _is_large(request):
        return _open_many(cache, sessions.opening(request, version, now_ms, owner), read_of)
    read = read_of(sessions.open(request, version, now_ms, owner))
    if read.is_large:
        return _read_many(cache, read)
    read.collect()
    if read.is_complete() or request.max_wait_ms <= 0:
        return _answer(cache, read)
    return _DelayedFetch(cache, read).future


def _is_large(request: FetchRequest) -> bool:
    """Whether the session of a request is built in slices."""
    topics, forgotten = request.topics, request.forgotten_topics_data
    elements = len(topics) + sum(map(len, map(_partitions_of, topics)))
    if forgotten:
        elements += len(forgotten) + sum(map(len, map(_partitions_of, forgotten)))
    return elements > MANY


def _open_many(
    cache: MetadataCache, opening: Steps[FetchContext], read_of: Callable[[FetchContext], Read]
) -> Steps[FetchResponse]:
    """Serve a request that names many partitions, in slices."""
    session = yield from opening
    return (yield from _read_many(cache, read_of(session)))


def _read_many(cache: MetadataCache, read: Read) -> Steps[FetchResponse]:
    """Read many partitions, in slices; wait for more, at most for the time of the request."""
    deadline = None
    while True:
        try:
            yield from read.collecting()
            now = asyncio.get_running_loop().time()
            if deadline is None:
                deadline = now + read.request.max_wait_ms / 1000
            if read.is_complete() or now >= deadline:
                return (yield from _answer_many(cache, read))
        except GeneratorExit:
            read.session.abandon()
            raise
        delayed = _DelayedFetch(cache, read, deadline)
        if read.has_changed():
            # A change between two slices woke no delayed Fetch.
            delayed.wake()
        deadline = yield delayed.future


def _answer(cache: MetadataCache, read: Read) -> FetchResponse:
    if _is_throttled(read):
        return FetchResponse(session_id=read.session.postpone(), responses=[])
    session_id, answers = read.session.close(read.close())
    response = FetchResponse(session_id=session_id, responses=_by_topic(answers))
    return _with_leaders(cache, read, answers, response) if read.failed else response


def _answer_many(cache: MetadataCache, read: Read) -> Steps[FetchResponse]:
    """Do what `_answer` does, in slices."""
    if _is_throttled(read):
        return FetchResponse(session_id=read.session.postpone(), responses=[])
    session_id, answers = yield from read.session.closing(read.close())
    response = FetchResponse(session_id=session_id, responses=[])
    topics = response.responses
    for start in range(0, len(answers), MANY):
        more = _by_topic(answers[start : start + MANY])
        if topics and (topics[-1].topic, topics[-1].topic_id) == (more[0].topic, more[0].topic_id):
            topics[-1].partitions += more.pop(0).partitions
        topics += more
        yield None
    return _with_leaders(cache, read, answers, response) if read.failed else response


def _is_throttled(read: Read) -> bool:
    """Charge the records of a response; return whether it has to be empty instead (KIP-219)."""
    charge = read.context.charge
    return charge is not None and not charge.fetched(read.size)


def _with_leaders(
    cache: MetadataCache, read: Read, answers: Answers, response: FetchResponse
) -> FetchResponse:
    """Add the addresses of the leaders that the responses name."""
    leaders = [
        answer.current_leader.leader_id for _, answer in answers if answer.error_code in WITH_LEADER
    ]
    if leaders and read.context.api_version >= LEADERS_SINCE:
        response.node_endpoints = [
            NodeEndpoint(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
            for node in endpoints(cache, leaders, read.context.listener)
        ]
    return response


class _DelayedFetch:
    """A delayed Fetch: it waits for min_bytes, at most max_wait, and is woken by its partitions."""

    def __init__(self, cache: MetadataCache, read: Read, deadline: float | None = None) -> None:
        """`deadline` is given for a read of many partitions; the future then has the next."""
        self._loop = asyncio.get_running_loop()
        self._deadline = deadline
        self.future: asyncio.Future[Any]
        self.future = self._loop.create_future()
        self._cache = cache
        self._read = read
        self._looking = self._hurrying = False
        if deadline is None:
            deadline = self._loop.time() + read.request.max_wait_ms / 1000
        self._timer = self._loop.call_at(deadline, self._finish)
        read.watch(self)
        self.future.add_done_callback(self._leave)

    def wake(self) -> None:
        """Look again, at most once per iteration of the event loop."""
        if not self._looking:
            self._looking = True
            self._loop.call_soon(self._look)

    def wake_soon(self) -> None:
        """Answer within SOON_S, with or without records."""
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
        if self._deadline is not None:
            self.future.set_result(self._deadline)
            return
        self._read.collect()
        if self._read.is_complete():
            self._finish(fresh=True)

    def _finish(self, *, fresh: bool = False) -> None:
        if self.future.done():
            return
        if self._deadline is not None:
            # Now or soon after the high watermark has moved: the response does not wait.
            self.future.set_result(self._loop.time())
            return
        if not fresh:
            self._read.collect()
        self.future.set_result(_answer(self._cache, self._read))

    def _leave(self, done: asyncio.Future[Any]) -> None:
        self._timer.cancel()
        self._read.unwatch(self)
        if done.cancelled():
            self._read.session.abandon()


def _by_topic(
    answers: list[tuple[FetchedPartition, PartitionData]],
) -> list[FetchableTopicResponse]:
    """Group the responses by topic, in the order of the session."""
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


# -- a consumer that continues to read one partition ---------------------------------------------


def again(
    sessions: FetchSessionCache,
    lookup: FetchLookup,
    _selector: ReplicaSelector,
    _followers: FollowerServices,
    most_bytes: Callable[[], int],
    request: FetchRequest,
    context: RequestContext,
    response: FetchResponse,
) -> Repeat | None:
    """Serve a consumer that continues to read one partition, as long as it finds records at once.

    Its requests differ in session epoch and offset. What may change is asked for each time: the
    standing of the partition, and the session.
    """
    version = context.api_version
    if version < REPEATS_SINCE or not _is_for_one(request, response):
        return None
    (topic,) = request.topics
    (wanted,) = topic.partitions
    name = lookup.cache.topic_name(topic.topic_id) if version >= TOPIC_IDS_SINCE else topic.topic
    partition = None if name is None else lookup.replicas.find((name, wanted.partition))
    if name is None or partition is None or not partition.standing.is_leader:
        return None
    session = fetched = None
    if request.session_id != NO_SESSION:
        session = sessions.get(request.session_id)
        if session is None or len(session.partitions) != 1:
            return None
        (fetched,) = session.partitions.values()
    elif request.session_epoch != FINAL_EPOCH:
        # The response names a session that begins.
        return None
    basis = (name, wanted.partition), partition.standing, session, fetched
    read_committed = request.isolation_level == READ_COMMITTED
    reading = (
        sessions, lookup.replicas, most_bytes, *basis, copy(wanted), wanted.last_fetched_epoch,
        read_committed, request.min_bytes, wanted.partition_max_bytes, request.max_bytes,
    )  # fmt: skip
    return Repeat(_read_again, reading, _VARYING, _OF_ANSWER, basis)


def _is_for_one(request: FetchRequest, response: FetchResponse) -> bool:
    """Return whether a consumer asked for one partition, and got records of it, none of which an
    aborted transaction has.

    A session answers for partitions that a request does not name.
    """
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return False
    if len(response.responses) != 1 or len(response.responses[0].partitions) != 1:
        return False
    (answer,) = response.responses[0].partitions
    return not (
        not answer.records
        or answer.aborted_transactions
        or request.forgotten_topics_data
        or request.rack_id
        or _replica_id(request) >= 0
    )


def _read_again(
    reading: tuple[Any, ...], now_ms: int, values: tuple[int, int]
) -> tuple[tuple[int, int, int], Any] | None:
    """Read from the consumer's offset; return the offsets of the log, and the records."""
    epoch, offset = values
    (
        sessions, replicas, most_bytes, place, standing, session, fetched, wanted, last_epoch,
        read_committed, min_bytes, partition_max_bytes, max_bytes,
    ) = reading  # fmt: skip
    partition = replicas.find(place)
    if partition is None or standing is not partition.standing:
        return None
    log = partition.log
    if (last_epoch >= 0 and last_epoch != log.epochs.latest_epoch) or (
        epoch != FINAL_EPOCH
        if session is None or fetched is None
        else not sessions.is_next(session, epoch, fetched)
    ):
        return None
    last_stable, high_watermark = log.last_stable_offset, log.high_watermark
    end = last_stable if read_committed else high_watermark
    if offset >= end:
        return None
    limit = min(max_bytes, most_bytes())
    most = min(partition_max_bytes, limit)
    records: Buffer | LogSlice
    at_hand = log.read_at_hand(offset, most, MIN_CHUNK, end)
    if at_hand is not None:
        records, end_offset = at_hand
    else:
        records = found = log.read(offset, most, limit=end)
        end_offset = found.end_offset
    size = len(records)
    if (size < min_bytes and size < limit) or (
        read_committed and log.aborted_transactions(offset, end_offset)
    ):
        return None
    partition.cells.fetches.value += 1
    partition.cells.bytes_out.value += size
    log_start = log.log_start_offset
    if session is not None and fetched is not None:
        wanted.fetch_offset = offset
        fetched.update(wanted)
        fetched.high_watermark, fetched.log_start_offset = high_watermark, log_start
        sessions.used(session, now_ms)
    return (high_watermark, last_stable, log_start), records


def error_response(
    request: FetchRequest, code: ErrorCode, version: int
) -> FetchResponse | Steps[FetchResponse]:
    """Answer with an error of the whole request or of its session.

    Before topic ids every partition has it too, because the first versions have no other field.
    """
    if version >= TOPIC_IDS_SINCE or code in SESSION_ERRORS:
        return FetchResponse(error_code=code, responses=[])
    return _refused(request, code, code)


def _refused(request: FetchRequest, code: ErrorCode, of_request: ErrorCode) -> Steps[FetchResponse]:
    """Answer with the same error for every partition of a request."""
    topics = []
    for topic in request.topics:
        yield None
        partitions = yield from in_steps(lambda wanted: error_of(wanted, code), topic.partitions)
        topics.append(
            FetchableTopicResponse(
                topic=topic.topic, topic_id=topic.topic_id, partitions=partitions
            )
        )
    return FetchResponse(error_code=of_request, responses=topics)
