"""Offset and time index against plain lists, and their bytes."""

from bisect import bisect_right
from struct import pack

from hypothesis import given
from hypothesis import strategies as st

from barnabas.storage.log.offset_index import OffsetIndex
from barnabas.storage.log.time_index import TimeIndex
from tests.support.mem_files import MemFile, MemFiles

steps = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 9000)), max_size=60)


@given(steps, st.integers(0, 4000), st.integers(0, 60), st.booleans())
def test_offset_index_finds_last_entry_not_after_the_offset(
    gaps: list[tuple[int, int]], offset: int, written: int, reopened: bool
) -> None:
    files = MemFiles()
    index = OffsetIndex(files, "/i", 100, 10_000)
    entries: list[tuple[int, int]] = []
    last, position = 100, 0
    for number, (offsets, size) in enumerate(gaps):
        last, position = last + offsets, position + size
        entries.append((last, position))
        index.append(last, position)
        if number == written:
            index.write()
    if reopened:
        index.write()
        index = OffsetIndex(files, "/i", 100, 10_000)
    target = 100 + offset
    at = bisect_right(entries, target, key=lambda e: e[0])
    assert index.lookup(target) == (entries[at - 1][1] if at else 0)
    at = bisect_right(entries, offset, key=lambda e: e[1])
    assert index.position_before(offset) == (entries[at - 1][1] if at else 0)
    index.truncate_to(target)
    kept = [e for e in entries if e[0] < target]
    assert [index.entry_at(i) for i in range(index.entries)] == [(o - 100, p) for o, p in kept]
    index.append(target, position + 1)
    assert index.lookup(target) == position + 1


@given(steps, st.integers(0, 300))
def test_time_index_never_skips_a_record_that_is_young_enough(
    gaps: list[tuple[int, int]], timestamp: int
) -> None:
    index = TimeIndex(MemFiles(), "/t", 7, 10_000)
    offset, entries = 7, [(-1, 7)]
    for offsets, time in gaps:
        offset += offsets
        index.maybe_append(time % 300, offset)
        if time % 300 > entries[-1][0]:
            entries.append((time % 300, offset))
    assert index.lookup(timestamp) == [o for t, o in entries if t < timestamp][-1]


def test_entries_have_kafkas_bytes() -> None:
    files = MemFiles()
    offsets = OffsetIndex(files, "/i", 1000, 80)
    offsets.append(1009, 5000)
    offsets.write()
    times = TimeIndex(files, "/t", 1000, 80)
    times.maybe_append(1_700_000_000_000, 1009)
    times.write()
    assert files.read_bytes("/i") == pack(">ii", 9, 5000)
    assert files.read_bytes("/t") == pack(">qi", 1_700_000_000_000, 9)


def test_index_is_full_at_its_maximum_size() -> None:
    index = OffsetIndex(MemFiles(), "/i", 0, 16)
    index.append(1, 10)
    assert index.entries < index.max_entries
    index.append(2, 20)
    assert index.entries == index.max_entries
    times = TimeIndex(MemFiles(), "/t", 0, 24)
    times.maybe_append(5, 1)
    assert times.entries == times.max_entries, "one entry is reserved for the roll"


def test_file_that_cannot_be_an_index_is_not_sane() -> None:
    files = MemFiles()
    files.open("/i", create=True).append(b"\0" * 13)
    assert not OffsetIndex(files, "/i", 0, 80).is_sane(1000)
    files.open("/j", create=True).append(pack(">ii", 3, 2000))
    assert not OffsetIndex(files, "/j", 0, 80).is_sane(1000)
    assert OffsetIndex(files, "/j", 0, 80).is_sane(3000)


class CountingFiles(MemFiles):
    """Files that count how often each one is opened."""

    opened = 0

    def open(self, path: str, *, create: bool = False) -> MemFile:
        self.opened += 1
        return super().open(path, create=create)


def test_sequential_reads_read_each_index_block_once() -> None:
    files = CountingFiles()
    index = OffsetIndex(files, "/i", 0, 8000)
    for number in range(1000):
        index.append(10 * number, 100 * number)
    index.write()
    files.opened = 0
    for offset in range(5, 10_000, 10):
        assert index.lookup(offset) == offset // 10 * 100
    assert files.opened < 20
    for offset in (9_999, 0, 5_000, 4_999, 1_280, 1_279, 1_270):
        assert index.lookup(offset) == offset // 10 * 100
    index.truncate_to(5_000)
    index.append(6_000, 70_000)
    assert (index.lookup(5_500), index.lookup(9_000)) == (49_900, 70_000)


def test_lookup_at_the_log_end_needs_no_file_access() -> None:
    files = CountingFiles()
    index = OffsetIndex(files, "/i", 0, 80_000)
    for number in range(1000):
        index.append(10 * number, 100 * number)
    assert files.size("/i")
    files.opened = 0
    for offset in range(9_000, 10_100):
        assert index.lookup(offset) == min(offset // 10, 999) * 100
        assert index.position_before(10 * offset) == min(offset // 10, 999) * 100
    assert files.opened == 0
