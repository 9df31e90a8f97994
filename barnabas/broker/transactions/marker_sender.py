"""The sender of markers: each partition of a decided transaction gets one (KIP-98, section 5).

A partition that this broker leads takes its marker in the call in which the decision is committed;
other brokers are sent theirs. A marker that cannot be written is tried again until it can, until
its topic is known to be deleted, or until this broker stops coordinating the transaction. A failing
partition does not delay the markers of others.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Final, Protocol

from barnabas.broker.cluster.cache import MetadataCache
from barnabas.broker.observability.logging import get_logger
from barnabas.broker.store.metadata_store import StoreError
from barnabas.broker.transactions.marker_routes import MarkerRoutes
from barnabas.broker.transactions.marker_writer import NOTHING_OPEN, MarkerWrite
from barnabas.coordinator.ports import Timers
from barnabas.coordinator.transaction.ending import MARKER_IN
from barnabas.coordinator.transaction.metadata import Markers, Producer
from barnabas.protocol.backoff import wait_after
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records.control import TxnMarker
from barnabas.protocol.topic_partition import TopicPartition

RETRY_MS: Final = 100
"""The wait before a failed marker is tried again; doubled after each further failure."""
LONGEST_RETRY_MS: Final = 1000
"""The longest wait before a retry. Thousands of markers for a partition that stays unavailable must
not keep the event loop busy."""
AT_ONCE: Final = 16
"""The partitions of a transaction up to which markers are written in the same call: less than a
millisecond."""
WRITTEN_PER_TURN: Final = 256
"""The number of markers that are written before the event loop runs other tasks: some
milliseconds."""
_FENCED: Final = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
_UNKNOWN: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER)
_IMPOSSIBLE: Final = (ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION)
"""The partition's leader does not support transactions, so none is open there."""
_log = get_logger(__name__)
_new = tuple.__new__


class _UnfinishedTransaction:
    """A decided transaction and the partitions that still wait for its marker."""

    __slots__ = ("index", "marker", "markers", "waiting")

    def __init__(
        self, index: int, markers: Markers, marker: TxnMarker, waiting: Iterable[TopicPartition]
    ) -> None:
        self.index = index
        self.markers = markers
        self.marker = marker
        self.waiting = set(waiting)


class _PendingMarker:
    """The `PendingMarker` of an unfinished transaction for one of its partitions."""

    __slots__ = ("_sender", "failures", "noted", "partition", "unfinished")

    def __init__(
        self, sender: "MarkerSender", unfinished: _UnfinishedTransaction, partition: TopicPartition
    ) -> None:
        self._sender = sender
        self.unfinished = unfinished
        self.partition = partition
        self.noted = ErrorCode.NONE
        """The latest error that is in the events of the transaction."""
        self.failures = 0

    @property
    def marker(self) -> TxnMarker:
        return self.unfinished.marker

    @property
    def wanted(self) -> bool:
        return self._sender.is_current(self.unfinished)

    def done(self, code: ErrorCode) -> None:
        self._sender.written(self, code)

    def retry(self) -> None:
        self._sender.due(self)


class LedMarkers(Protocol):
    """The writer of markers into partitions that this broker leads."""

    def put(self, place: TopicPartition, marker: TxnMarker, now_ms: int, /) -> bool:
        """Write a marker where it is committed when this returns; return whether it is."""
        ...

    def write_led(self, write: MarkerWrite, /) -> bool:
        """Write a marker if this broker leads its partition; return whether it does."""
        ...


class MarkerSender:
    """The markers of decided transactions. Everything runs on the event loop."""

    def __init__(
        self,
        cache: MetadataCache,
        routes: MarkerRoutes,
        timers: Timers,
        *,
        writer: LedMarkers,
        partition_exists: Callable[[str, int], Awaitable[bool]],
        finished: Callable[[str, Producer, int], None],
        noted: Callable[..., None],
    ) -> None:
        """`writer` writes the markers of partitions that this broker leads; `partition_exists` asks
        the metadata store, and may raise StoreError; `finished` is called when every partition has
        its marker, `noted` with an event of a transaction and the partitions that the event names;
        both with the partition of the transaction topic."""
        self._cache = cache
        self._routes = routes
        self._timers = timers
        self._writer = writer
        self._partition_exists = partition_exists
        self._finished = finished
        self._noted = noted
        self._unfinished: dict[str, _UnfinishedTransaction] = {}
        self._due: deque[_PendingMarker] = deque()
        self._large: deque[Iterator[_PendingMarker]] = deque()
        """The markers of large transactions that have not been sent yet."""
        self._scheduled = False
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def queued(self) -> int:
        """The number of markers that are not written yet."""
        return sum(len(each.waiting) for each in self._unfinished.values())

    def send(self, index: int, coordinator_epoch: int, markers: Markers, now_ms: int) -> bool:
        """Send the markers of a transaction of partition `index` of the transaction topic.

        Returns whether all of them are written, which the caller notes; otherwise `finished` is
        called when they are.
        """
        transactional_id, (producer_id, epoch), committed, partitions, version = markers
        fields = producer_id, epoch, coordinator_epoch, committed, version
        marker = _new(TxnMarker, fields)
        if len(partitions) <= AT_ONCE:
            left = partitions
            for each in sorted(partitions) if len(partitions) > 1 else partitions:
                if self._writer.put(each, marker, now_ms):
                    left = left.difference((each,))
            if not left:
                return True
            if len(left) < len(partitions):
                self._noted(index, transactional_id, MARKER_IN, *sorted(partitions - left))
            partitions = left
        unfinished = _UnfinishedTransaction(index, markers, marker, partitions)
        self._unfinished[transactional_id] = unfinished
        if len(partitions) > WRITTEN_PER_TURN:
            # To sort and to make very many takes long.
            self._large.append(_PendingMarker(self, unfinished, each) for each in partitions)
        elif len(partitions) > AT_ONCE:
            self._due += [_PendingMarker(self, unfinished, each) for each in sorted(partitions)]
        else:
            for each in sorted(partitions) if len(partitions) > 1 else partitions:
                pending = _PendingMarker(self, unfinished, each)
                if not self._writer.write_led(MarkerWrite(each, marker, pending.done)):
                    self._due.append(pending)
                if not pending.wanted:
                    # It is complete, or has been given up.
                    break
        if self._due or self._large:
            self._schedule()
        return False

    def resigned(self, index: int) -> None:
        """Drop the markers of a partition: another broker coordinates its transactions now."""
        for key, each in list(self._unfinished.items()):
            if each.index == index:
                del self._unfinished[key]
        self._routes.forget_unwanted()

    # -- calls of pending markers ----------------------------------------------------------------

    def is_current(self, unfinished: _UnfinishedTransaction) -> bool:
        return self._unfinished.get(unfinished.markers.transactional_id) is unfinished

    def due(self, pending: _PendingMarker) -> None:
        """Queue a marker to be sent."""
        self._due.append(pending)
        self._schedule()

    def written(self, pending: _PendingMarker, code: ErrorCode) -> None:
        """Take the outcome of a marker: a leader's answer, or NETWORK_EXCEPTION."""
        if not pending.wanted:
            return
        key, (topic, index) = pending.unfinished.markers.transactional_id, pending.partition
        if code is ErrorCode.NONE:
            self._note(pending, MARKER_IN, pending.partition)
            self._marked(pending)
        elif code is NOTHING_OPEN:
            self._note(pending, f"no marker in {topic}-{index}: newer epoch, no transaction open")
            _log.warning(
                "marker refused where no transaction is open: a newer epoch of the producer has "
                "written there",
                transactional_id=key,
                partition=f"{topic}-{index}",
                producer_id=pending.marker.producer_id,
                producer_epoch=pending.marker.producer_epoch,
            )
            self._marked(pending)
        elif code in _FENCED:
            self._refused(pending, code)
        elif code in _IMPOSSIBLE:
            self._note(pending, f"no marker in {topic}-{index}: {code.name}")
            _log.warning("marker not possible", partition=f"{topic}-{index}", error=code.name)
            self._marked(pending)
        else:
            # One event for each change of the error: events are few, and retries may be many.
            if pending.noted is not code:
                pending.noted = code
                self._note(pending, f"marker in {topic}-{index} not written yet: {code.name}")
            self._try_later(pending, code)

    def _note(self, pending: _PendingMarker, event: str, *named: TopicPartition) -> None:
        unfinished = pending.unfinished
        self._noted(unfinished.index, unfinished.markers.transactional_id, event, *named)

    # -- sending ---------------------------------------------------------------------------------

    def _schedule(self) -> None:
        # A later callback of the loop sends them: the response to EndTxn goes first, and markers
        # gather.
        if not self._scheduled:
            self._scheduled = True
            self._timers.call_later(0, self._send_due)

    def _send_due(self) -> None:
        self._scheduled = False
        due = [self._due.popleft() for _ in range(min(len(self._due), WRITTEN_PER_TURN))]
        while self._large and len(due) < WRITTEN_PER_TURN:
            more = list(islice(self._large[0], WRITTEN_PER_TURN - len(due)))
            due += more
            if not more:
                self._large.popleft()
        self._routes.route([each for each in due if each.wanted])
        if self._due or self._large:
            self._schedule()

    def _refused(self, pending: _PendingMarker, code: ErrorCode) -> None:
        """Give a transaction up: a newer coordinator was in the partition, or a newer epoch of the
        producer, whose transaction is open."""
        key, marker = pending.unfinished.markers.transactional_id, pending.marker
        topic, index = pending.partition
        del self._unfinished[key]
        self._note(pending, f"marker in {topic}-{index} refused for good: {code.name}")
        _log.error(
            "transaction cannot complete: a partition refuses its marker. DescribeTransactions "
            "shows the transaction in this state until another coordinator takes over; "
            "DescribeProducers shows the newer epochs in the partition",
            transactional_id=key,
            state=f"Prepare{'Commit' if marker.committed else 'Abort'}",
            partition=f"{topic}-{index}",
            error=code.name,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
        )

    def _marked(self, pending: _PendingMarker) -> None:
        unfinished = pending.unfinished
        unfinished.waiting.discard(pending.partition)
        if not unfinished.waiting:
            key = unfinished.markers.transactional_id
            del self._unfinished[key]
            self._finished(key, unfinished.markers.producer, unfinished.index)

    def _try_later(self, pending: _PendingMarker, code: ErrorCode) -> None:
        if code in _UNKNOWN and self._cache.partition(*pending.partition) is None:
            task = asyncio.get_running_loop().create_task(self._drop_if_deleted(pending))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            self._wait(pending)

    async def _drop_if_deleted(self, pending: _PendingMarker) -> None:
        """Drop a marker if the store has no such partition; our metadata may be old."""
        try:
            exists = await self._partition_exists(*pending.partition)
        except StoreError:
            exists = True
        except Exception as error:
            # The znode may be damaged. Without its marker the transaction would never end.
            topic, index = pending.partition
            _log.error(
                "deletion of a partition not checked",
                topic=topic,
                partition=index,
                exc_info=error,
            )
            exists = True
        if exists:
            self._wait(pending)
        elif pending.wanted:
            topic, index = pending.partition
            self._note(pending, f"{topic}-{index} is deleted")
            self._marked(pending)

    def _wait(self, pending: _PendingMarker) -> None:
        wait_ms = wait_after(pending.failures, RETRY_MS, LONGEST_RETRY_MS)
        pending.failures += 1
        self._timers.call_later(wait_ms / 1000, partial(self.due, pending))
