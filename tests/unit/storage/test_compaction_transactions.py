"""Compaction of transactions: aborted data supersedes nothing, markers outlive their data."""

from pathlib import Path

import pytest

from barnabas.protocol.records.control import ControlType, TxnMarker
from barnabas.storage.log.txn_index import encode
from barnabas.storage.producers.entry import AbortedTxn
from tests.support.markers import marker_batch
from tests.unit.storage.log_on_disk import DAY, NOW, LogOnDisk, put


@pytest.fixture
def log(tmp_path: Path) -> LogOnDisk:
    return LogOnDisk(tmp_path)


TXN = {"producer_id": 5, "producer_epoch": 0, "transactional": True}


def mark(log: LogOnDisk, kind: ControlType, first_offset: int = 0) -> AbortedTxn:
    """Append the marker of a transaction that began at `first_offset`, in a segment of its own."""
    base = log.end
    log.add_segment([marker_batch(TxnMarker(5, 0, 1, bool(kind)), NOW, offset=base)])
    txn = AbortedTxn(5, first_offset, base, base + 1)
    if kind is ControlType.ABORT:
        log.path(base, ".txnindex").write_bytes(encode(txn))
    return txn


def control_offsets(log: LogOnDisk) -> list[int]:
    return [header.base_offset for _, header in log.batches() if header.is_control]


def test_committed_record_supersedes_an_earlier_one(log: LogOnDisk) -> None:
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"), base_sequence=0, **TXN)
    mark(log, ControlType.COMMIT)
    put(log, (b"end", b"1"))
    log.compact()
    assert [(r.key, r.value) for r in log.records()] == [(b"a", b"2"), (b"end", b"1")]


def test_an_aborted_newer_value_never_removes_a_committed_older_one(log: LogOnDisk) -> None:
    put(log, (b"a", b"old"))
    put(log, (b"a", b"aborted"), (b"b", b"aborted"), base_sequence=0, **TXN)
    mark(log, ControlType.ABORT, 1)
    put(log, (b"end", b"1"))
    log.compact()
    assert [(r.key, r.value) for r in log.records()] == [(b"a", b"old"), (b"end", b"1")]


def test_an_aborted_tombstone_removes_nothing(log: LogOnDisk) -> None:
    put(log, (b"a", b"old"))
    put(log, (b"a", None), base_sequence=0, **TXN)
    mark(log, ControlType.ABORT, 1)
    put(log, (b"end", b"1"))
    log.compact()
    log.compact(first_dirty_offset=0, now_ms=NOW + 2 * DAY)
    assert [r.value for r in log.records()] == [b"old", b"1"]


def test_two_transactions_of_one_producer_are_distinguished(log: LogOnDisk) -> None:
    put(log, (b"a", b"aborted"), base_sequence=0, **TXN)
    mark(log, ControlType.ABORT)
    put(log, (b"a", b"committed"), base_sequence=1, **TXN)
    mark(log, ControlType.COMMIT)
    put(log, (b"b", b"1"), base_sequence=2, **TXN)
    mark(log, ControlType.ABORT, 4)
    put(log, (b"end", b"1"))
    log.compact()
    assert [r.value for r in log.records()] == [b"committed", b"1"]


def test_marker_stays_as_long_as_its_data_and_then_as_a_tombstone(
    log: LogOnDisk,
) -> None:
    put(log, (b"a", b"1"), base_sequence=0, **TXN)
    mark(log, ControlType.COMMIT)
    put(log, (b"end", b"1"))
    log.compact(now_ms=NOW + 10 * DAY)
    assert control_offsets(log) == [1], "its data is still there"
    put(log, (b"a", b"2"))
    log.compact(now_ms=NOW + 10 * DAY)
    log.compact(first_dirty_offset=0, now_ms=NOW + 10 * DAY)
    assert control_offsets(log) == [1], "its data is removed: its retention time begins"
    log.compact(first_dirty_offset=0, now_ms=NOW + 11 * DAY - 1)
    assert control_offsets(log) == [1]
    log.compact(first_dirty_offset=0, now_ms=NOW + 11 * DAY)
    assert control_offsets(log) == []


def test_the_last_marker_of_a_live_producer_stays_for_its_epoch(log: LogOnDisk) -> None:
    mark(log, ControlType.ABORT)
    put(log, (b"end", b"1"))
    live = {5: (-1, 0)}
    log.compact(now_ms=NOW, producers=live)
    log.compact(first_dirty_offset=0, now_ms=NOW + 2 * DAY, producers=live)
    _, first = next(log.batches())
    assert (first.base_offset, first.producer_epoch, first.record_count) == (0, 0, 0)


def test_txn_index_keeps_aborted_transactions_whose_data_was_read(
    log: LogOnDisk,
) -> None:
    put(log, (b"a", b"1"), base_sequence=0, **TXN)
    txn = mark(log, ControlType.ABORT)
    put(log, (b"end", b"1"))
    log.compact()
    assert log.path(0, ".txnindex").read_bytes() == encode(txn)
    log.compact(first_dirty_offset=0)
    assert not log.path(0, ".txnindex").exists(), "no record of it is left to be skipped"
