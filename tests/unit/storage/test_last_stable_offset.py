"""The last stable offset: held back by open transactions and by uncommitted markers."""

import pytest

from barnabas.config.topic import TopicConfig
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.records.control import TxnMarker
from barnabas.storage.log.log import Log
from barnabas.storage.log.truncation import truncate
from barnabas.storage.origin import Origin
from barnabas.storage.producers.entry import AbortedTxn
from tests.support.mem_files import MemFiles
from tests.unit.storage.log_bench import NOW, batch, disk, load, retain


@pytest.fixture
def files() -> MemFiles:
    return disk()


@pytest.fixture
def log(files: MemFiles) -> Log:
    return load(files)


def send(log: Log, producer: int, sequence: int = 0, size: int = 1) -> int:
    data = batch(
        b"v" * size,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=True,
    )
    return log.append(data, leader_epoch=0, now_ms=NOW).first_offset


def mark(log: Log, producer: int, *, committed: bool = False) -> int:
    marker = TxnMarker(producer, 0, 0, committed).packed(NOW)[0]
    return log.append(
        bytearray(marker), leader_epoch=0, now_ms=NOW, origin=Origin.COORDINATOR
    ).first_offset


def commit_all(log: Log) -> None:
    log.advance_high_watermark(log.log_end_offset)


def test_last_stable_offset_without_open_transaction_is_the_high_watermark(log: Log) -> None:
    assert log.last_stable_offset == 0
    send(log, 1)
    mark(log, 1)
    assert log.last_stable_offset == 0
    commit_all(log)
    assert log.last_stable_offset == 2


def test_oldest_open_transaction_holds_the_last_stable_offset_back(log: Log) -> None:
    send(log, 1)
    mark(log, 1)
    first = send(log, 2)
    second = send(log, 3)
    mark(log, 1)
    commit_all(log)
    assert log.last_stable_offset == first
    mark(log, 2)
    commit_all(log)
    assert log.last_stable_offset == second


@pytest.mark.parametrize("committed", [True, False])
def test_a_transaction_counts_as_open_until_its_marker_is_committed(
    log: Log, committed: bool
) -> None:
    first = send(log, 1)
    commit_all(log)
    marker = mark(log, 1, committed=committed)
    assert (log.high_watermark, log.last_stable_offset) == (marker, first)
    commit_all(log)
    assert log.last_stable_offset == marker + 1


def test_markers_in_another_order_than_the_beginnings_move_the_last_stable_offset(
    log: Log,
) -> None:
    first = send(log, 1)
    send(log, 2)
    mark(log, 2)
    commit_all(log)
    assert log.last_stable_offset == first
    mark(log, 1)
    assert log.last_stable_offset == first
    commit_all(log)
    assert log.last_stable_offset == log.log_end_offset


def test_last_stable_offset_is_never_before_the_log_start(log: Log) -> None:
    """DeleteRecords may delete the beginning of an open transaction."""
    send(log, 1)
    send(log, 1, 1)
    send(log, 1, 2)
    commit_all(log)
    log.delete_records_before(2)
    assert log.last_stable_offset == 2
    marker = mark(log, 1)
    commit_all(log)
    assert log.last_stable_offset == marker + 1
    assert log.aborted_transactions(2, marker + 1) == [AbortedTxn(1, 0, marker, marker + 1)]


def test_deleting_records_of_an_open_transaction_moves_the_last_stable_offset(log: Log) -> None:
    send(log, 1)
    commit_all(log)
    log.delete_records_before(1)
    assert log.last_stable_offset == log.high_watermark == 1
    with pytest.raises(KafkaError):
        log.delete_records_before(2)


def test_retention_that_passes_an_open_transaction_leaves_it_open(files: MemFiles) -> None:
    log = load(files, TopicConfig(segment_bytes=200, retention_bytes=100))
    send(log, 1)
    for sequence in range(1, 6):
        send(log, 1, sequence, 90)
    commit_all(log)
    assert retain(log, NOW) > 0
    start = log.log_start_offset
    assert start > 0
    assert log.last_stable_offset == start
    entry = log.producers.entry(1)
    assert entry is not None
    assert entry.current_txn_first_offset == 0
    marker = mark(log, 1)
    commit_all(log)
    assert log.last_stable_offset == marker + 1
    aborted = log.aborted_transactions(start, marker + 1)
    assert [(txn.producer_id, txn.first_offset) for txn in aborted] == [(1, 0)]


@pytest.mark.parametrize("clean", [True, False])
def test_an_open_transaction_is_open_after_a_restart(files: MemFiles, clean: bool) -> None:
    log = load(files)
    send(log, 1)
    mark(log, 1)
    log.roll(now_ms=NOW)
    first = send(log, 2)
    log.roll(now_ms=NOW)
    send(log, 3)
    if clean:
        log.close()
    else:
        files.kill()
    again = load(files, clean=clean)
    assert again.last_stable_offset == first
    marker = mark(again, 2)
    commit_all(again)
    assert again.last_stable_offset == marker - 1
    assert again.aborted_transactions(0, marker + 1) == [
        AbortedTxn(1, 0, 1, 2),
        AbortedTxn(2, first, marker, marker - 1),
    ]


def test_marker_that_is_kept_by_a_truncation_is_not_replicated_by_it(log: Log) -> None:
    """The rebuilt state comes from a snapshot, which does not tell that."""
    send(log, 1)
    mark(log, 1)
    log.roll(now_ms=NOW)
    send(log, 2)
    log.advance_high_watermark(1)
    truncate(log, 2, now_ms=NOW).complete()
    assert (log.log_end_offset, log.high_watermark, log.last_stable_offset) == (2, 1, 0)
    log.advance_high_watermark(2)
    assert log.last_stable_offset == 2


def test_marker_that_is_truncated_leaves_its_transaction_open(log: Log) -> None:
    send(log, 1)
    send(log, 2)
    mark(log, 1)
    log.advance_high_watermark(1)
    truncate(log, 2, now_ms=NOW).complete()
    log.advance_high_watermark(2)
    assert log.last_stable_offset == 0
    mark(log, 1)
    log.advance_high_watermark(3)
    assert log.last_stable_offset == 1
