"""A log that is damaged before the place where it is cut: it is cut all the same."""

import pytest

from barnabas.protocol.records.batch import HEADER_SIZE
from barnabas.protocol.records.control import ControlType, Marker, build_marker
from barnabas.storage.log import Log
from barnabas.storage.mem_files import MemFiles
from barnabas.storage.rearrangement import Rearrangement, Steps
from barnabas.storage.truncation import truncate
from barnabas.storage.validator import Origin
from tests.unit.storage.log_bench import NOW, disk, load, offsets, put
from tests.unit.storage.test_recovery import damage

COUNT_AT = HEADER_SIZE - 4


@pytest.mark.parametrize("position", [8, 16, 26])
def test_a_log_is_cut_though_the_first_header_of_its_segment_is_rotten(position: int) -> None:
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
    """An aborted transaction and what another producer wrote; where the marker is, and its size."""
    log = load(files)
    put(log, b"x", base_sequence=0, transactional=True, producer_id=1, producer_epoch=0)
    marker = Marker(ControlType.ABORT, 0)
    data = build_marker(marker, offset=0, timestamp=NOW, producer_id=1, producer_epoch=0)
    log.append_as_leader(data, leader_epoch=0, now_ms=NOW, origin=Origin.COORDINATOR)
    for sequence in range(3):
        put(log, b"y", base_sequence=sequence, producer_id=2, producer_epoch=0)
    located = log.segments.active.locate(1)
    assert located is not None
    return log, located[0], located[1].size


@pytest.mark.parametrize("at", range(COUNT_AT, 78))
def test_a_log_is_cut_though_a_marker_in_it_is_rotten(at: int) -> None:
    files = disk()
    log, position, size = with_a_marker(files)
    assert size == 78
    damage(files, log.segments.active.path(".log"), position + at)
    truncate(log, 4, now_ms=NOW).complete()
    assert (log.truncating, log.rearrangement, log.log_end_offset) == (False, None, 4)
    known = log.producers.entry(2)
    assert known is not None
    assert known.last_sequence == 1, "of what comes after the damage nothing is forgotten"
    assert put(log, b"z", base_sequence=2, producer_id=2, producer_epoch=0) == 4


def test_a_change_that_fails_otherwise_is_not_gone_on_with() -> None:
    log, went_on = load(disk()), []

    def fails() -> None:
        raise ZeroDivisionError

    def steps() -> Steps:
        yield fails
        went_on.append(True)

    change = Rearrangement(log, steps())
    change.run()
    with pytest.raises(ZeroDivisionError):
        change.advance()
    log.settle()
    assert (change.done, log.rearrangement, went_on) == (True, None, [])
    assert log.log_dir.failure is None
