"""Offsets that open transactions have committed (KIP-98): visible once the transaction commits.

Among several commits of one partition the one whose record is last in the log counts, regardless of
the order in which their transactions end: a later commit supersedes the pending ones before it.
"""

from collections.abc import Iterator

from barnabas.coordinator.group.records import OffsetAndMetadata, OffsetRecord
from barnabas.protocol.topic_partition import TopicPartition

Pending = dict[int, OffsetAndMetadata | None]
"""By producer id, in the order of the log; None if a later commit counts already."""


class PendingOffsets:
    """Pending offsets by group and partition, and by producer. Changed by replay only."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[TopicPartition, Pending]] = {}
        self._producers: dict[int, set[tuple[str, TopicPartition]]] = {}

    def add(self, producer_id: int, record: OffsetRecord) -> None:
        """Add an offset of a transaction; its own earlier one no longer counts."""
        group_id, topic, partition, committed = record
        key = TopicPartition(topic, partition)
        pending = self._groups.setdefault(group_id, {}).setdefault(key, {})
        pending.pop(producer_id, None)
        pending[producer_id] = committed
        self._producers.setdefault(producer_id, set()).add((group_id, key))

    def supersede(self, group_id: str, topic: str, partition: int) -> None:
        """Apply a commit of the partition outside of transactions."""
        pending = self._of(group_id, topic, partition)
        for producer_id in pending:
            pending[producer_id] = None

    def clear(self, group_id: str, topic: str, partition: int) -> None:
        """Delete the pending offsets of a partition, whose committed offset is deleted."""
        key = TopicPartition(topic, partition)
        for producer_id in self._of(group_id, topic, partition):
            self._leave(producer_id, group_id, key)
        self._drop(group_id, key)

    def end(self, producer_id: int, committed: bool) -> Iterator[OffsetRecord | None]:
        """End a producer's transaction, and yield the offsets that count from now on; None for
        each of the others."""
        ending = self._producers.pop(producer_id, set())
        while ending:
            # Freed one by one: to free 100,000 together takes 40 ms.
            group_id, key = ending.pop()
            pending = self._groups[group_id][key]
            offset = pending[producer_id]
            if committed and offset is not None:
                for earlier in _before(producer_id, pending):
                    pending[earlier] = None
            del pending[producer_id]
            if not pending:
                self._drop(group_id, key)
            counts = committed and offset is not None
            yield OffsetRecord(group_id, *key, offset) if counts else None

    def __contains__(self, group_id: str) -> bool:
        """Whether an open transaction has offsets of the group."""
        return group_id in self._groups

    def has(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether an open transaction has an offset of the partition."""
        return bool(self._of(group_id, topic, partition))

    def of_group(self, group_id: str) -> Iterator[tuple[str, int, OffsetAndMetadata]]:
        """Yield topic, partition and offset of pending offsets of a group that may yet count."""
        for (topic, partition), pending in self._groups.get(group_id, {}).items():
            for offset in pending.values():
                if offset is not None:
                    yield topic, partition, offset

    def _of(self, group_id: str, topic: str, partition: int) -> Pending:
        return self._groups.get(group_id, {}).get(TopicPartition(topic, partition), {})

    def _leave(self, producer_id: int, group_id: str, key: TopicPartition) -> None:
        keys = self._producers[producer_id]
        keys.remove((group_id, key))
        if not keys:
            del self._producers[producer_id]

    def _drop(self, group_id: str, key: TopicPartition) -> None:
        keys = self._groups.get(group_id, {})
        if keys.pop(key, None) is not None and not keys:
            del self._groups[group_id]


def _before(producer_id: int, pending: Pending) -> list[int]:
    order = list(pending)
    return order[: order.index(producer_id)]
