"""Sees to it that every partition of a decided transaction gets its marker (KIP-98, section 5).

What is decided is never given up: a marker that cannot be written now is tried again until it can,
until its topic is known to be deleted, or until this broker stops coordinating the transaction.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, NamedTuple

from barnabas.broker.coordination.marker_writer import MarkerWriter, TxnMarker
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.metadata.store import StoreError
from barnabas.broker.observability.logging import get_logger
from barnabas.coordinator.ports import Timers
from barnabas.coordinator.transaction.ending import Markers
from barnabas.coordinator.transaction.metadata import Producer
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.topic_partition import TopicPartition

RETRY_MS: Final = 100
"""Until a marker is tried again that could not be written; twice as long each time after that."""
LONGEST_RETRY_MS: Final = 1000
"""Thousands of markers for a partition that is gone for long must not keep the loop busy."""
WRITTEN_PER_TURN: Final = 256
"""Markers that are written before the loop is for others again: some milliseconds."""
_FENCED: Final = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
_UNKNOWN: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER)
_log = get_logger(__name__)


class _Trouble(NamedTuple):
    """Why a partition has no marker yet, and how long to wait before the next try."""

    code: ErrorCode
    retry_ms: int


class _Unfinished:
    """A decided transaction and the partitions that still wait for its marker."""

    __slots__ = ("index", "marker", "markers", "troubles", "waiting")

    def __init__(self, index: int, coordinator_epoch: int, markers: Markers) -> None:
        self.index = index
        self.markers = markers
        self.waiting = set(markers.partitions)
        self.troubles: dict[TopicPartition, _Trouble] = {}
        self.marker = TxnMarker(
            markers.producer.producer_id,
            markers.producer.epoch,
            coordinator_epoch,
            markers.committed,
            markers.transaction_version,
        )


class MarkerSender:
    """Markers on their way, by transactional id. Everything runs on the event loop."""

    def __init__(
        self,
        cache: MetadataCache,
        writer: MarkerWriter,
        timers: Timers,
        *,
        partition_exists: Callable[[str, int], Awaitable[bool]],
        finished: Callable[[str, Producer], None],
        noted: Callable[[str, str], None],
    ) -> None:
        """`partition_exists` asks the metadata store itself, and may raise StoreError; `finished`
        is told when all is marked, `noted` of each marker, in words."""
        self._cache = cache
        self._writer = writer
        self._timers = timers
        self._partition_exists = partition_exists
        self._finished = finished
        self._noted = noted
        self._unfinished: dict[str, _Unfinished] = {}
        self._due: deque[tuple[_Unfinished, TopicPartition]] = deque()
        self._scheduled = False
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def queued(self) -> int:
        """Markers that are not written yet."""
        return sum(len(each.waiting) for each in self._unfinished.values())

    def send(self, index: int, coordinator_epoch: int, markers: Markers) -> None:
        """A transaction of partition `index` of the transaction topic is decided."""
        unfinished = _Unfinished(index, coordinator_epoch, markers)
        self._unfinished[markers.transactional_id] = unfinished
        self._due += [(unfinished, each) for each in unfinished.waiting]
        self._schedule()

    def resigned(self, index: int) -> None:
        """Somebody else coordinates these transactions now, and sends their markers."""
        for key, each in list(self._unfinished.items()):
            if each.index == index:
                del self._unfinished[key]

    def _schedule(self) -> None:
        # In a turn of its own: the answer to EndTxn goes first, and markers gather.
        if not self._scheduled:
            self._scheduled = True
            self._timers.call_later(0, self._write_due)

    def _write_due(self) -> None:
        self._scheduled = False
        for _ in range(min(len(self._due), WRITTEN_PER_TURN)):
            unfinished, place = self._due.popleft()
            if self._is_current(unfinished):
                done = partial(self._written, unfinished, place)
                self._writer.write(*place, unfinished.marker, done)
        if self._due:
            self._schedule()

    def _is_current(self, unfinished: _Unfinished) -> bool:
        return self._unfinished.get(unfinished.markers.transactional_id) is unfinished

    def _written(self, unfinished: _Unfinished, place: TopicPartition, code: ErrorCode) -> None:
        if not self._is_current(unfinished):
            return
        key = unfinished.markers.transactional_id
        if code is ErrorCode.NONE:
            self._noted(key, f"marker in {place[0]}-{place[1]}")
            self._marked(unfinished, place)
        elif code in _FENCED:
            self._refused(unfinished, place, code)
        else:
            known = unfinished.troubles.get(place)
            retry_ms = RETRY_MS if known is None else min(2 * known.retry_ms, LONGEST_RETRY_MS)
            unfinished.troubles[place] = _Trouble(code, retry_ms)
            # Once for each reason: the diary is short, and this may go on for long.
            if known is None or known.code is not code:
                self._noted(key, f"marker in {place[0]}-{place[1]} not written yet: {code.name}")
            self._try_later(unfinished, place, code)

    def _refused(self, unfinished: _Unfinished, place: TopicPartition, code: ErrorCode) -> None:
        """A newer coordinator or producer epoch has been in the partition: nothing more is sent."""
        key, marker = unfinished.markers.transactional_id, unfinished.marker
        del self._unfinished[key]
        self._noted(key, f"marker in {place[0]}-{place[1]} refused for good: {code.name}")
        _log.error(
            "transaction cannot complete: a partition refuses its marker. DescribeTransactions "
            "shows it in this state until another coordinator takes over, DescribeProducers of the "
            "partition the epochs that were there first",
            transactional_id=key,
            state=f"Prepare{'Commit' if marker.committed else 'Abort'}",
            partition=f"{place[0]}-{place[1]}",
            error=code.name,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
        )

    def _marked(self, unfinished: _Unfinished, place: TopicPartition) -> None:
        unfinished.waiting.discard(place)
        if not unfinished.waiting:
            key = unfinished.markers.transactional_id
            del self._unfinished[key]
            self._finished(key, unfinished.markers.producer)

    def _try_later(self, unfinished: _Unfinished, place: TopicPartition, code: ErrorCode) -> None:
        if code in _UNKNOWN and self._cache.partition(*place) is None:
            task = asyncio.get_running_loop().create_task(self._drop_if_deleted(unfinished, place))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            self._again(unfinished, place)

    async def _drop_if_deleted(self, unfinished: _Unfinished, place: TopicPartition) -> None:
        """Only the store can say that a partition is gone; this broker may just not know it yet."""
        try:
            exists = await self._partition_exists(*place)
        except StoreError:
            exists = True
        if exists:
            self._again(unfinished, place)
        elif self._is_current(unfinished):
            key = unfinished.markers.transactional_id
            self._noted(key, f"{place[0]}-{place[1]} is deleted")
            self._marked(unfinished, place)

    def _again(self, unfinished: _Unfinished, place: TopicPartition) -> None:
        seconds = unfinished.troubles[place].retry_ms / 1000
        self._timers.call_later(seconds, lambda: self._retry(unfinished, place))

    def _retry(self, unfinished: _Unfinished, place: TopicPartition) -> None:
        self._due.append((unfinished, place))
        self._schedule()
