"""The lag in records of the groups that this broker coordinates, counted in the background.

Kafka's lag is a difference of offsets, which a scrape computes. Records have to be counted, from
the headers of batches, so a periodic task counts them for the metrics. A count is kept while
neither the committed offset nor the log has changed.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple

from barnabas.broker.groups.group_service import GroupService
from barnabas.broker.loop.periodic_tasks import PeriodicTasks
from barnabas.broker.replication.leader.record_work import Interrupted
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.protocol.errors import KafkaError, ProtocolError
from barnabas.protocol.records.group_lag import RecordLag
from barnabas.protocol.steps import Steps
from barnabas.storage.log.log import Log

INTERVAL_MS: Final = 10_000
"""Milliseconds between two counts."""

Key = tuple[str, str, int]
"""A group, a topic and a partition."""


class _View(NamedTuple):
    """A log as it was before a count. Compaction changes its size, a commit its last stable
    offset."""

    partition: Partition
    log: Log
    start: int
    last_stable_offset: int
    high_watermark: int
    size: int


class _Count(NamedTuple):
    """The count of a group in a partition."""

    view: _View
    committed: int
    to_read: int = 0
    held_back: int = 0
    counted_to: int = 0

    @property
    def is_complete(self) -> bool:
        return self.counted_to >= self.view.high_watermark


class RecordLags:
    """The records that consumers of each group will still be given, and those held back.

    Each count is of a partition with an in-sync replica here. A run looks at a bounded number of
    batches, in equal shares; beyond its share a count continues as Kafka's lag does.
    """

    def __init__(
        self,
        groups: GroupService,
        replicas: ReplicaManager,
        in_sync: Callable[[Partition], bool],
        max_batches: Callable[[], int],
    ) -> None:
        """`max_batches` returns `group.lag.counted.batches`; 0 counts nothing."""
        self._groups = groups
        self._replicas = replicas
        self._in_sync = in_sync
        self._max_batches = max_batches
        self._counts: dict[Key, _Count] = {}

    def schedule(self, tasks: PeriodicTasks) -> None:
        """Register the count as a periodic task."""
        tasks.every("records behind groups", lambda: INTERVAL_MS, self.refresh)

    def to_read(self) -> Iterator[tuple[tuple[str, str, str], float]]:
        """Yield the records to read by group, topic and partition."""
        for (group, topic, index), count in self._counts.items():
            beyond = count.view.last_stable_offset - max(count.counted_to, count.committed)
            yield (group, topic, str(index)), count.to_read + max(beyond, 0)

    def held_back(self) -> Iterator[tuple[tuple[str, str, str], float]]:
        """Yield the records held back by group, topic and partition."""
        for (group, topic, index), count in self._counts.items():
            view = count.view
            counted_to = max(count.counted_to, count.committed, view.last_stable_offset)
            beyond = view.high_watermark - counted_to
            yield (group, topic, str(index)), count.held_back + max(beyond, 0)

    async def refresh(self) -> None:
        """Count again where a committed offset or a log has changed."""
        left = self._max_batches()
        counts, changed = await self._look() if left > 0 else ({}, [])
        # Most groups need less than their share: the second pass has what they have left.
        for _ in range(2):
            unfinished, waiting = [], len(changed)
            for key in changed:
                share, waiting = left // waiting, waiting - 1
                count, batches = await self._count(counts[key], share)
                counts[key], left = count, left - batches
                if not count.is_complete:
                    unfinished.append(key)
            changed = unfinished
            if not changed:
                break
        self._counts = counts

    async def _look(self) -> tuple[dict[Key, _Count], list[Key]]:
        """Return the counts that hold, and new ones for the keys that must be counted."""
        slicer = self._replicas.record_work.slicer
        views: dict[tuple[str, int], _View | None] = {}
        counts: dict[Key, _Count] = {}
        changed = []
        async for offsets in slicer.each(self._groups.coordinator.offsets_by_group()):
            async for group, topic, index, committed in slicer.each(offsets):
                place = topic, index
                if place not in views:
                    views[place] = self._view(place)
                view, key = views[place], (group, topic, index)
                if view is None:
                    continue
                known = self._counts.get(key)
                if known is None or (known.view, known.committed) != (view, committed.offset):
                    known = _Count(view, committed.offset)
                    known = known._replace(counted_to=max(view.start, committed.offset))
                counts[key] = known
                if not known.is_complete:
                    changed.append(key)
        return counts, changed

    def _view(self, place: tuple[str, int]) -> _View | None:
        partition = self._replicas.find(place)
        if partition is None or not self._in_sync(partition) or not partition.log.is_whole:
            return None
        log = partition.log
        return _View(
            partition,
            log,
            log.log_start_offset,
            log.last_stable_offset,
            log.high_watermark,
            log.size,
        )

    async def _count(self, count: _Count, max_batches: int) -> tuple[_Count, int]:
        """Continue a count; return it with the number of batches that were looked at."""
        if max_batches <= 0:
            return count, 0
        try:
            found = await self._replicas.record_work.slicer.run(self._steps(count, max_batches))
        except (KafkaError, ProtocolError, Interrupted):
            # The offsets stand for the records. A consumer that reads the log reports the damage.
            return count, 1
        more = count._replace(
            to_read=count.to_read + found.to_read,
            held_back=count.held_back + found.held_back,
            counted_to=found.counted_to,
        )
        return more, found.batches

    def _steps(self, count: _Count, max_batches: int) -> Steps[RecordLag]:
        partition, log = count.view.partition, count.view.log
        is_same = partial(_is_same, partition, log)
        # The work may have waited for its turn. The files of a log that is gone are gone too.
        if not is_same():
            raise Interrupted
        counting = log.count_records(count.counted_to, max_batches)
        return (yield from self._replicas.record_work.carry_out(partition.topic, counting, is_same))


def _is_same(partition: Partition, log: Log) -> bool:
    """Return whether a count may continue: the log can be read."""
    return partition.log is log and log.is_whole
