"""Sees to it that every partition of a decided transaction gets its marker (KIP-98, section 5).

What is decided is never given up: a marker that cannot be written now is tried again until it can,
until its topic is known to be deleted, or until this broker stops coordinating the transaction.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from barnabas.broker.coordination.marker_writer import MarkerWriter, TxnMarker
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.observability.logging import get_logger
from barnabas.coordinator.ports import Timers
from barnabas.coordinator.transaction.ending import Markers
from barnabas.coordinator.transaction.metadata import Producer, TopicPartition
from barnabas.protocol.errors import ErrorCode

RETRY_MS: Final = 100
"""Until a marker is tried again that could not be written."""
_FENCED: Final = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
_UNKNOWN: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER)
_log = get_logger(__name__)


class _Unfinished:
    """A decided transaction and the partitions that still wait for its marker."""

    __slots__ = ("index", "marker", "markers", "waiting")

    def __init__(self, index: int, coordinator_epoch: int, markers: Markers) -> None:
        self.index = index
        self.markers = markers
        self.waiting = set(markers.partitions)
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
        topic_exists: Callable[[str], Awaitable[bool]],
        finished: Callable[[str, Producer], None],
        noted: Callable[[str, str], None],
    ) -> None:
        """`topic_exists` asks the metadata store itself; `finished` is told when all is marked,
        `noted` of each marker, in words."""
        self._cache = cache
        self._writer = writer
        self._timers = timers
        self._topic_exists = topic_exists
        self._finished = finished
        self._noted = noted
        self._unfinished: dict[str, _Unfinished] = {}
        self._due: list[tuple[_Unfinished, TopicPartition]] = []
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
        due, self._due = self._due, []
        for unfinished, place in due:
            if self._is_current(unfinished):
                done = partial(self._written, unfinished, place)
                self._writer.write(*place, unfinished.marker, done)

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
            # A newer coordinator or producer epoch has been here: the transaction is not ours.
            _log.warning("marker refused", transactional_id=key, partition=place, error=code.name)
            del self._unfinished[key]
        else:
            self._noted(key, f"marker in {place[0]}-{place[1]} not written yet: {code.name}")
            self._try_later(unfinished, place, code)

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
        """Only the store can say that a topic is gone; this broker may just not know it yet."""
        if await self._topic_exists(place[0]):
            self._again(unfinished, place)
        elif self._is_current(unfinished):
            self._noted(unfinished.markers.transactional_id, f"{place[0]} is deleted")
            self._marked(unfinished, place)

    def _again(self, unfinished: _Unfinished, place: TopicPartition) -> None:
        self._timers.call_later(RETRY_MS / 1000, lambda: self._retry(unfinished, place))

    def _retry(self, unfinished: _Unfinished, place: TopicPartition) -> None:
        self._due.append((unfinished, place))
        self._schedule()
