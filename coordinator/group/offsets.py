"""Committed offsets: OffsetCommit, OffsetFetch, OffsetDelete, and how offsets expire (KIP-211).

Offsets of open transactions will be held beside these, and `require_stable` will ask for them; no
transaction can commit offsets yet, so every committed offset is stable.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from barnabas.coordinator.group.group import Group
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
    """Committed offsets by group, topic and partition. Changed by `replay` only."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, Partitions]] = {}
        self.count = 0

    def __iter__(self) -> Iterator[CommittedOffset]:
        for group_id, topics in self._groups.items():
            for topic, partitions in topics.items():
                for partition, committed in partitions.items():
                    yield CommittedOffset(group_id, topic, partition, committed)

    def replay(self, record: OffsetRecord) -> None:
        """An offset was committed or forgotten."""
        group_id, topic, partition, committed = record
        if committed is not None:
            partitions = self._groups.setdefault(group_id, {}).setdefault(topic, {})
            self.count += partition not in partitions
            partitions[partition] = committed
            return
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
        """Tombstones for those of the partitions that have an offset."""
        known = self._groups.get(group_id, {}).get(topic, {})
        return [OffsetRecord(group_id, topic, each, None) for each in partitions if each in known]

    def forget_all(self, group_id: str) -> list[OffsetRecord]:
        """Tombstones for every offset of a group."""
        return [
            OffsetRecord(group_id, topic, partition, None)
            for topic, partitions in self.of_group(group_id).items()
            for partition in partitions
        ]

    def forget_topics(self, group_id: str, deleted: Mapping[str, bytes]) -> list[OffsetRecord]:
        """Tombstones for the offsets of topics that were deleted, given by name and id: another
        topic may have the name by now."""
        return [
            OffsetRecord(group_id, topic, partition, None)
            for topic, partitions in self.of_group(group_id).items()
            if topic in deleted
            for partition, committed in partitions.items()
            if not _other_topic(committed.topic_id, deleted[topic])
        ]

    def expired(self, group: Group, now_ms: int, retention_ms: int) -> list[OffsetRecord]:
        """Tombstones for offsets that nobody needs any more."""
        since = _retained_since(group)
        if since is None:
            return []
        return [
            OffsetRecord(group.group_id, topic, partition, None)
            for topic, partitions in self.of_group(group.group_id).items()
            if not group.is_subscribed(topic)
            for partition, committed in partitions.items()
            if _is_expired(committed, since(committed), now_ms, retention_ms)
        ]


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
