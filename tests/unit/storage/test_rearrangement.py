"""Segments are swapped or dropped step by step, while the log is read, written, truncated and
closed."""

import threading
from collections.abc import Iterator

import pytest

from barnabas.protocol.records.batch import iter_headers
from barnabas.protocol.records.control import TxnMarker
from barnabas.storage.cleaning.cleaner import CompactionLimits, LogCleaner
from barnabas.storage.cleaning.cleaner_worker import InlineCleaner
from barnabas.storage.files.errors import LogDirFailed
from barnabas.storage.log.log import Log
from barnabas.storage.log.rearrangement import Rearrangement
from barnabas.storage.log.record_steps import at_once
from barnabas.storage.log.trim import drop_old_segments
from barnabas.storage.log.truncation import start_again, truncate
from barnabas.storage.origin import Origin
from tests.support.mem_files import Fault, MemFiles
from tests.unit.storage.log_bench import DIRECTORY, NOW, SMALL, disk, load, offsets, put

CONFIG = SMALL.replace(cleanup_policy=("compact",))
LIMITS = CompactionLimits(dedupe_buffer_bytes=1 << 20, bytes_per_second=1e18)
MOMENTS = range(5)
"""Numbers of half steps of a swap that are done: run, advance, run, advance."""


def filled(files: MemFiles) -> Log:
    """Return a durable log of some small segments that may be compacted, with an aborted
    transaction."""
    log = load(files, CONFIG)
    producer = {"producer_id": 1, "producer_epoch": 0}
    put(log, b"void", base_sequence=0, transactional=True, **producer)
    marker = TxnMarker(1, 0, 0, False).packed(NOW)[0]
    log.append(marker, leader_epoch=0, now_ms=NOW, origin=Origin.COORDINATOR)
    for number in range(40):
        put(log, b"%d" % number * 30, timestamp=NOW + number)
        if number % 3 == 0:
            log.roll(now_ms=NOW)
    log.advance_high_watermark(log.log_end_offset)
    log.recovery_point = log.flush()
    return log


def swap(files: MemFiles, log: Log) -> Rearrangement:
    """Return the swap of the first group that a cleaner has finished."""
    cleaner = LogCleaner(files, InlineCleaner(files).clean)
    cleaning = cleaner.start([log], LIMITS, NOW)
    assert cleaning is not None
    group = cleaning.next_group()
    assert group is not None
    assert len(group.replaced) > 1
    return cleaner.swap(cleaning, group)


def moments(change: Rearrangement) -> Iterator[int]:
    """Do one half step after another."""
    yield 0
    for number in MOMENTS[1:]:
        if number % 2:
            change.run()
        else:
            change.advance()
        yield number


def at_moment(moment: int) -> tuple[MemFiles, Log, Rearrangement]:
    files = disk()
    log = filled(files)
    change = swap(files, log)
    for number in moments(change):
        if number == moment:
            break
    return files, log, change


def newest(log: Log) -> list[int]:
    """Return the records of the segments after the first group: no operation removes them."""
    return [offset for offset in offsets(log) if offset >= 30]


def test_log_is_readable_and_writable_at_every_step_of_a_swap() -> None:
    files = disk()
    log = filled(files)
    whole = offsets(log)
    change = swap(files, log)
    seen = []
    for _ in moments(change):
        put(log, b"meanwhile")
        log.advance_high_watermark(log.log_end_offset)
        found = offsets(log)
        assert found[-1] == log.log_end_offset - 1
        assert set(range(36, log.log_end_offset)) <= set(found)
        assert at_once(log.offset_for_timestamp(NOW + 39)) is not None
        assert [txn.producer_id for txn in log.aborted_transactions(0, 3)] == [1]
        seen.append(len([offset for offset in found if offset <= whole[-1]]))
    assert change.done
    assert seen[0] == seen[1] == len(whole)
    assert seen[2] == seen[3] == seen[4] < len(whole)
    assert [n for n in files.listdir(DIRECTORY) if n.endswith((".cleaned", ".swap"))] == []
    log.close()
    assert offsets(load(files, CONFIG, clean=True)) == offsets(log)


@pytest.mark.parametrize("moment", MOMENTS)
def test_crash_at_any_step_of_a_swap_loses_nothing(moment: int) -> None:
    for seed in range(10):
        files, log, _ = at_moment(moment)
        put(log, b"meanwhile")
        end = log.flush()
        before = newest(log)
        files.crash(seed)
        again = load(files, CONFIG, recovery_point=end)
        assert again.log_end_offset == end
        assert newest(again) == before
        assert not [n for n in files.listdir(DIRECTORY) if n.endswith((".cleaned", ".swap"))]


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("offset", [0, 5, 20])
def test_truncation_during_a_swap_takes_effect(moment: int, offset: int) -> None:
    files, log, change = at_moment(moment)
    truncate(log, offset, now_ms=NOW).complete()
    assert change.done
    end = log.log_end_offset
    assert end <= offset
    for _ in range(20):
        put(log, b"anew" * 20)
    change.run()
    change.advance()
    after, last = offsets(log), log.log_end_offset
    assert after[-20:] == list(range(end, last))
    log.flush()
    files.kill()
    assert offsets(load(files, CONFIG)) == after


@pytest.mark.parametrize("moment", MOMENTS)
def test_log_that_starts_again_during_a_swap_keeps_no_old_segment(moment: int) -> None:
    files, log, change = at_moment(moment)
    start_again(log, 100, now_ms=NOW).complete()
    put(log, b"first")
    change.run()
    change.advance()
    log.flush()
    files.kill()
    assert offsets(load(files, CONFIG)) == [100]


@pytest.mark.parametrize("moment", MOMENTS)
def test_closing_during_a_swap_completes_it(moment: int) -> None:
    files, log, change = at_moment(moment)
    log.close()
    assert change.done
    names = files.listdir(DIRECTORY)
    assert [n for n in names if n.endswith((".cleaned", ".swap"))] == []
    assert offsets(load(files, CONFIG, clean=True)) == offsets(log)


@pytest.mark.parametrize("moment", MOMENTS)
def test_abandoned_log_is_not_changed_by_the_rest_of_a_swap(moment: int) -> None:
    files, log, change = at_moment(moment)
    log.abandon()
    before = files.listdir(DIRECTORY)
    while not change.done:
        change.run()
        change.advance()
    change.run()
    assert files.listdir(DIRECTORY) == before


@pytest.mark.parametrize("moment", MOMENTS)
def test_retention_during_a_swap_deletes_the_compacted_segment(moment: int) -> None:
    _, log, change = at_moment(moment)
    log.delete_records_before(35)
    dropped = drop_old_segments(log, now_ms=NOW)
    assert change.done
    assert dropped is not None
    dropped.complete()
    assert log.segments.first.base_offset > 0
    assert offsets(log) == list(range(35, log.log_end_offset))


@pytest.mark.parametrize("nth", [1, 4])
def test_disk_error_during_a_swap_takes_the_directory_offline(nth: int) -> None:
    files, log, change = at_moment(0)
    files.faults.append(Fault("rename", nth=nth))
    with pytest.raises(LogDirFailed):
        change.complete()
    assert change.done
    assert log.log_dir.failure is not None


def test_swap_of_a_missing_compacted_segment_loses_no_segment() -> None:
    files, log, change = at_moment(0)
    whole = offsets(log)
    files.unlink(f"{DIRECTORY}/{0:020d}.log.cleaned")
    with pytest.raises(LogDirFailed):
        change.complete()
    files.kill()
    assert offsets(load(files, CONFIG)) == whole


def test_truncation_waits_for_the_rename_in_another_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files, log, change = at_moment(2)
    renaming, go_on, rename = threading.Event(), threading.Event(), files.rename

    def slow_rename(source: str, target: str) -> None:
        renaming.set()
        assert go_on.wait(10)
        rename(source, target)

    monkeypatch.setattr(files, "rename", slow_rename)
    renamer = threading.Thread(target=change.run)
    renamer.start()
    assert renaming.wait(10)
    cutter = threading.Thread(target=lambda: truncate(log, 5, now_ms=NOW).complete())
    cutter.start()
    end = log.log_end_offset
    go_on.set()
    renamer.join(10)
    cutter.join(10)
    assert change.done
    assert log.log_end_offset <= 5 < end
    found = offsets(log)
    files.kill()
    assert offsets(load(files, CONFIG)) == found


def test_dropped_segments_are_unreadable_before_they_are_renamed() -> None:
    files = disk()
    log = filled(files)
    log.delete_records_before(30)
    change = drop_old_segments(log, now_ms=NOW)
    assert change is not None
    assert log.segments.first.base_offset > 0
    assert not [n for n in files.listdir(DIRECTORY) if n.endswith(".deleted")]
    kept = offsets(log)
    change.run()
    assert offsets(log) == kept
    change.advance()
    assert change.done
    assert log.to_delete


def test_swapped_in_segment_finds_each_batch() -> None:
    _, log, _ = at_moment(2)
    data = log.read(0, 1 << 20, limit=log.log_end_offset).read_bytes()
    for at, header in iter_headers(data):
        one = log.read(header.last_offset, 1, limit=log.log_end_offset).read_bytes()
        assert one == data[at : at + header.size]
