"""Truncation of logs that are damaged before the offset of the truncation."""

import pytest

from barnabas.protocol.records.batch import HEADER_SIZE
from barnabas.protocol.records.control import TxnMarker
from barnabas.storage.log.log import Log
from barnabas.storage.log.rearrangement import DiskSteps, Rearrangement
from barnabas.storage.log.truncation import truncate
from barnabas.storage.origin import Origin
from tests.support.mem_files import MemFiles
from tests.unit.storage.log_bench import NOW, damage, disk, load, offsets, put

COUNT_AT = HEADER_SIZE - 4


@pytest.mark.parametrize("position", [8, 16, 26])
def test_log_is_truncated_even_if_the_first_header_of_its_segment_is_damaged(position: int) -> None:
    files = disk()
    log = load(files)
    for _ in range(6):
        put(log, b"y" * 50)
    damage(files, log.segments.active.path(".log"), position)
    change = truncate(log, 5, now_ms=NOW)
    change.run()
    change.advance()
    change.complete()
    assert (log.truncating, log.rearrangement, log.log_end_offset) == (False, None, 5)
    assert put(log, b"z") == 5
    assert offsets(log, 4) == [4, 5]
    assert log.flush() == 6


def with_a_marker(files: MemFiles) -> tuple[Log, int, int]:
    """Return a log with an aborted transaction and another producer's records, and the position and
    size of the marker."""
    log = load(files)
    put(log, b"x", base_sequence=0, transactional=True, producer_id=1, producer_epoch=0)
    data = TxnMarker(1, 0, 0, False).packed(NOW)[0]
    log.append(data, leader_epoch=0, now_ms=NOW, origin=Origin.COORDINATOR)
    for sequence in range(3):
        put(log, b"y", base_sequence=sequence, producer_id=2, producer_epoch=0)
    located = log.segments.active.locate(1)
    assert located is not None
    return log, located[0], located[1].size


@pytest.mark.parametrize("at", range(COUNT_AT, 78))
def test_log_is_truncated_even_if_a_marker_in_it_is_damaged(at: int) -> None:
    files = disk()
    log, position, size = with_a_marker(files)
    assert size == 78
    damage(files, log.segments.active.path(".log"), position + at)
    truncate(log, 4, now_ms=NOW).complete()
    assert (log.truncating, log.rearrangement, log.log_end_offset) == (False, None, 4)
    known = log.producers.entry(2)
    assert known is not None
    assert known.last_sequence == 1, "the batches after the damage are known"
    assert put(log, b"z", base_sequence=2, producer_id=2, producer_epoch=0) == 4


def test_rearrangement_stops_at_an_error_that_is_no_disk_error() -> None:
    log, went_on = load(disk()), []

    def fails() -> None:
        raise ZeroDivisionError

    def steps() -> DiskSteps:
        yield fails
        went_on.append(True)

    change = Rearrangement(log, steps())
    change.run()
    with pytest.raises(ZeroDivisionError):
        change.advance()
    log.complete_rearrangement()
    assert (change.done, log.rearrangement, went_on) == (True, None, [])
    assert log.log_dir.failure is None
