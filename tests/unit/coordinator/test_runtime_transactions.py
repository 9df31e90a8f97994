"""Transactional writes and markers in the runtime of coordinators, and their loading."""

import asyncio
from collections.abc import Iterable
from functools import partial
from itertools import count

import pytest

from barnabas.coordinator.decision import Call, Decision, TransactionWriter
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import NO_SEQUENCE, read_header
from barnabas.protocol.records.control import TxnMarker, read_marker
from barnabas.protocol.records.record import Record, build_batch, rewrite_batch
from tests.support.coordinator.harness import EPOCH, PRODUCER
from tests.support.coordinator.numbers_host import KEY, Host, Numbers, code_of_future


@pytest.fixture
async def host() -> Host:
    return await Host().load()


async def test_records_of_a_transaction_are_one_batch_of_its_producer(host: Host) -> None:
    guard = object()
    host.write(1, 2, producer=TransactionWriter(PRODUCER, EPOCH, guard))
    header = read_header(host.log.batches[0])
    assert header.is_transactional
    assert not header.is_control
    assert header[9:] == (PRODUCER, EPOCH, NO_SEQUENCE, 2)
    assert host.log.guards == [guard]
    assert host.numbers == []
    assert host.pending == {PRODUCER: [1, 2]}


@pytest.mark.parametrize(("committed", "numbers"), [(True, [1, 2]), (False, [])])
async def test_a_marker_ends_a_transaction(host: Host, committed: bool, numbers: list[int]) -> None:
    host.write(1, producer=TransactionWriter(PRODUCER, EPOCH))
    host.write(2, producer=TransactionWriter(PRODUCER, EPOCH))
    assert host.end(committed=committed) is None
    assert host.numbers == numbers
    assert host.pending == {}
    batch = host.log.batches[-1]
    header = read_header(batch)
    assert header[9:] == (PRODUCER, EPOCH, NO_SEQUENCE, 1)
    assert read_marker(batch, 0, header) == TxnMarker(PRODUCER, EPOCH, 7, committed)
    assert host.log.transaction_versions == [0, 0, 2]


async def test_kafka_17507_a_marker_is_answered_when_the_shard_shows_it(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.log.held = True
    written = host.write(1, producer=TransactionWriter(PRODUCER, EPOCH))
    answer = host.end()
    assert isinstance(answer, asyncio.Future)
    answered_before: list[bool] = []
    replay = host.shard.replay_marker

    def watched(producer_id: int, producer_epoch: int, committed: bool) -> Iterable[None]:
        answered_before.append(answer.done())
        return replay(producer_id, producer_epoch, committed)

    monkeypatch.setattr(host.shard, "replay_marker", watched)
    host.log.commit(1)
    assert isinstance(written, asyncio.Future)
    assert written.done()
    assert not answer.done()
    assert host.pending == {PRODUCER: [1]}
    host.log.release()
    assert await answer is None
    assert answered_before == [False]
    assert host.numbers == [1]


async def test_a_slow_marker_times_out_the_answer_and_may_be_written_again(host: Host) -> None:
    host.write(1, producer=TransactionWriter(PRODUCER, EPOCH))
    host.log.held = True
    answer = host.end()
    host.time.pass_ms(5_000)
    assert code_of_future(answer) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    again = host.end()
    host.log.release()
    assert await again is None
    assert host.numbers == [1]


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.TRANSACTION_COORDINATOR_FENCED, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
    ],
)
async def test_a_marker_that_the_log_refuses_changes_nothing(
    host: Host, fault: ErrorCode, told: ErrorCode
) -> None:
    host.write(1, producer=TransactionWriter(PRODUCER, EPOCH))
    host.log.refusal = KafkaError(fault)
    with pytest.raises(KafkaError) as refused:
        host.end()
    assert refused.value.code is told
    assert host.pending == {PRODUCER: [1]}


async def test_resignation_answers_waiting_marker_with_not_coordinator(host: Host) -> None:
    host.log.held = True
    answer = host.end()
    host.runtime.resigned(0)
    host.log.release()
    assert code_of_future(answer) is ErrorCode.NOT_COORDINATOR
    with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
        host.end()


async def test_a_marker_that_cannot_be_replayed_stops_the_partition(host: Host) -> None:
    host.write(667, producer=TransactionWriter(PRODUCER, EPOCH))
    host.log.held = True
    answer = host.end()
    host.log.release()
    assert code_of_future(answer) is ErrorCode.NOT_COORDINATOR
    assert isinstance(host.faults[0][1], ArithmeticError)


async def test_load_restores_open_committed_and_aborted_transactions(host: Host) -> None:
    for number, producer in enumerate((PRODUCER, 10, 11, PRODUCER)):
        host.write(number, producer=TransactionWriter(producer, EPOCH))
    host.write(9)
    host.end(10, committed=False)
    host.end(11)
    await host.load()
    assert host.numbers == [9, 2]
    assert host.pending == {PRODUCER: [0, 3]}
    host.end()
    assert host.numbers == [9, 2, 0, 3]


async def test_an_idempotent_batch_belongs_to_no_transaction() -> None:
    host = Host()
    records = [Record(0, 0, b"number", b"5")]
    host.log.append(build_batch(records, producer_id=PRODUCER, producer_epoch=0), 0)
    await host.load()
    assert host.numbers == [5]


async def test_marker_batch_emptied_by_compaction_is_skipped() -> None:
    host = Host()
    host.log.append(build_batch([Record(0, 0, b"number", b"5")]), 0)
    marker = TxnMarker(1, 0, 1, True).packed(0)[0]
    host.log.append(rewrite_batch(read_header(marker), []), 0)
    await host.load()
    assert host.numbers == [5]
    assert host.faults == []


async def test_long_load_of_markers_yields_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host = Host()
    for _ in range(5):
        host.log.append(
            TxnMarker(PRODUCER, EPOCH, 1, False).packed(0)[0],
            0,
        )
    host.log.batches = [b"".join(host.log.batches)]
    monkeypatch.setattr(host.time, "monotonic", count().__next__)
    host.runtime.elected(0, host.log)
    turns = 0
    while host.runtime.loading:
        await asyncio.sleep(0)
        turns += 1
    assert turns > 5


async def test_a_shard_is_made_for_a_partition_and_its_leader_epoch() -> None:
    made: list[tuple[int, int]] = []
    host = Host()
    host.log.leader_epoch = 4
    host.runtime._new_shard = lambda *of: made.append(of) or Numbers()  # type: ignore[func-returns-value]
    await host.load()
    assert made == [(0, 4)]


async def test_call_effects_run_when_decision_is_carried_out() -> None:
    called: list[str] = []
    host = await Host().load()
    effects = [Call(partial(called.append, "markers"))]
    host.runtime.write(0, KEY, lambda *_: Decision(None, effects=effects))
    assert called == ["markers"]
