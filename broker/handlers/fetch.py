"""Fetch (key 1): record batches as they lie on disk, up to the high watermark.

v7 sessions (KIP-227), v9 leader epochs (KIP-320), v11 the preferred replica, v12 diverging epochs,
v13 topic ids, v16 the current leaders (KIP-951). The answer holds file ranges, not bytes: they are
read while the socket drains. A request that finds less than min_bytes is parked, and woken by
appends and the high watermark, never by polling.
"""

import asyncio
from collections.abc import Callable

from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.replication.fetch_session import (
    SESSION_ERRORS,
    TOPIC_IDS_SINCE,
    FetchContext,
    FetchedPartition,
    FetchSessionCache,
)
from barnabas.broker.replication.leader_hints import current_leader, endpoints
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.server.context import RequestContext
from barnabas.protocol.errors import ErrorCode, KafkaError, downgrade
from barnabas.protocol.messages.fetch import (
    API,
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

__all__ = ["API", "SERVES", "FetchHandler", "error_response"]

SERVES = range(4, 19)
_READ_UNCOMMITTED, _READ_COMMITTED = range(2)
_LEADERS_SINCE = 16
_WITH_LEADER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)

Answers = list[tuple[FetchedPartition, PartitionData]]


class FetchHandler:
    """Serves consumers."""

    def __init__(
        self,
        replicas: ReplicaManager,
        cache: MetadataCache,
        sessions: FetchSessionCache,
        max_bytes: Callable[[], int],
    ) -> None:
        """`max_bytes` tells `fetch.max.bytes`."""
        self._replicas = replicas
        self._cache = cache
        self._sessions = sessions
        self.max_bytes = max_bytes

    def handle(
        self, request: FetchRequest, context: RequestContext
    ) -> "FetchResponse | asyncio.Future[FetchResponse]":
        if request.isolation_level not in (_READ_UNCOMMITTED, _READ_COMMITTED):
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        session = self._sessions.open(request, context.api_version, context.received_ms)
        read = _Read(self, request, context, session)
        read.collect()
        if read.is_complete() or request.max_wait_ms <= 0:
            return self._answer(read)
        return _Parked(read, self._answer).future

    def _answer(self, read: "_Read") -> FetchResponse:
        session_id, answers = read.session.close(read.answers)
        response = FetchResponse(session_id=session_id, responses=_by_topic(answers))
        if not read.failed:
            return response
        leaders = [
            answer.current_leader.leader_id
            for _, answer in answers
            if answer.error_code in _WITH_LEADER
        ]
        if leaders and read.context.api_version >= _LEADERS_SINCE:
            response.node_endpoints = [
                NodeEndpoint(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
                for node in endpoints(self._cache, leaders, read.context.listener)
            ]
        return response

    # -- one partition ---------------------------------------------------------------------------

    def find(self, fetched: FetchedPartition) -> Partition:
        """The replica that serves a fetched partition; raises KafkaError."""
        topic = fetched.topic
        if isinstance(topic, bytes):
            name = self._cache.topic_name(topic)
            if name is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
            topic = name
        partition = self._replicas.partition(topic, fetched.wanted.partition)
        if isinstance(fetched.topic, bytes) and partition.topic_id != fetched.topic:
            raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID)
        return partition

    def refuse(self, fetched: FetchedPartition, error: KafkaError, version: int) -> PartitionData:
        """The answer for a partition that cannot be read."""
        answer = _error(fetched.wanted, downgrade(API.key, version, error.code))
        if error.code in _WITH_LEADER and version >= _LEADERS_SINCE:
            topic = fetched.topic
            name = self._cache.topic_name(topic) if isinstance(topic, bytes) else topic
            leader = current_leader(self._cache, name or "", fetched.wanted.partition)
            answer.current_leader = LeaderIdAndEpoch(leader_id=leader.id, leader_epoch=leader.epoch)
        return answer


class _Read:
    """What one request finds when it looks; looked again each time something has changed."""

    __slots__ = (
        "_from_follower",
        "_handler",
        "_limit",
        "_read_committed",
        "_wanted",
        "answers",
        "context",
        "failed",
        "partitions",
        "request",
        "session",
        "size",
    )

    def __init__(
        self,
        handler: FetchHandler,
        request: FetchRequest,
        context: RequestContext,
        session: FetchContext,
    ) -> None:
        self._handler = handler
        self.request = request
        self.context = context
        self.session = session
        self._wanted = list(session.partitions.values())
        self._limit = min(request.max_bytes, handler.max_bytes())
        self._read_committed = request.isolation_level == _READ_COMMITTED
        self._from_follower = request.replica_id >= 0 or request.replica_state.replica_id >= 0
        self.answers: Answers = []
        self.partitions: list[Partition] = []
        self.size = 0
        self.failed = False

    def is_complete(self) -> bool:
        """Whether the answer need not wait: enough bytes, nothing to read, or news that is bad."""
        size = self.size
        enough = size >= self.request.min_bytes or size >= self._limit
        return enough or self.failed or not self._wanted

    def collect(self) -> None:
        """Look at every partition, in the session's order, until max_bytes are found."""
        self.answers = []
        self.partitions = []
        self.size = 0
        remaining = self._limit
        for fetched in self._wanted:
            try:
                answer = self._look(fetched, remaining)
            except KafkaError as error:
                answer = self._handler.refuse(fetched, error, self.context.api_version)
                self.failed = True
            if answer.records:
                size = len(answer.records)
                self.size += size
                remaining = max(0, remaining - size)
            self.answers.append((fetched, answer))

    def _look(self, fetched: FetchedPartition, remaining: int) -> PartitionData:
        wanted = fetched.wanted
        partition = self._handler.find(fetched)
        partition.require_leader(wanted.current_leader_epoch)
        if self._from_follower:
            # No broker but this one has a replica yet, so whoever claims to be one is not.
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.partitions.append(partition)
        log = partition.log
        high_watermark, last_stable = log.high_watermark, log.last_stable_offset
        answer = PartitionData(
            partition_index=wanted.partition,
            high_watermark=high_watermark,
            last_stable_offset=last_stable,
            log_start_offset=log.log_start_offset,
            aborted_transactions=[] if self._read_committed else None,
            records=b"",
        )
        if wanted.last_fetched_epoch >= 0 and self._diverges(partition, wanted, answer):
            return answer
        end = last_stable if self._read_committed else high_watermark
        size = min(wanted.partition_max_bytes, remaining)
        found = log.read(wanted.fetch_offset, size, limit=end, min_one=self.size == 0)
        partition.cells.fetches.value += 1
        if found:
            partition.cells.bytes_out.value += len(found)
            answer.records = found
            if self._read_committed:
                answer.aborted_transactions = [
                    AbortedTransaction(producer_id=txn.producer_id, first_offset=txn.first_offset)
                    for txn in log.aborted_transactions(wanted.fetch_offset, found.end_offset)
                ]
        return answer

    def _diverges(
        self, partition: Partition, wanted: FetchPartition, answer: PartitionData
    ) -> bool:
        """Whether the reader's last epoch ended earlier here than it believes (KIP-595)."""
        epoch, end = partition.log.offset_for_epoch(wanted.last_fetched_epoch)
        if end < 0:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if epoch >= wanted.last_fetched_epoch and end >= wanted.fetch_offset:
            return False
        answer.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end)
        self.failed = True
        return True


class _Parked:
    """A Fetch that waits for min_bytes: woken by its partitions, answered at max_wait at last."""

    def __init__(self, read: _Read, answer: Callable[[_Read], FetchResponse]) -> None:
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[FetchResponse] = self._loop.create_future()
        self._read = read
        self._answer = answer
        self._looking = False
        self._timer = self._loop.call_later(read.request.max_wait_ms / 1000, self._finish)
        self._partitions = read.partitions
        for partition in self._partitions:
            partition.readers.add(self)
        self.future.add_done_callback(self._leave)

    def woken(self) -> None:
        """Look again once per turn of the loop, however many appends it saw."""
        if not self._looking:
            self._looking = True
            self._loop.call_soon(self._look)

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

    def _leave(self, _: "asyncio.Future[FetchResponse]") -> None:
        self._timer.cancel()
        for partition in self._partitions:
            partition.readers.discard(self)


def _by_topic(answers: Answers) -> list[FetchableTopicResponse]:
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


def _error(wanted: FetchPartition, code: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=wanted.partition,
        error_code=code,
        high_watermark=-1,
        aborted_transactions=None,
        records=b"",
    )


def error_response(request: FetchRequest, code: ErrorCode, version: int) -> FetchResponse:
    """An error of the whole request or of its session.

    Before topic ids every partition tells it too: the first versions have no other place for it.
    """
    if version >= TOPIC_IDS_SINCE or code in SESSION_ERRORS:
        return FetchResponse(error_code=code, responses=[])
    return FetchResponse(
        error_code=code,
        responses=[
            FetchableTopicResponse(
                topic=topic.topic, partitions=[_error(wanted, code) for wanted in topic.partitions]
            )
            for topic in request.topics
        ],
    )
