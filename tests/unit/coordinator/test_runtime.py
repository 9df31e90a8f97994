"""The runtime of coordinators: the order of writes, faults, and the load of a log."""

import asyncio
import gc
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from barnabas.coordinator.decision import (
    Call,
    Decision,
    DeferredAnswer,
    Instant,
    StartTimer,
    TransactionWriter,
)
from barnabas.coordinator.hosted_shard import Mode
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.java_hash import java_hash, partition_for, remembered_hash
from barnabas.protocol.records.batch import read_header
from barnabas.protocol.records.record import Record, build_batch
from barnabas.protocol.steps import Steps
from tests.support.coordinator.harness import EPOCH, PRODUCER
from tests.support.coordinator.numbers_host import KEY, Host, code_of_future


@pytest.fixture
async def host() -> Host:
    return await Host().load()


async def test_decision_committed_at_once_is_answered_at_once(host: Host) -> None:
    assert host.write(1) == []
    assert host.numbers == [1]


async def test_an_answer_waits_for_the_high_watermark_and_the_replay(host: Host) -> None:
    host.log.held = True
    answer = host.write(1)
    assert isinstance(answer, asyncio.Future)
    assert not answer.done()
    assert host.numbers == []
    host.log.release()
    assert host.numbers == [1]
    assert await answer == []


async def test_exclusive_decisions_of_a_key_see_committed_state(host: Host) -> None:
    host.log.held = True
    answers = [host.write(number) for number in (1, 2)]
    assert host.log.record_count == 1
    host.log.release()
    assert [await each for each in answers] == [[], [1]]


async def test_pipelined_decisions_do_not_wait_for_each_other(host: Host) -> None:
    host.log.held = True
    answers = [host.write(number, mode=Mode.PIPELINED) for number in (1, 2, 3)]
    assert host.log.record_count == 3
    host.log.release()
    await asyncio.gather(*answers)
    assert host.numbers == [1, 2, 3]


async def test_an_exclusive_decision_is_not_starved_by_pipelined_ones(host: Host) -> None:
    host.log.held = True
    host.write(1, mode=Mode.PIPELINED)
    exclusive = host.write(2)
    late = host.write(3, mode=Mode.PIPELINED)
    assert host.log.record_count == 1
    host.log.release()
    assert await exclusive == [1]
    assert await late == [1, 2]


async def test_an_exclusive_decision_waits_for_every_write_before_it(host: Host) -> None:
    host.log.held = True
    for number in (1, 2):
        host.write(number, mode=Mode.PIPELINED)
    exclusive = host.write(3)
    host.log.commit(1)
    assert host.numbers == [1]
    assert host.log.record_count == 2
    host.log.release()
    assert await exclusive == [1, 2]


async def test_many_waiting_decisions_do_not_recurse(host: Host) -> None:
    """Each was made inside of the one before, as soon as the log committed at once: 100 requests of
    a group ended the service of its partition."""
    host.log.held = True
    answers = [host.write(number) for number in range(500)]
    host.log.release()
    assert host.faults == []
    assert [len(await each) for each in answers] == list(range(500))  # type: ignore[misc]
    assert host.numbers == list(range(500))
    assert host.runtime._hosted[0]._queues == {}


@pytest.fixture
async def gathering(host: Host) -> Host:
    host.log.commits_at_once = False
    return host


def write_all(host: Host, *numbers: int) -> list[Any]:
    """Write each number under a key of its own; return the answers."""
    return [
        host.runtime.write(0, f"{number}", lambda *_, each=number: Decision(None, [each]))
        for number in numbers
    ]


async def test_decisions_of_one_iteration_are_one_batch(gathering: Host) -> None:
    answers = write_all(gathering, 1, 2, 3)
    assert gathering.log.batches == []
    gathering.time.pass_ms(0)
    assert [gathering.log.record_count, len(gathering.log.batches)] == [3, 1]
    assert gathering.numbers == [1, 2, 3]
    assert await asyncio.gather(*answers) == [None] * 3
    write_all(gathering, 4)
    gathering.time.pass_ms(0)
    assert gathering.numbers == [1, 2, 3, 4]


async def test_gathered_records_are_in_the_log_before_a_marker(gathering: Host) -> None:
    write_all(gathering, 1)
    gathering.end()
    assert [header.is_control for header in map(read_header, gathering.log.batches)] == [0, 1]


async def test_gathered_records_are_in_the_log_before_those_of_a_producer(gathering: Host) -> None:
    write_all(gathering, 1)
    gathering.write(2, producer=TransactionWriter(PRODUCER, EPOCH))
    producers = [header.producer_id for header in map(read_header, gathering.log.batches)]
    assert producers == [-1, PRODUCER]


async def test_exclusive_decision_waits_for_a_gathered_write(gathering: Host) -> None:
    answers = [gathering.write(number) for number in (1, 2)]
    gathering.time.pass_ms(0)
    gathering.time.pass_ms(0)
    assert [await each for each in answers] == [[], [1]]


async def test_records_that_are_refused_together_are_appended_alone(
    gathering: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = gathering.log.append

    def refusing(batch: bytes, *more: Any, **options: Any) -> int:
        if read_header(batch).record_count > 1 or b"66" in batch:
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE)
        return append(batch, *more, **options)

    monkeypatch.setattr(gathering.log, "append", refusing)
    first, refused, last = write_all(gathering, 1, 66, 2)
    gathering.time.pass_ms(0)
    assert [await first, await last] == [None, None]
    assert code_of_future(refused) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert gathering.numbers == [1, 2]


async def test_write_behind_a_refused_gathered_one_is_decided(gathering: Host) -> None:
    gathering.log.refusal = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    refused, waiting = (gathering.write(number) for number in (1, 2))
    gathering.time.call_later(0, lambda: setattr(gathering.log, "refusal", None))
    gathering.time.pass_ms(0)
    assert code_of_future(refused) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await waiting == []


async def test_many_gathered_bytes_do_not_wait(gathering: Host, monkeypatch: Any) -> None:
    monkeypatch.setattr("barnabas.coordinator.hosted_shard.GATHERED_BYTES", 20)
    write_all(gathering, 1000, 2000, 3000)
    assert [gathering.log.record_count, len(gathering.log.batches)] == [2, 1]
    gathering.time.pass_ms(0)
    assert gathering.numbers == [1000, 2000, 3000]


async def test_gathered_writes_are_not_appended_after_leadership_is_lost(gathering: Host) -> None:
    answers = write_all(gathering, 1)
    gathering.runtime.resigned(0)
    gathering.time.pass_ms(0)
    assert gathering.log.batches == []
    assert code_of_future(answers[0]) == ErrorCode.NOT_COORDINATOR


async def test_fault_of_a_gathered_append_ends_the_service(
    gathering: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> int:
        raise AssertionError("a bug")

    monkeypatch.setattr(gathering.log, "append", broken)
    answers = write_all(gathering, 1, 2)
    gathering.time.pass_ms(0)
    assert [index for index, _ in gathering.faults] == [0]
    assert code_of_future(answers[1]) == ErrorCode.NOT_COORDINATOR


async def test_keys_do_not_wait_for_each_other(host: Host) -> None:
    host.log.held = True
    host.write(1)
    host.runtime.write(0, "another", lambda *_: Decision(None, [2]))
    assert host.log.record_count == 2


async def test_a_slow_append_times_out_the_answer_but_not_the_decision(host: Host) -> None:
    host.log.held = True
    slow, queued = host.write(1), host.write(2)
    host.time.pass_ms(5_000)
    assert code_of_future(slow) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert code_of_future(queued) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert host.log.record_count == 1
    host.log.release()
    assert host.numbers == [1, 2]


async def test_answer_that_timed_out_in_the_queue_is_forgotten(host: Host) -> None:
    known = unanswered()
    host.log.held = True
    host.write(1)
    queued = host.write(2)
    deferred = host.runtime.write(0, KEY, lambda *_: Decision(DeferredAnswer()))
    host.time.pass_ms(5_000)
    late = (queued, deferred)
    assert {code_of_future(each) for each in late} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    host.log.release()
    assert host.numbers == [1, 2]
    assert unanswered() == known


def test_refused_decision_is_freed_without_the_collector(host: Host) -> None:
    def refuse(*_: object) -> Decision[int, None]:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)

    before = unanswered()
    gc.disable()
    try:
        with suppress(KafkaError):
            host.runtime.write(0, KEY, refuse)
        assert sum(isinstance(each, DeferredAnswer) for each in gc.get_objects()) == before
    finally:
        gc.enable()


def unanswered() -> int:
    """Return the number of answers in memory."""
    gc.collect()
    return sum(isinstance(each, DeferredAnswer) for each in gc.get_objects())


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
async def test_refused_append_is_answered_with_coordinator_error(
    host: Host, fault: ErrorCode, told: ErrorCode
) -> None:
    host.log.refusal = KafkaError(fault)
    with pytest.raises(KafkaError) as refused:
        host.write(1)
    assert refused.value.code is told
    host.log.refusal = None
    assert host.write(2) == []


async def test_next_decision_gets_commit_or_refusal_of_write(host: Host) -> None:
    heard: list[KafkaError | None] = []

    def decide(*_: object) -> Decision[int, None]:
        def then(error: KafkaError | None, _: Instant) -> Decision[int, None]:
            heard.append(error)
            return Decision(None, [error.code if error else 2])

        return Decision(None, [1], then=then)

    host.runtime.write(0, KEY, decide)
    assert heard == [None]
    assert host.numbers == [1, 2]


async def test_a_deferred_answer_is_given_by_a_later_decision_and_never_times_out(
    host: Host,
) -> None:
    deferred: DeferredAnswer[str] = DeferredAnswer()
    answer = host.runtime.write(0, KEY, lambda *_: Decision(deferred))
    host.time.pass_ms(60_000)
    assert isinstance(answer, asyncio.Future)
    assert not answer.done()
    effects = [Call(partial(deferred.give, "late"))]
    assert host.runtime.write(0, KEY, lambda *_: Decision(1, effects=effects)) == 1
    assert await answer == "late"


async def test_a_deferred_answer_of_a_queued_decision_never_times_out(host: Host) -> None:
    host.log.held = True
    host.write(1)
    deferred: DeferredAnswer[str] = DeferredAnswer()
    answer = host.runtime.write(0, KEY, lambda *_: Decision(deferred))
    host.log.release()
    host.time.pass_ms(60_000)
    assert isinstance(answer, asyncio.Future)
    assert not answer.done()
    deferred.give("late")
    assert await answer == "late"


async def test_decision_of_timer_waits_for_writes_of_its_key(host: Host) -> None:
    effect = StartTimer(("t",), 100, KEY, lambda _: Decision(None, [7]))
    host.runtime.write(0, KEY, lambda *_: Decision(None, effects=[effect]))
    host.log.held = True
    host.write(1)
    host.time.pass_ms(100)
    assert host.log.record_count == 1
    host.log.release()
    assert host.numbers == [1, 7]


async def test_resignation_answers_all_requests_with_not_coordinator(host: Host) -> None:
    deferred = host.runtime.write(0, KEY, lambda *_: Decision(DeferredAnswer()))
    timer = StartTimer(("t",), 9, KEY, lambda _: Decision(None))
    host.runtime.write(0, KEY, lambda *_: Decision(None, effects=[timer]))
    host.log.held = True
    flying, queued = host.write(1), host.write(2)
    host.runtime.resigned(0)
    answers = (deferred, flying, queued)
    assert {code_of_future(each) for each in answers} == {ErrorCode.NOT_COORDINATOR}
    host.log.release()
    assert host.time.running == 0
    with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
        host.write(3)


async def test_new_leader_epoch_loads_records_of_last_one(host: Host) -> None:
    for number in range(50):
        host.write(number)
    await host.load()
    assert host.numbers == list(range(50))
    assert host.runtime.read(0, lambda shard: shard.served)


async def test_a_load_waits_for_the_high_watermark() -> None:
    host = Host()
    host.log.held = True
    host.log.append(build_batch([Record(0, 0, b"number", b"5")]), 0)
    host.runtime.elected(0, host.log)
    for _ in range(10):
        await asyncio.sleep(0)
    with pytest.raises(KafkaError, match="COORDINATOR_LOAD_IN_PROGRESS"):
        host.write(6)
    host.log.release()
    await asyncio.sleep(0)
    assert host.numbers == [5]


async def test_a_load_begins_when_its_preparation_has_ended() -> None:
    prepared: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def prepare() -> Steps[None]:
        yield prepared

    host = Host(prepare=prepare)
    host.log.append(build_batch([Record(0, 0, b"number", b"5")]), 0)
    host.runtime.elected(0, host.log)
    for _ in range(10):
        await asyncio.sleep(0)
    assert host.runtime.loading
    with pytest.raises(KafkaError, match="COORDINATOR_LOAD_IN_PROGRESS"):
        host.write(6)
    prepared.set_result(None)
    await asyncio.wait_for(_until_loaded(host), 10)
    assert host.numbers == [5]


async def test_leadership_that_is_lost_during_the_preparation_is_forgotten() -> None:
    prepared: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def prepare() -> Steps[None]:
        yield prepared

    host = Host(prepare=prepare)
    host.runtime.elected(0, host.log)
    await asyncio.sleep(0)
    await host.runtime.close()
    with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
        host.write(6)
    assert not host.faults


async def _until_loaded(host: Host) -> None:
    while host.runtime.loading:  # noqa: ASYNC110
        await asyncio.sleep(0)


async def test_unknown_kinds_of_records_are_skipped() -> None:
    host = Host()
    records = [Record(0, 0, b"from the future", b"?"), Record(1, 0, b"number", b"5")]
    host.log.append(build_batch(records), 0)
    await host.load()
    assert host.numbers == [5]


async def test_a_damaged_log_is_not_served() -> None:
    host = Host()
    damaged = bytearray(build_batch([Record(0, 0, b"number", b"5")]))
    damaged[-1] ^= 1
    host.log.append(bytes(damaged), 0)
    await host.load()
    assert [index for index, _ in host.faults] == [0]
    with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
        host.write(1)


async def test_fault_in_replay_stops_partition(
    host: Host,
) -> None:
    host.log.held = True
    answer = host.write(666)
    host.log.release()
    assert code_of_future(answer) is ErrorCode.NOT_COORDINATOR
    assert isinstance(host.faults[0][1], ArithmeticError)


async def test_fault_in_a_replay_at_once_answers_the_write_that_caused_it(host: Host) -> None:
    with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
        host.write(666)
    assert isinstance(host.faults[0][1], ArithmeticError)


async def test_load_interrupted_by_resignation_serves_nothing() -> None:
    host = Host()
    host.log.append(build_batch([Record(0, 0, b"number", b"5")]), 0)
    host.runtime.elected(0, host.log)
    host.runtime.resigned(0)
    for _ in range(5):
        await asyncio.sleep(0)
    assert list(host.runtime.served()) == []
    assert host.faults == []


@pytest.mark.parametrize("text", ["", "a", "group", "zürich", "😀", "polygenelubricants"])
def test_keys_hash_as_in_java(text: str) -> None:
    """Java's definition, over UTF-16 code units, in unbounded arithmetic."""
    units = memoryview(text.encode("utf-16-le")).cast("H").tolist()
    total = sum(unit * 31**power for power, unit in enumerate(reversed(units)))
    assert java_hash(text) == (total + 2**31) % 2**32 - 2**31


def test_hash_of_known_string_is_that_of_java() -> None:
    assert java_hash("group") == 98629247


def test_hashes_of_thousands_of_groups_are_remembered() -> None:
    groups = [f"orders-service-{number}" for number in range(20_000)]
    partitions = [partition_for(each, 50) for each in groups]
    computed = remembered_hash.cache_info().misses
    assert [partition_for(each, 50) for each in groups] == partitions
    assert remembered_hash.cache_info().misses == computed


def test_hash_of_long_id_takes_no_memory() -> None:
    remembered_hash.cache_clear()
    long = "g" * 65
    assert partition_for(long, 50) == abs(java_hash(long)) % 50
    assert remembered_hash.cache_info().currsize == 0
    partition_for(long[1:], 50)
    assert remembered_hash.cache_info().currsize == 1


def test_the_most_negative_hash_belongs_to_the_first_partition() -> None:
    assert java_hash("polygenelubricants") == -(2**31)
    assert partition_for("polygenelubricants", 50) == 0
    assert partition_for("group", 50) == 47
