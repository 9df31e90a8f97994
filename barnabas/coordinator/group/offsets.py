"""Committed offsets, and their expiration (KIP-211). Offsets of open transactions: `pending.py`."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from barnabas.coordinator.decision import AT_ONCE
from barnabas.coordinator.group.consumer.group import ConsumerGroup
from barnabas.coordinator.group.group import Group
from barnabas.coordinator.group.pending import PendingOffsets
from barnabas.coordinator.group.records import OffsetAndMetadata, OffsetRecord
from barnabas.coordinator.group.states import GroupState
from barnabas.protocol.types import ZERO_UUID

Partitions = dict[int, OffsetAndMetadata]


class CommittedOffset(NamedTuple):
    """One committed offset with its group and partition."""

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

    def groups(self) -> list[str]:
        """Return the groups that have committed offsets."""
        return list(self._groups)

    def replay(self, record: OffsetRecord, producer_id: int) -> None:
        """Apply a commit, of an open transaction if there is a producer, or a deletion."""
        group_id, topic, partition, committed = record
        if committed is None:
            self._forget(group_id, topic, partition)
            self.pending.clear(group_id, topic, partition)
        elif producer_id >= 0:
            self.pending.add(producer_id, record)
        else:
            self.pending.supersede(group_id, topic, partition)
            self._keep(group_id, topic, partition, committed)

    def replay_marker(self, producer_id: int, committed: bool) -> Iterable[None]:
        """Apply the end of a producer's transaction, in steps."""
        for number, record in enumerate(self.pending.end(producer_id, committed)):
            if number and not number % AT_ONCE:
                yield None
            if record is not None:
                assert record.committed is not None
                self._keep(*record[:3], record.committed)

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
        """Return all offsets of a group by topic; the caller must not change them."""
        return self._groups.get(group_id, {})

    def find(
        self, group_id: str, topic: str, partition: int, topic_id: bytes = ZERO_UUID
    ) -> OffsetAndMetadata | None:
        """Return a committed offset; None if it belongs to an earlier topic of the same name."""
        committed = self._groups.get(group_id, {}).get(topic, {}).get(partition)
        if committed is None or _other_topic(committed.topic_id, topic_id):
            return None
        return committed

    # The iterators of tombstones yield None for each offset that stays: they run in steps, while
    # markers may change the offsets.

    def forget(
        self, group_id: str, topic: str, partitions: Iterable[int]
    ) -> Iterator[OffsetRecord | None]:
        """Yield tombstones for those partitions that have an offset, pending ones included."""
        for each in partitions:
            known = self._groups.get(group_id, {}).get(topic, {})
            has_offset = each in known or self.pending.has(group_id, topic, each)
            yield OffsetRecord(group_id, topic, each, None) if has_offset else None

    def forget_all(self, group_id: str) -> Iterator[OffsetRecord | None]:
        """Yield tombstones for every offset of a group, pending ones included."""
        return _tombstones(self._all(group_id))

    def forget_topics(
        self, group_id: str, deleted: Mapping[str, bytes]
    ) -> Iterator[OffsetRecord | None]:
        """Yield tombstones for the offsets of deleted topics, given by name and id: another topic
        may have the same name now."""
        return _tombstones(
            each
            if each.topic in deleted
            and not _other_topic(each.committed.topic_id, deleted[each.topic])
            else None
            for each in self._all(group_id)
        )

    def topics_of(self, group_id: str) -> set[str]:
        """Return the topics for which the group has committed or pending offsets."""
        pending = (topic for topic, _, _ in self.pending.of_group(group_id))
        return {*self.of_group(group_id), *pending}

    def _all(self, group_id: str) -> Iterator[CommittedOffset]:
        """Yield a group's offsets of now, the committed ones and then the pending ones."""
        topics = [(topic, list(known.items())) for topic, known in self.of_group(group_id).items()]
        pending = list(self.pending.of_group(group_id))
        for topic, partitions in topics:
            for partition, committed in partitions:
                yield CommittedOffset(group_id, topic, partition, committed)
        for topic, partition, committed in pending:
            yield CommittedOffset(group_id, topic, partition, committed)

    def expired(
        self, group: Group | ConsumerGroup, now_ms: int, retention_ms: int
    ) -> Iterator[OffsetRecord | None]:
        """Yield tombstones for expired offsets, but not for one with a pending commit."""
        since = _retained_since(group)
        if since is None:
            return
        for topic, known in list(self.of_group(group.group_id).items()):
            yield None
            if group.is_subscribed(topic):
                continue
            for partition, committed in list(known.items()):
                is_expired = _is_expired(
                    committed, since(committed), now_ms, retention_ms
                ) and not self.pending.has(group.group_id, topic, partition)
                yield OffsetRecord(group.group_id, topic, partition, None) if is_expired else None


def _tombstones(offsets: Iterable[CommittedOffset | None]) -> Iterator[OffsetRecord | None]:
    """Yield one tombstone for each partition, which may have a committed and pending offsets."""
    seen = set()
    for each in offsets:
        tombstone = None if each is None else OffsetRecord(*each[:3], None)
        yield None if tombstone in seen else tombstone
        seen.add(tombstone)


def _other_topic(committed: bytes, asked: bytes) -> bool:
    return committed != asked and ZERO_UUID not in (committed, asked)


def _retained_since(group: Group | ConsumerGroup) -> Callable[[OffsetAndMetadata], int] | None:
    """Return the start of the retention of a group's offsets; None while all are kept.

    For a simple consumer, and for topics to which a stable group no longer subscribes, it is the
    commit. For an empty group, it is the time when the group became empty. A consumer group does
    not say when that was.
    """
    if isinstance(group, ConsumerGroup):
        return lambda committed: committed.commit_timestamp
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
