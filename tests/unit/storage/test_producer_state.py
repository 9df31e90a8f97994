"""Producer state: no duplicates, no gaps, epochs, open transactions, expiration."""

import pytest

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import MAX_SEQUENCE, read_header
from barnabas.protocol.records.control import ControlType, TxnMarker
from barnabas.protocol.records.record import Record, build_batch, rewrite_batch
from barnabas.storage.origin import Origin
from barnabas.storage.producers import state as state_module
from barnabas.storage.producers.entry import AbortedTxn, BatchMetadata
from barnabas.storage.producers.state import ProducerStateManager
from tests.unit.storage.producer_bench import PID, Partition, header, load


@pytest.fixture
def log() -> Partition:
    return Partition()


OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_repeat_of_any_of_the_last_five_batches_gets_its_offsets(log: Partition) -> None:
    for sequence in range(0, 14, 2):
        assert log.append(header(sequence, 2, timestamp=sequence)) is None
    for sequence in range(4, 14, 2):
        duplicate = log.append(header(sequence, 2))
        assert duplicate == BatchMetadata(sequence + 1, sequence + 1, 1, sequence)
        assert duplicate.first_offset == sequence
    assert log.end == 14


def test_batch_before_the_window_or_overlapping_is_out_of_order(log: Partition) -> None:
    for sequence in range(0, 14, 2):
        log.append(header(sequence, 2))
    assert log.refuses(header(2, 2)) is OUT_OF_ORDER
    assert log.refuses(header(12, 3)) is OUT_OF_ORDER
    assert log.refuses(header(13, 1)) is OUT_OF_ORDER
    assert log.refuses(header(15, 1)) is OUT_OF_ORDER


def test_prepare_changes_nothing_before_the_commit(log: Partition) -> None:
    update = log.prepare(header(0))
    assert list(log.state) == []
    assert log.state.map_end_offset == 0
    log.state.commit(update, 1)
    assert [entry.last_sequence for entry in log.state] == [0]
    assert log.state.map_end_offset == 1


def test_batches_without_producer_change_no_producer_state(log: Partition) -> None:
    log.append(read_header(build_batch([Record(0, 0, None, None)])))
    assert len(log.state) == 0
    assert log.state.map_end_offset == 1


def test_an_unknown_producer_may_begin_at_any_sequence(log: Partition) -> None:
    assert log.append(header(4711)) is None
    assert log.append(header(4712)) is None


@pytest.mark.parametrize("tail", [1, 5])
def test_sequences_wrap_to_zero(log: Partition, tail: int) -> None:
    log.append(header(MAX_SEQUENCE - tail + 1, tail))
    assert log.refuses(header(1)) is OUT_OF_ORDER
    assert log.append(header(0)) is None
    assert log.append(header(MAX_SEQUENCE - tail + 1, tail)) is not None


def test_one_batch_may_wrap_its_sequences(log: Partition) -> None:
    log.append(header(MAX_SEQUENCE - 1, 4))
    assert log.append(header(MAX_SEQUENCE - 1, 4)) is not None
    entry = log.state.entry(PID)
    assert entry is not None
    assert (BatchMetadata(*entry.batches[0]).first_sequence, entry.last_sequence) == (
        MAX_SEQUENCE - 1,
        1,
    )
    assert log.append(header(2)) is None


def test_a_new_epoch_begins_at_zero_and_forgets_the_window(log: Partition) -> None:
    log.append(header(0))
    assert log.refuses(header(1, epoch=1)) is OUT_OF_ORDER
    assert log.append(header(0, epoch=1)) is None
    entry = log.state.entry(PID)
    assert entry is not None
    assert (entry.producer_epoch, len(entry.batches)) == (1, 1)


def test_an_old_epoch_is_fenced_even_for_a_duplicate(log: Partition) -> None:
    log.append(header(0))
    log.append(header(0, epoch=1))
    assert log.refuses(header(0)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert log.refuses(header(1)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert log.refuses(header(1), Origin.COORDINATOR) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_follower_accepts_what_its_leader_accepted(log: Partition) -> None:
    log.append(header(0, epoch=3))
    log.append(header(77, epoch=2), Origin.REPLICATION)
    entry = log.state.entry(PID)
    assert entry is not None
    assert (entry.producer_epoch, entry.last_sequence) == (2, 77)


def test_batches_of_one_producer_in_one_append_are_checked_in_order() -> None:
    state = ProducerStateManager()
    batches = [(0, header(0, 2)), (0, header(2, 3)._replace(base_offset=2))]
    assert state.replay(b"", batches) == []
    entry = state.entry(PID)
    assert entry is not None
    assert [last for _, last, _, _ in entry.batches] == [1, 4]
    assert state.map_end_offset == 5


def test_an_open_transaction_holds_back_the_unstable_offset(log: Partition) -> None:
    log.append(header(0))
    log.append(header(1, transactional=True))
    log.append(header(2, transactional=True))
    assert log.state.first_unstable_offset == 1
    assert log.end_txn() == []
    assert log.state.first_unstable_offset == 1
    log.state.on_high_watermark(3)
    assert log.state.first_unstable_offset == 1
    log.state.on_high_watermark(4)
    assert log.state.first_unstable_offset is None


def test_aborted_transaction_is_indexed_with_its_last_stable_offset(
    log: Partition,
) -> None:
    log.append(header(0, producer_id=1, transactional=True))
    log.append(header(0, producer_id=2, transactional=True))
    log.append(header(0, producer_id=3, transactional=True))
    assert log.end_txn(ControlType.ABORT, producer_id=1) == [AbortedTxn(1, 0, 3, 1)]
    assert log.end_txn(ControlType.COMMIT, producer_id=2) == []
    assert log.end_txn(ControlType.ABORT, producer_id=3) == [AbortedTxn(3, 2, 5, 6)]


def test_marker_without_transaction_changes_only_the_epochs(log: Partition) -> None:
    assert log.end_txn(ControlType.ABORT, epoch=4, coordinator_epoch=2) == []
    entry = log.state.entry(PID)
    assert entry is not None
    assert (entry.producer_epoch, entry.coordinator_epoch, entry.batches) == (4, 2, ())
    assert log.refuses(header(1, epoch=4)) is OUT_OF_ORDER
    assert log.append(header(0, epoch=4)) is None


def test_marker_of_a_new_epoch_clears_the_window(
    log: Partition,
) -> None:
    log.append(header(0, transactional=True))
    log.end_txn()
    assert log.append(header(0, transactional=True)) is not None
    log.end_txn(epoch=1)
    assert log.append(header(0, epoch=1)) is None


def test_an_old_coordinator_is_fenced(log: Partition) -> None:
    log.append(header(0, transactional=True))
    log.end_txn(coordinator_epoch=5)
    with pytest.raises(KafkaError) as caught:
        log.end_txn(coordinator_epoch=4)
    assert caught.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    log.end_txn(coordinator_epoch=4, origin=Origin.REPLICATION)


def test_plain_batches_are_refused_while_the_producers_transaction_is_open(log: Partition) -> None:
    log.append(header(0, transactional=True))
    assert log.refuses(header(1)) is ErrorCode.INVALID_TXN_STATE
    log.append(header(1), Origin.REPLICATION)


def test_batch_emptied_by_compaction_still_counts() -> None:
    state = ProducerStateManager()
    marker = TxnMarker(PID, 0, 1, True).packed(1)[0]
    data = read_header(rewrite_batch(header(5, 3), []))
    control = read_header(rewrite_batch(read_header(marker), []))._replace(base_offset=3)
    state.replay(b"", [(0, data), (0, control)])
    entry = state.entry(PID)
    assert entry is not None
    assert (entry.last_sequence, entry.last_offset, entry.coordinator_epoch) == (7, 2, -1)


def test_idle_producers_expire_unless_a_transaction_is_open(log: Partition) -> None:
    log.append(header(0, producer_id=1, timestamp=1000))
    log.append(header(0, producer_id=2, timestamp=1001))
    log.append(header(0, producer_id=3, timestamp=0, transactional=True))
    assert sum(log.state.expire(1099, 100)) == 0
    assert sum(log.state.expire(1100, 100)) == 1
    assert [entry.producer_id for entry in log.state] == [2, 3]


def test_timestamp_of_the_future_keeps_no_producer_in_memory(log: Partition) -> None:
    log.append(header(0, timestamp=2**62))
    assert sum(log.state.expire(1000, 100)) == 0
    assert sum(log.state.expire(1099, 100)) == 0
    log.append(header(1, timestamp=2**62))
    assert sum(log.state.expire(1100, 100)) == 0
    assert sum(log.state.expire(1200, 100)) == 1


def test_producers_come_and_go_while_others_expire_step_by_step(
    log: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_module, "_EXPIRY_STEP", 2)
    for producer_id in range(6):
        log.append(header(0, producer_id=producer_id, timestamp=1000))
    steps = log.state.expire(1200, 100)
    assert next(steps) == 2
    for producer_id in (0, 6):
        log.append(header(1, producer_id=producer_id, timestamp=1190))
    assert next(steps) == 2
    assert next(steps) == 1
    assert [entry.producer_id for entry in log.state] == [0, 6]
    monkeypatch.setattr(state_module, "_EXPIRY_STEP", 1)
    steps = log.state.expire(1300, 100)
    assert next(steps) == 1
    log.state.reset(0)
    assert sum(steps) == 0


def test_deleting_records_forgets_no_producer(log: Partition) -> None:
    log.append(header(0))
    log.state.on_log_start(0)
    assert log.state.map_end_offset == 1
    log.state.on_log_start(10)
    assert len(log.state) == 1
    assert log.state.map_end_offset == 10


# --- snapshots


def test_snapshot_restores_open_transactions_in_offset_order(log: Partition) -> None:
    log.append(header(0, producer_id=2, transactional=True))
    log.append(header(0, producer_id=1, transactional=True))
    log.append(header(1, producer_id=2, transactional=True))
    restored = load(log.state, windows_known=True)
    assert restored.state.first_unstable_offset == 0
    restored.end_txn(producer_id=2)
    restored.state.on_high_watermark(100)
    assert restored.state.first_unstable_offset == 1


def test_a_snapshot_leaves_expired_producers_out(log: Partition) -> None:
    log.append(header(0, producer_id=1, timestamp=1000))
    log.append(header(0, producer_id=2, timestamp=2000))
    restored = load(log.state, windows_known=True, now_ms=6000)
    assert [entry.producer_id for entry in restored.state] == [2]


def test_windows_are_filled_from_the_batches_before_the_snapshot(log: Partition) -> None:
    headers = []
    for sequence in range(9):
        for producer_id in (1, 2):
            batch = header(sequence, producer_id=producer_id)
            headers.append(batch._replace(base_offset=log.end))
            log.append(batch)
    restored = load(log.state, windows_known=False)
    assert restored.state.windows_wanted
    restored.state.extend_windows(headers[12:])
    assert restored.state.windows_wanted
    restored.state.extend_windows(headers[6:12])
    assert not restored.state.windows_wanted
    assert list(restored.state) == list(log.state)


def test_windows_do_not_reach_into_an_earlier_epoch(log: Partition) -> None:
    headers = []
    for epoch in (0, 1):
        for sequence in range(2):
            batch = header(sequence, epoch=epoch)
            headers.append(batch._replace(base_offset=log.end))
            log.append(batch)
    restored = load(log.state, windows_known=False)
    restored.state.extend_windows(headers)
    assert not restored.state.windows_wanted
    assert list(restored.state) == list(log.state)


def test_no_windows_are_wanted_if_no_earlier_batch_can_exist(log: Partition) -> None:
    log.append(header(0))
    assert not load(log.state, windows_known=False).state.windows_wanted
