"""The background count of the records behind committed offsets."""

from collections.abc import Iterator
from typing import Any

from barnabas.broker.groups.record_lags import RecordLags
from barnabas.coordinator.group.offsets import CommittedOffset
from barnabas.coordinator.group.records import OffsetAndMetadata
from barnabas.protocol.records.record import Record, build_batch
from tests.unit.broker.replication.replicas import Replicas

BATCH = build_batch([Record(0, 1, b"k", b"v", ()), Record(1, 1, b"k", b"v", ())])


class Groups:
    """The coordinator's committed offsets, by group and partition."""

    def __init__(self) -> None:
        self.offsets: dict[tuple[str, int], int] = {}
        self.coordinator = self

    def offsets_by_group(self) -> Iterator[list[CommittedOffset]]:
        for (group, index), offset in self.offsets.items():
            yield [CommittedOffset(group, "t", index, OffsetAndMetadata(offset, -1, "", -1))]


class Rig:
    def __init__(self, replicas: Replicas, max_batches: int = 100) -> None:
        self.replicas = replicas
        self.groups = Groups()
        self.max_batches = max_batches
        self.in_sync = True
        groups: Any = self.groups
        self.lags = RecordLags(
            groups, replicas.manager, lambda _: self.in_sync, lambda: self.max_batches
        )
        self.looked_at: list[tuple[int, int]] = []
        """Offset and bound of each count."""

    def append(self, times: int, index: int = 0, **kind: Any) -> None:
        partition = self.replicas.manager.partition("t", index)
        data = BATCH if not kind else build_batch([Record(0, 1, b"k", b"v", ())], **kind)
        for _ in range(times):
            partition.append(data, now_ms=1)

    async def counted(self) -> dict[tuple[str, int], tuple[float, float]]:
        await self.lags.refresh()
        held_back = dict(self.lags.held_back())
        return {
            (key[0], int(key[2])): (to_read, held_back[key]) for key, to_read in self.lags.to_read()
        }


async def rig(partitions: int = 1, max_batches: int = 100) -> Rig:
    replicas = Replicas()
    for index in range(partitions):
        await replicas.lead(index=index)
    return Rig(replicas, max_batches)


async def test_records_behind_each_committed_offset_are_counted() -> None:
    there = await rig()
    there.append(5)
    there.groups.offsets = {("a", 0): 0, ("b", 0): 7, ("c", 0): 10, ("d", 0): 99}
    zero = (0, 0)
    expected = {("a", 0): (10, 0), ("b", 0): (3, 0), ("c", 0): zero, ("d", 0): zero}
    assert await there.counted() == expected
    there.append(1)
    there.groups.offsets["b", 0] = 10
    del there.groups.offsets["d", 0]
    assert await there.counted() == {("a", 0): (12, 0), ("b", 0): (2, 0), ("c", 0): (2, 0)}


async def test_replica_out_of_sync_counts_nothing() -> None:
    there = await rig()
    there.append(5)
    there.groups.offsets = {("a", 0): 0, ("a", 1): 0}
    assert set(await there.counted()) == {("a", 0)}
    there.in_sync = False
    assert await there.counted() == {}


async def test_nothing_is_counted_if_it_is_switched_off() -> None:
    there = await rig()
    there.append(5)
    there.groups.offsets = {("a", 0): 0}
    there.max_batches = 0
    assert await there.counted() == {}


async def test_count_that_holds_is_not_repeated() -> None:
    there = await rig()
    there.append(5)
    there.groups.offsets = {("a", 0): 0}
    assert await there.counted() == {("a", 0): (10, 0)}
    log = there.replicas.manager.partition("t", 0).log

    def fail(offset: int, max_batches: int) -> Any:
        raise AssertionError((offset, max_batches))

    log.count_records = fail  # type: ignore[method-assign]
    assert await there.counted() == {("a", 0): (10, 0)}


async def test_groups_share_the_bound_and_the_rest_counts_as_offsets() -> None:
    there = await rig(partitions=2, max_batches=30)
    there.append(100, index=0)
    there.append(4, index=1)
    there.groups.offsets = {("far", 0): 0, ("near", 1): 0}
    assert await there.counted() == {("far", 0): (200, 0), ("near", 1): (8, 0)}
    count = there.lags._counts["far", "t", 0]
    # 15 of its own share, and 11 that the near group has left.
    assert (count.to_read, count.counted_to) == (52, 52)
    assert await there.counted() == {("far", 0): (200, 0), ("near", 1): (8, 0)}
    # The next run goes on where this one stopped.
    assert there.lags._counts["far", "t", 0].counted_to == 112


async def test_records_behind_an_open_transaction_are_held_back() -> None:
    there = await rig()
    there.append(2)
    log = there.replicas.manager.partition("t", 0).log
    producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    data = build_batch([Record(0, 1, b"k", b"v", ())], **producer)
    log.append(bytearray(data), leader_epoch=0, now_ms=1)
    there.append(3)
    there.groups.offsets = {("a", 0): 0, ("b", 0): 4, ("c", 0): 6}
    counted = await there.counted()
    assert counted == {("a", 0): (4, 7), ("b", 0): (0, 7), ("c", 0): (0, 5)}
    there.max_batches = 3
    there.groups.offsets = {("d", 0): 0}
    assert await there.counted() == {("d", 0): (4, 7)}


async def test_count_that_is_over_its_bound_and_has_changed_begins_again() -> None:
    there = await rig(max_batches=4)
    there.append(10)
    there.groups.offsets = {("a", 0): 0}
    assert await there.counted() == {("a", 0): (20, 0)}
    there.replicas.manager.partition("t", 0).log.delete_records_before(18)
    assert await there.counted() == {("a", 0): (2, 0)}
