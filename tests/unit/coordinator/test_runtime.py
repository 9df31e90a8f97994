"""The shell around coordinators: what waits for what, what a fault does, how a log is loaded."""

import asyncio
from itertools import count
from typing import Any

import pytest

from barnabas.coordinator.decision import (
    PARKED,
    Answer,
    Decision,
    Send,
    StartTimer,
    Transaction,
    Turn,
)
from barnabas.coordinator.hosted import Mode
from barnabas.coordinator.partitioning import java_hash, partition_for
from barnabas.coordinator.runtime import CoordinatorRuntime
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import NO_SEQUENCE, read_header
from barnabas.protocol.records.control import ControlType, Marker, build_marker, read_marker
from barnabas.protocol.records.record import Record, build_batch, rewrite_batch
from tests.unit.coordinator.harness import EPOCH, PRODUCER, FakeLog, Time

LANE = "lane"


class Numbers:
    """The smallest machine: it keeps the numbers that were committed."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.pending: dict[int, list[int]] = {}
        self.served = False

    def encode(self, record: int) -> tuple[bytes, bytes | None]:
        return b"number", str(record).encode()

    def decode(self, key: bytes, value: bytes | None) -> int | None:
        return int(value) if key == b"number" and value is not None else None

    def replay(self, record: int, producer_id: int) -> None:
        if record == 666:
            raise ArithmeticError("a number that cannot be")
        if producer_id < 0:
            self.numbers.append(record)
        else:
            self.pending.setdefault(producer_id, []).append(record)

    def replay_marker(self, producer_id: int, producer_epoch: int, committed: bool) -> None:
        assert producer_epoch == EPOCH
        numbers = self.pending.pop(producer_id, [])
        if 667 in numbers:
            raise ArithmeticError("a number that cannot become one")
        if committed:
            self.numbers += numbers

    def loaded(self, _turn: Turn) -> Decision[int]:
        self.served = True
        return Decision()


class Host:
    def __init__(self, **options: Any) -> None:
        self.time = Time()
        self.log = FakeLog()
        self.faults: list[tuple[int, BaseException]] = []
        self.runtime = CoordinatorRuntime(
            Numbers,
            clock=self.time,
            timers=self.time,
            write_timeout_ms=5000,
            load_buffer_bytes=1000,
            report=lambda index, error: self.faults.append((index, error)),
            **options,
        )

    async def load(self) -> "Host":
        self.runtime.elected(0, self.log)
        while self.runtime.loading:  # noqa: ASYNC110
            await asyncio.sleep(0)
        return self

    @property
    def numbers(self) -> list[int]:
        return self.runtime.read(0, lambda shard: shard.numbers)

    @property
    def shard(self) -> Numbers:
        return self.runtime.read(0, lambda shard: shard)

    @property
    def pending(self) -> dict[int, list[int]]:
        return self.runtime.read(0, lambda shard: shard.pending)

    def write(
        self, *numbers: int, mode: Mode = Mode.EXCLUSIVE, transaction: Transaction | None = None
    ) -> object:
        """The response tells what had been committed when the decision was made."""
        return self.runtime.write(
            0,
            LANE,
            lambda _: Decision(numbers, list(self.numbers), transaction=transaction),
            mode,
        )

    def end(self, producer_id: int = PRODUCER, *, committed: bool = True) -> object:
        return self.runtime.write_marker(0, producer_id, EPOCH, 7, committed, 2)


@pytest.fixture
async def host() -> Host:
    return await Host().load()


def code_of_future(answer: object) -> ErrorCode:
    assert isinstance(answer, asyncio.Future)
    error = answer.exception()
    assert isinstance(error, KafkaError)
    return error.code


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


# -- transactions ------------------------------------------------------------------------------


async def test_records_of_a_transaction_are_one_batch_of_its_producer(host: Host) -> None:
    guard = object()
    host.write(1, 2, transaction=Transaction(PRODUCER, EPOCH, guard))
    header = read_header(host.log.batches[0])
    assert header.is_transactional
    assert not header.is_control
    assert header[9:] == (PRODUCER, EPOCH, NO_SEQUENCE, 2)
    assert host.log.guards == [guard]
    assert host.numbers == []
    assert host.pending == {PRODUCER: [1, 2]}


@pytest.mark.parametrize(("committed", "numbers"), [(True, [1, 2]), (False, [])])
async def test_a_marker_ends_a_transaction(host: Host, committed: bool, numbers: list[int]) -> None:
    host.write(1, transaction=Transaction(PRODUCER, EPOCH))
    host.write(2, transaction=Transaction(PRODUCER, EPOCH))
    assert host.end(committed=committed) is None
    assert host.numbers == numbers
    assert host.pending == {}
    batch = host.log.batches[-1]
    header = read_header(batch)
    assert header[9:] == (PRODUCER, EPOCH, NO_SEQUENCE, 1)
    assert read_marker(batch, 0, header) == (ControlType(committed), 7)
    assert host.log.transaction_versions == [0, 0, 2]


async def test_kafka_17507_a_marker_is_answered_when_the_shard_shows_it(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.log.held = True
    written = host.write(1, transaction=Transaction(PRODUCER, EPOCH))
    answer = host.end()
    assert isinstance(answer, asyncio.Future)
    answered_before: list[bool] = []
    replay = host.shard.replay_marker

    def watched(producer_id: int, producer_epoch: int, committed: bool) -> None:
        answered_before.append(answer.done())
        replay(producer_id, producer_epoch, committed)

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
    host.write(1, transaction=Transaction(PRODUCER, EPOCH))
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
    host.write(1, transaction=Transaction(PRODUCER, EPOCH))
    host.log.refusal = KafkaError(fault)
    with pytest.raises(KafkaError) as refused:
        host.end()
    assert refused.value.code is told
    assert host.pending == {PRODUCER: [1]}


async def test_who_waits_for_a_marker_is_sent_away_with_the_lead(host: Host) -> None:
    host.log.held = True
    answer = host.end()
    host.runtime.resigned(0)
    host.log.release()
    assert code_of_future(answer) is ErrorCode.NOT_COORDINATOR
    with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
        host.end()


async def test_a_marker_that_cannot_be_replayed_stops_the_partition(host: Host) -> None:
    host.write(667, transaction=Transaction(PRODUCER, EPOCH))
    host.log.held = True
    answer = host.end()
    host.log.release()
    assert code_of_future(answer) is ErrorCode.NOT_COORDINATOR
    assert isinstance(host.faults[0][1], ArithmeticError)


async def test_a_load_brings_back_what_is_open_committed_and_aborted(host: Host) -> None:
    for number, producer in enumerate((PRODUCER, 10, 11, PRODUCER)):
        host.write(number, transaction=Transaction(producer, EPOCH))
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


async def test_what_compaction_left_of_a_marker_is_passed_over() -> None:
    host = Host()
    host.log.append(build_batch([Record(0, 0, b"number", b"5")]), 0)
    marker = build_marker(
        Marker(ControlType.COMMIT, 1), offset=0, timestamp=0, producer_id=1, producer_epoch=0
    )
    host.log.append(rewrite_batch(read_header(marker), []), 0)
    await host.load()
    assert host.numbers == [5]
    assert host.faults == []


async def test_a_long_load_of_markers_leaves_the_loop_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host = Host()
    for _ in range(5):
        host.log.append(
            build_marker(
                Marker(ControlType.ABORT, 1),
                offset=0,
                timestamp=0,
                producer_id=PRODUCER,
                producer_epoch=EPOCH,
            ),
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


async def test_messages_are_handed_over_with_partition_and_epoch() -> None:
    sent: list[tuple[int, int, object]] = []
    host = Host(send=lambda *message: sent.append(message))
    host.log.leader_epoch = 4
    await host.load()
    host.runtime.write(0, LANE, lambda _: Decision(effects=[Send("markers")]))
    assert sent == [(0, 4, "markers")]


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
