"""Offsets that open transactions have committed (KIP-98): visible only when they end so.

Of several commits of one partition the one whose record stands last in the log counts, whatever
the order in which their transactions end; so a later commit supersedes the pending ones before it.
"""

from collections.abc import Iterator

from barnabas.coordinator.group.records import OffsetAndMetadata, OffsetRecord
from barnabas.protocol.topic_partition import TopicPartition

Pending = dict[int, OffsetAndMetadata | None]
"""By producer id, in the order of the log; None where a later commit counts already."""


class PendingOffsets:
    """Pending offsets by group and partition, and by producer. Changed by replay only."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[TopicPartition, Pending]] = {}
        self._producers: dict[int, set[tuple[str, TopicPartition]]] = {}

    def add(self, producer_id: int, record: OffsetRecord) -> None:
        """A transaction has committed an offset; its own earlier one no longer counts."""
        group_id, topic, partition, committed = record
        place = (topic, partition)
        pending = self._groups.setdefault(group_id, {}).setdefault(place, {})
        pending.pop(producer_id, None)
        pending[producer_id] = committed
        self._producers.setdefault(producer_id, set()).add((group_id, place))

    def supersede(self, group_id: str, topic: str, partition: int) -> None:
        """The partition's offset was committed outside of transactions."""
        pending = self._of(group_id, topic, partition)
        for producer_id in pending:
            pending[producer_id] = None

    def clear(self, group_id: str, topic: str, partition: int) -> None:
        """The partition's offset was forgotten, and what was pending for it."""
        place = (topic, partition)
        for producer_id in self._of(group_id, topic, partition):
            self._leave(producer_id, group_id, place)
        self._drop(group_id, place)

    def end(self, producer_id: int, committed: bool) -> list[OffsetRecord]:
        """A producer's transaction has ended; the offsets that count from now on."""
        counting = []
        for group_id, place in self._producers.pop(producer_id, ()):
            pending = self._groups[group_id][place]
            offset = pending[producer_id]
            if committed and offset is not None:
                counting.append(OffsetRecord(group_id, *place, offset))
                for earlier in _before(producer_id, pending):
                    pending[earlier] = None
            del pending[producer_id]
            if not pending:
                self._drop(group_id, place)
        return counting

    def __contains__(self, group_id: str) -> bool:
        """Whether an open transaction has offsets of the group."""
        return group_id in self._groups

    def has(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether an open transaction has an offset of the partition."""
        return bool(self._of(group_id, topic, partition))

    def of_group(self, group_id: str) -> Iterator[tuple[str, int, OffsetAndMetadata]]:
        """Topic, partition and offset of what is pending for a group and may come to count."""
        for (topic, partition), pending in self._groups.get(group_id, {}).items():
            for offset in pending.values():
                if offset is not None:
                    yield topic, partition, offset

    def _of(self, group_id: str, topic: str, partition: int) -> Pending:
        return self._groups.get(group_id, {}).get((topic, partition), {})

    def _leave(self, producer_id: int, group_id: str, place: TopicPartition) -> None:
        places = self._producers[producer_id]
        places.remove((group_id, place))
        if not places:
            del self._producers[producer_id]

    def _drop(self, group_id: str, place: TopicPartition) -> None:
        places = self._groups.get(group_id, {})
        if places.pop(place, None) is not None and not places:
            del self._groups[group_id]


def _before(producer_id: int, pending: Pending) -> list[int]:
    order = list(pending)
    return order[: order.index(producer_id)]
