"""The shell around coordinators: what waits for what, what a fault does, how a log is loaded."""

import asyncio

import pytest

from barnabas.coordinator.decision import (
    PARKED,
    Answer,
    Decision,
    StartTimer,
    Turn,
)
from barnabas.coordinator.hosted import Mode
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.java_hash import java_hash, partition_for
from barnabas.protocol.records.record import Record, build_batch
from tests.unit.coordinator.numbers_host import LANE, Host, code_of_future


@pytest.fixture
async def host() -> Host:
    return await Host().load()


async def test_what_is_committed_at_once_is_answered_at_once(host: Host) -> None:
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


async def test_exclusive_decisions_of_a_lane_are_made_on_what_is_committed(host: Host) -> None:
    host.log.held = True
    answers = [host.write(number) for number in (1, 2)]
    assert host.log.record_count == 1
    host.log.release()
    assert [await each for each in answers] == [[], [1]]


async def test_pipelined_decisions_fly_together(host: Host) -> None:
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


async def test_lanes_do_not_wait_for_each_other(host: Host) -> None:
    host.log.held = True
    host.write(1)
    host.runtime.write(0, "another", lambda _: Decision([2]))
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
async def test_an_append_that_is_refused_is_told_as_coordinators_tell_it(
    host: Host, fault: ErrorCode, told: ErrorCode
) -> None:
    host.log.refusal = KafkaError(fault)
    with pytest.raises(KafkaError) as refused:
        host.write(1)
    assert refused.value.code is told
    host.log.refusal = None
    assert host.write(2) == []


async def test_what_follows_a_write_hears_of_its_commit_or_refusal(host: Host) -> None:
    heard: list[KafkaError | None] = []

    def decide(_: Turn) -> Decision[int]:
        def then(error: KafkaError | None, _: Turn) -> Decision[int]:
            heard.append(error)
            return Decision([error.code if error else 2])

        return Decision([1], then=then)

    host.runtime.write(0, LANE, decide)
    assert heard == [None]
    assert host.numbers == [1, 2]


async def test_a_parked_asker_is_answered_by_a_later_decision_and_never_times_out(
    host: Host,
) -> None:
    tickets: list[int] = []

    def park(turn: Turn) -> Decision[int]:
        tickets.append(turn.ticket)
        return Decision(response=PARKED)

    answer = host.runtime.write(0, LANE, park)
    host.time.pass_ms(60_000)
    assert not answer.done()
    effects = [Answer(tickets[0], "late")]
    assert host.runtime.write(0, LANE, lambda _: Decision(effects=effects, response=1)) == 1
    assert await answer == "late"


async def test_timers_decide_in_their_lane(host: Host) -> None:
    effect = StartTimer(("t",), 100, LANE, lambda _: Decision([7]))
    host.runtime.write(0, LANE, lambda _: Decision(effects=[effect]))
    host.log.held = True
    host.write(1)
    host.time.pass_ms(100)
    assert host.log.record_count == 1
    host.log.release()
    assert host.numbers == [1, 7]


async def test_losing_the_lead_sends_everybody_away(host: Host) -> None:
    parked = host.runtime.write(0, LANE, lambda _: Decision(response=PARKED))
    host.runtime.write(
        0, LANE, lambda _: Decision(effects=[StartTimer(("t",), 9, LANE, lambda _: Decision())])
    )
    host.log.held = True
    flying, queued = host.write(1), host.write(2)
    host.runtime.resigned(0)
    answers = (parked, flying, queued)
    assert {code_of_future(each) for each in answers} == {ErrorCode.NOT_COORDINATOR}
    host.log.release()
    assert host.time.running == 0
    with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
        host.write(3)


async def test_a_new_epoch_loads_what_the_last_one_wrote(host: Host) -> None:
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


async def test_kinds_of_records_that_are_unknown_are_passed_over() -> None:
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


async def test_a_fault_in_replay_stops_the_partition_instead_of_serving_a_guess(
    host: Host,
) -> None:
    host.log.held = True
    answer = host.write(666)
    host.log.release()
    assert code_of_future(answer) is ErrorCode.NOT_COORDINATOR
    assert isinstance(host.faults[0][1], ArithmeticError)


async def test_a_load_that_is_overtaken_by_a_resignation_serves_nothing() -> None:
    host = Host()
    host.log.append(build_batch([Record(0, 0, b"number", b"5")]), 0)
    host.runtime.elected(0, host.log)
    host.runtime.resigned(0)
    for _ in range(5):
        await asyncio.sleep(0)
    assert list(host.runtime.shards()) == []
    assert host.faults == []


@pytest.mark.parametrize("text", ["", "a", "group", "zürich", "😀", "polygenelubricants"])
def test_keys_hash_as_in_java(text: str) -> None:
    """Java's definition, over UTF-16 code units, in unbounded arithmetic."""
    units = memoryview(text.encode("utf-16-le")).cast("H").tolist()
    total = sum(unit * 31**power for power, unit in enumerate(reversed(units)))
    assert java_hash(text) == (total + 2**31) % 2**32 - 2**31


def test_a_hash_that_java_is_known_to_have() -> None:
    assert java_hash("group") == 98629247


def test_the_most_negative_hash_belongs_to_the_first_partition() -> None:
    assert java_hash("polygenelubricants") == -(2**31)
    assert partition_for("polygenelubricants", 50) == 0
    assert partition_for("group", 50) == 47
