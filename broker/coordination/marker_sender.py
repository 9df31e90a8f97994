"""Sees to it that every partition of a decided transaction gets its marker (KIP-98, section 5).

What is decided is never given up: a marker that cannot be written now is tried again until it can,
until its topic is known to be deleted, or until this broker stops coordinating the transaction.
One partition's trouble holds up nobody else's marker.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from barnabas.broker.coordination.marker_routes import MarkerRoutes
from barnabas.broker.coordination.marker_writer import TxnMarker
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
_IMPOSSIBLE: Final = (ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION)
"""The partition's leader has no transactions at all, so none is open there."""
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


class _Errand:
    """`marker_line.Errand`: the marker of an unfinished transaction for one of its partitions."""

    __slots__ = ("_sender", "place", "retry_ms", "told", "unfinished")

    def __init__(
        self, sender: "MarkerSender", unfinished: _Unfinished, place: TopicPartition
    ) -> None:
        self._sender = sender
        self.unfinished = unfinished
        self.place = place
        self.told = ErrorCode.NONE
        """Why there is no marker yet, as the diary was told last."""
        self.retry_ms = RETRY_MS

    @property
    def marker(self) -> TxnMarker:
        return self.unfinished.marker

    @property
    def wanted(self) -> bool:
        return self._sender.is_current(self.unfinished)

    def done(self, code: ErrorCode) -> None:
        self._sender.written(self, code)

    def again(self) -> None:
        self._sender.due(self)


class MarkerSender:
    """Markers on their way, by transactional id. Everything runs on the event loop."""

    def __init__(
        self,
        cache: MetadataCache,
        routes: MarkerRoutes,
        timers: Timers,
        *,
        partition_exists: Callable[[str, int], Awaitable[bool]],
        finished: Callable[[str, Producer], None],
        noted: Callable[[str, str], None],
    ) -> None:
        """`partition_exists` asks the metadata store itself, and may raise StoreError; `finished`
        is told when all is marked, `noted` of each marker, in words."""
        self._cache = cache
        self._routes = routes
        self._timers = timers
        self._partition_exists = partition_exists
        self._finished = finished
        self._noted = noted
        self._unfinished: dict[str, _Unfinished] = {}
        self._due: deque[_Errand] = deque()
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
        self._due += [_Errand(self, unfinished, each) for each in sorted(unfinished.waiting)]
        self._schedule()

    def resigned(self, index: int) -> None:
        """Somebody else coordinates these transactions now, and sends their markers."""
        for key, each in list(self._unfinished.items()):
            if each.index == index:
                del self._unfinished[key]
        self._routes.forget_unwanted()

    # -- what errands ask ------------------------------------------------------------------------

    def is_current(self, unfinished: _Unfinished) -> bool:
        return self._unfinished.get(unfinished.markers.transactional_id) is unfinished

    def due(self, errand: _Errand) -> None:
        """It is time to try once more."""
        self._due.append(errand)
        self._schedule()

    def written(self, errand: _Errand, code: ErrorCode) -> None:
        """A leader has answered, or could not be asked."""
        if not errand.wanted:
            return
        key, (topic, index) = errand.unfinished.markers.transactional_id, errand.place
        if code is ErrorCode.NONE:
            self._noted(key, f"marker in {topic}-{index}")
            self._marked(errand)
        elif code in _FENCED:
            self._refused(errand, code)
        elif code in _IMPOSSIBLE:
            self._noted(key, f"no marker in {topic}-{index}: {code.name}")
            _log.warning("marker not possible", partition=f"{topic}-{index}", error=code.name)
            self._marked(errand)
        else:
            # Once for each reason: the diary is short, and this may go on for long.
            if errand.told is not code:
                errand.told = code
                self._noted(key, f"marker in {topic}-{index} not written yet: {code.name}")
            self._try_later(errand, code)

    # -- carrying --------------------------------------------------------------------------------

    def _schedule(self) -> None:
        # In a turn of its own: the answer to EndTxn goes first, and markers gather.
        if not self._scheduled:
            self._scheduled = True
            self._timers.call_later(0, self._carry_due)

    def _carry_due(self) -> None:
        self._scheduled = False
        for _ in range(min(len(self._due), WRITTEN_PER_TURN)):
            errand = self._due.popleft()
            if errand.wanted:
                self._routes.carry(errand)
        if self._due:
            self._schedule()

    def _refused(self, errand: _Errand, code: ErrorCode) -> None:
        """A newer coordinator or producer epoch has been in the partition: nothing more is sent."""
        key, marker = errand.unfinished.markers.transactional_id, errand.marker
        topic, index = errand.place
        del self._unfinished[key]
        self._noted(key, f"marker in {topic}-{index} refused for good: {code.name}")
        _log.error(
            "transaction cannot complete: a partition refuses its marker. DescribeTransactions "
            "shows it in this state until another coordinator takes over, DescribeProducers of the "
            "partition the epochs that were there first",
            transactional_id=key,
            state=f"Prepare{'Commit' if marker.committed else 'Abort'}",
            partition=f"{topic}-{index}",
            error=code.name,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
        )

    def _marked(self, errand: _Errand) -> None:
        unfinished = errand.unfinished
        unfinished.waiting.discard(errand.place)
        if not unfinished.waiting:
            key = unfinished.markers.transactional_id
            del self._unfinished[key]
            self._finished(key, unfinished.markers.producer)

    def _try_later(self, errand: _Errand, code: ErrorCode) -> None:
        if code in _UNKNOWN and self._cache.partition(*errand.place) is None:
            task = asyncio.get_running_loop().create_task(self._drop_if_deleted(errand))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            self._wait(errand)

    async def _drop_if_deleted(self, errand: _Errand) -> None:
        """Only the store can say that a partition is gone; this broker may just not know it yet."""
        try:
            exists = await self._partition_exists(*errand.place)
        except StoreError:
            exists = True
        except Exception as error:
            # A damaged node perhaps. Without its marker the transaction would never end.
            topic, index = errand.place
            _log.error("unclear whether deleted", topic=topic, partition=index, exc_info=error)
            exists = True
        if exists:
            self._wait(errand)
        elif errand.wanted:
            topic, index = errand.place
            self._noted(errand.unfinished.markers.transactional_id, f"{topic}-{index} is deleted")
            self._marked(errand)

    def _wait(self, errand: _Errand) -> None:
        seconds = errand.retry_ms / 1000
        errand.retry_ms = min(2 * errand.retry_ms, LONGEST_RETRY_MS)
        self._timers.call_later(seconds, partial(self.due, errand))
