"""Committed offsets: OffsetCommit, OffsetFetch, OffsetDelete, and how offsets expire (KIP-211).

Offsets of open transactions are held beside these, in `pending.py`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from barnabas.coordinator.group.group import Group
from barnabas.coordinator.group.pending import PendingOffsets
from barnabas.coordinator.group.records import OffsetAndMetadata, OffsetRecord
from barnabas.coordinator.group.states import GroupState
from barnabas.protocol.types import ZERO_UUID

Partitions = dict[int, OffsetAndMetadata]


class CommittedOffset(NamedTuple):
    """One committed offset, and whose it is."""

    group_id: str
    topic: str
    partition: int
    committed: OffsetAndMetadata


class Offsets:
    """Committed offsets by group, topic and partition. Changed by replay only."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, Partitions]] = {}
        self.pending = PendingOffsets()
        self.count = 0

    def __iter__(self) -> Iterator[CommittedOffset]:
        for group_id, topics in self._groups.items():
            for topic, partitions in topics.items():
                for partition, committed in partitions.items():
                    yield CommittedOffset(group_id, topic, partition, committed)

    def replay(self, record: OffsetRecord, producer_id: int) -> None:
        """An offset was committed, by an open transaction if there is a producer, or forgotten."""
        group_id, topic, partition, committed = record
        if committed is None:
            self._forget(group_id, topic, partition)
            self.pending.clear(group_id, topic, partition)
        elif producer_id >= 0:
            self.pending.add(producer_id, record)
        else:
            self.pending.supersede(group_id, topic, partition)
            self._keep(group_id, topic, partition, committed)

    def replay_marker(self, producer_id: int, committed: bool) -> None:
        """A producer's transaction has ended."""
        for group_id, topic, partition, offset in self.pending.end(producer_id, committed):
            assert offset is not None
            self._keep(group_id, topic, partition, offset)

    def _keep(
        self, group_id: str, topic: str, partition: int, committed: OffsetAndMetadata
    ) -> None:
        partitions = self._groups.setdefault(group_id, {}).setdefault(topic, {})
        self.count += partition not in partitions
        partitions[partition] = committed

    def _forget(self, group_id: str, topic: str, partition: int) -> None:
        topics = self._groups.get(group_id, {})
        partitions = topics.get(topic, {})
        if partitions.pop(partition, None) is not None:
            self.count -= 1
            if not partitions:
                del topics[topic]
            if not topics:
                del self._groups[group_id]

    def of_group(self, group_id: str) -> dict[str, Partitions]:
        """All offsets of a group by topic; not to be changed."""
        return self._groups.get(group_id, {})

    def find(
        self, group_id: str, topic: str, partition: int, topic_id: bytes = ZERO_UUID
    ) -> OffsetAndMetadata | None:
        """A committed offset; None where there is none, or of a topic that only had this name."""
        committed = self._groups.get(group_id, {}).get(topic, {}).get(partition)
        if committed is None or _other_topic(committed.topic_id, topic_id):
            return None
        return committed

    def forget(self, group_id: str, topic: str, partitions: Iterable[int]) -> list[OffsetRecord]:
        """Tombstones for those of the partitions that have an offset, be it a pending one."""
        known = self._groups.get(group_id, {}).get(topic, {})
        return [
            OffsetRecord(group_id, topic, each, None)
            for each in partitions
            if each in known or self.pending.has(group_id, topic, each)
        ]

    def forget_all(self, group_id: str) -> list[OffsetRecord]:
        """Tombstones for every offset of a group, pending ones too."""
        return _tombstones(self._all(group_id))

    def forget_topics(self, group_id: str, deleted: Mapping[str, bytes]) -> list[OffsetRecord]:
        """Tombstones for the offsets of topics that were deleted, given by name and id: another
        topic may have the name by now."""
        return _tombstones(
            each
            for each in self._all(group_id)
            if each.topic in deleted
            and not _other_topic(each.committed.topic_id, deleted[each.topic])
        )

    def topics_of(self, group_id: str) -> set[str]:
        """The topics of which the group has offsets, committed or pending."""
        return {each.topic for each in self._all(group_id)}

    def _all(self, group_id: str) -> Iterator[CommittedOffset]:
        """A group's offsets, the committed ones and then the pending ones."""
        for topic, partitions in self.of_group(group_id).items():
            for partition, committed in partitions.items():
                yield CommittedOffset(group_id, topic, partition, committed)
        for topic, partition, committed in self.pending.of_group(group_id):
            yield CommittedOffset(group_id, topic, partition, committed)

    def expired(self, group: Group, now_ms: int, retention_ms: int) -> list[OffsetRecord]:
        """Tombstones for offsets that nobody needs any more; a transaction still needs them."""
        since = _retained_since(group)
        if since is None:
            return []
        return [
            OffsetRecord(group.group_id, topic, partition, None)
            for topic, partitions in self.of_group(group.group_id).items()
            if not group.is_subscribed(topic)
            for partition, committed in partitions.items()
            if _is_expired(committed, since(committed), now_ms, retention_ms)
            and not self.pending.has(group.group_id, topic, partition)
        ]


def _tombstones(offsets: Iterable[CommittedOffset]) -> list[OffsetRecord]:
    """One for each partition, though an offset of it may be committed and others pending."""
    places = dict.fromkeys(each[:3] for each in offsets)
    return [OffsetRecord(*place, None) for place in places]


def _other_topic(committed: bytes, asked: bytes) -> bool:
    return committed != asked and ZERO_UUID not in (committed, asked)


def _retained_since(group: Group) -> Callable[[OffsetAndMetadata], int] | None:
    """From when the retention of a group's offsets counts; None while all are kept.

    Of a simple consumer and of topics that a stable group has stopped reading: from the commit.
    Of an empty group: from when it became empty.
    """
    if group.protocol_type is None:
        return lambda committed: committed.commit_timestamp
    if group.state is GroupState.EMPTY:
        emptied_ms = group.state_timestamp_ms
        if emptied_ms < 0:
            return lambda committed: committed.commit_timestamp
        return lambda _: emptied_ms
    if (
        group.state is GroupState.STABLE
        and group.uses_consumer_protocol
        and group.subscribed_topics is not None
    ):
        return lambda committed: committed.commit_timestamp
    return None


def _is_expired(
    committed: OffsetAndMetadata, since_ms: int, now_ms: int, retention_ms: int
) -> bool:
    if committed.expire_timestamp >= 0:
        return now_ms >= committed.expire_timestamp
    return now_ms - since_ms >= retention_ms
