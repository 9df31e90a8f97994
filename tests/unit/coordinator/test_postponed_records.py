"""Records that are replayed before they are written: no crash ends another transaction by them."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.broker.loop.slices import Slicer
from barnabas.coordinator.decision import AT_ONCE, Decision, TransactionWriter
from barnabas.coordinator.postponed import DELAY_MS, RETRY_MS
from barnabas.coordinator.runtime import CoordinatorRuntime
from barnabas.coordinator.transaction.coordinator import TransactionCoordinator, TransactionShard
from barnabas.coordinator.transaction.ending import COMPLETION_RETRY_MS, EndTxn
from barnabas.coordinator.transaction.metadata import (
    TV0,
    Markers,
    Producer,
    TransactionMetadata,
)
from barnabas.coordinator.transaction.partitions import AddPartitions
from barnabas.coordinator.transaction.producers import InitProducerId
from barnabas.coordinator.transaction.records import decode_record
from barnabas.coordinator.transaction.settings import TransactionSettings
from barnabas.coordinator.transaction.states import TransactionState
from barnabas.coordinator.transaction.table import TransactionTable
from barnabas.coordinator.transaction.waiters import TransactionWaiters
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import iter_headers
from barnabas.protocol.records.control import TxnMarker
from barnabas.protocol.records.record import iter_records
from tests.support.coordinator.fake_log import FakeLog
from tests.support.coordinator.harness import EPOCH, PRODUCER, UNCHANGED, Time, code_of
from tests.support.coordinator.numbers_host import KEY, Host
from tests.support.mutants import mutated
from tests.unit.coordinator.postponed_mutants import MUTANTS, STORIES, Mutant
from tests.unit.coordinator.transactions import A, Ids, Transactions

NO_PRODUCER = Producer(-1, -1)
NAMES = ("x", "y", "z")
PLACE = ("t", 0)
OPEN = (
    TransactionState.ONGOING,
    TransactionState.PREPARE_COMMIT,
    TransactionState.PREPARE_ABORT,
)
RETRIED = (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_NOT_AVAILABLE)
SETTINGS = TransactionSettings(id_expiration_ms=DELAY_MS // 2)
Step = tuple[Any, ...]


class KilledError(BaseException):
    """The process ends here."""


@dataclass
class FailingLog(FakeLog):
    """A log that can refuse, refuse large batches, and end its process at an append."""

    kills: str = ""
    """Whether the next append ends the process "before" or "after" it is in the log."""
    small_only: bool = False

    def append(
        self,
        batch: bytes,
        now_ms: int,
        header: object = None,
        guard: object | None = None,
        marker: TxnMarker | None = None,
    ) -> int:
        kills, self.kills = self.kills, ""
        if kills == "before":
            raise KilledError
        if self.small_only and next(iter(iter_headers(batch)))[1].record_count > 1:
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE)
        end = super().append(batch, now_ms, header, guard, marker)
        if kills == "after":
            raise KilledError
        return end

    def last(self) -> dict[str, TransactionMetadata]:
        """Return what a coordinator finds that loads the log now."""
        found: dict[str, TransactionMetadata] = {}
        for key, value in self.records:
            assert key is not None
            record = decode_record(key, value)
            assert record is not None
            if record.value is None:
                found.pop(record.transactional_id, None)
            else:
                found[record.transactional_id] = record.value
        return found


@dataclass
class Client:
    """A client of the older protocol, whose transactions all have one epoch."""

    name: str
    producer: Producer = NO_PRODUCER
    number: int = 0
    """The transaction that it has begun; its records and its start have this number."""
    begun: bool = False
    starts_anew: bool = True
    """Whether it sends InitProducerId next."""
    asked: set[tuple[int, bool]] = field(default_factory=set)
    """The outcomes that it has asked for."""
    decided: dict[int, bool] = field(default_factory=dict)
    """The outcomes that it was told."""

    def may_end(self, number: int, committed: bool) -> bool:
        """Return whether a transaction may have this outcome."""
        if number in self.decided:
            return committed is self.decided[number]
        return not committed or (number, committed) in self.asked


def busy(runtime: CoordinatorRuntime[Any, Any], time: Time) -> None:
    """Let records be postponed, as if one had been decided just now."""
    assert not runtime._hosted[0].postponed.takes(time.passed_ms)


class World:
    """A coordinator of three ids, a partition, and the clients."""

    def __init__(self) -> None:
        self.time = Time()
        self.log = FailingLog()
        self.ids = Ids()
        self.clients = {name: Client(name) for name in NAMES}
        self.open: dict[int, tuple[str, int]] = {}
        """The open transaction of a producer id in the partition: its client and its number."""
        self.ended: dict[str, dict[int, bool]] = defaultdict(dict)
        self.sent: list[Markers] = []
        self.faults: list[BaseException] = []
        self.started: dict[tuple[str, int], int] = {}
        """The wall time at which a client has begun a transaction."""
        self._start()

    def _start(self) -> None:
        self.waiters = TransactionWaiters(self.time, lambda: 0)
        self.runtime = CoordinatorRuntime(
            lambda *_: TransactionShard(
                TransactionTable(
                    SETTINGS,
                    take_producer_id=self.ids.take,
                    transaction_version=lambda: TV0,
                    verification=lambda: None,
                    send_markers=lambda markers, _: bool(self.sent.append(markers)),
                    marked=self.coordinator.markers_written,
                    free=self.waiters.wake,
                )
            ),
            clock=self.time,
            timers=self.time,
            slices=Slicer(self.time.monotonic),
            write_timeout_ms=5000,
            load_buffer_bytes=1 << 20,
            report=lambda _, error: self.faults.append(error),
        )
        self.coordinator = TransactionCoordinator(
            self.runtime,
            self.waiters,
            settings=SETTINGS,
            producer_ids=self.ids,
            clock=self.time,
            timers=self.time,
            partitions=lambda: 1,
            metadata=UNCHANGED,
        )

    async def load(self) -> None:
        self.runtime.elected(0, self.log)
        while self.runtime.loading:  # noqa: ASYNC110
            await asyncio.sleep(0)
        busy(self.runtime, self.time)

    async def take(self, step: Step) -> None:
        kind, *rest = step
        try:
            await getattr(self, "_" + kind)(*rest)
        except KafkaError:
            pass
        except KilledError:
            await self._crash()
        self.look()

    def _answer(self, answer: Any) -> Any:
        """Return an answer that comes at once, or with the end of this turn."""
        if isinstance(answer, asyncio.Future):
            self.time.pass_ms(1)
            if not answer.done():
                answer.cancel()
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
            return answer.result()
        return answer

    async def _begin(self, name: str) -> None:
        client = self.clients[name]
        if client.starts_anew:
            client.begun = False
            asked = InitProducerId(name, 60_000, None, "host")
            answer = self._answer(self.coordinator.init_producer_id(asked))
            client.producer, client.starts_anew = answer.producer, False
        if not client.begun:
            self.time.pass_ms(1)
            client.number += 1
            self.started[name, client.number] = self.time.now_ms()
        add = AddPartitions(name, client.producer, (PLACE,), TV0, 1)
        try:
            self._answer(self.coordinator.add_partitions(add, waits=False))
        except BaseException as error:
            client.starts_anew = not isinstance(error, KafkaError) or error.code not in RETRIED
            raise
        client.begun = True
        # The first record: the leader has asked, or was told whom to expect.
        assert self.open.get(client.producer.producer_id) in (None, (name, client.number))
        self.open[client.producer.producer_id] = name, client.number

    async def _end(self, name: str, commits: bool) -> None:
        client = self.clients[name]
        if not client.begun:
            return
        client.asked.add((client.number, commits))
        end = EndTxn(name, client.producer, commits, TV0, None, 1)
        client.starts_anew = True
        self._answer(self.coordinator.end(end))
        client.starts_anew = client.begun = False
        client.decided[client.number] = commits

    async def _mark(self) -> None:
        """Write the oldest marker, and tell the coordinator."""
        if self.sent:
            markers = self.sent.pop(0)
            opened = self.open.pop(markers.producer.producer_id, None)
            if opened is not None:
                name, number = opened
                assert self.clients[name].may_end(number, markers.committed)
                self.ended[name][number] = markers.committed
            self.coordinator.markers_written(markers.transactional_id, markers.producer)

    async def _anew(self, name: str) -> None:
        self.clients[name].starts_anew = True

    async def _expire(self) -> None:
        expiring = asyncio.create_task(self.coordinator.expire())
        try:
            while not expiring.done():
                await asyncio.sleep(0)
                # A log that gathers records commits at the end of a turn.
                self.time.pass_ms(1)
        finally:
            expiring.cancel()
        await expiring

    async def _pass(self, milliseconds: int) -> None:
        self.time.pass_ms(milliseconds)

    async def _refuse(self, refuses: bool) -> None:
        self.log.refusal = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS) if refuses else None

    async def _shrink(self, small_only: bool) -> None:
        self.log.small_only = small_only

    async def _gather(self, gathers: bool) -> None:
        self.log.commits_at_once = not gathers
        self.time.pass_ms(1)

    async def _kill(self, when: str) -> None:
        self.log.kills = when

    async def _resign(self) -> None:
        self.runtime.resigned(0)
        await self._elect()

    async def _crash(self) -> None:
        self.log.kills, self.log.refusal = "", KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.runtime.resigned(0)
        await self._elect()

    async def _elect(self) -> None:
        self.time.forget()
        self.log.refusal = None
        self.sent.clear()
        self._start()
        await self.load()

    def look(self) -> None:
        """Check what a crash at this moment would leave."""
        assert self.faults == []
        last = self.log.last()
        for name, number in self.open.values():
            found, client = last[name], self.clients[name]
            assert found.state in OPEN, "its markers would be lost, or end another transaction"
            assert found.start_ms == self.started[name, number]
            if number in client.decided:
                assert found.state is not TransactionState.ONGOING
            if found.state is not TransactionState.ONGOING:
                assert client.may_end(number, found.state is TransactionState.PREPARE_COMMIT)

    async def settle(self) -> None:
        """End the faults, and then the coordinator."""
        self.log.kills, self.log.small_only, self.log.commits_at_once = "", False, True
        self.log.refusal = None
        for _ in range(3):
            while self.sent:
                await self.take(("mark",))
            self.time.pass_ms(RETRY_MS + COMPLETION_RETRY_MS + DELAY_MS)
        shown = known(self.coordinator.transactions())
        assert known(self.log.last().values()) == shown
        await self.take(("crash",))
        assert self.sent == []
        assert known(self.coordinator.transactions()) == shown
        for client in self.clients.values():
            assert all(number in self.ended[client.name] for number in client.decided)


def known(transactions: Iterable[TransactionMetadata]) -> object:
    return {
        each.transactional_id: (each.state, each.producer, each.partitions, each.start_ms)
        for each in transactions
    }


NAMED = st.sampled_from(NAMES)
STEPS = st.one_of(
    st.tuples(st.just("begin"), NAMED),
    st.tuples(st.just("begin"), NAMED),
    st.tuples(st.just("end"), NAMED, st.booleans()),
    st.tuples(st.just("end"), NAMED, st.booleans()),
    st.tuples(st.just("mark")),
    st.tuples(st.just("mark")),
    st.tuples(st.just("anew"), NAMED),
    st.tuples(st.just("expire")),
    st.tuples(st.just("pass"), st.sampled_from((1, DELAY_MS, RETRY_MS))),
    st.tuples(st.just("refuse"), st.booleans()),
    st.tuples(st.just("shrink"), st.booleans()),
    st.tuples(st.just("gather"), st.booleans()),
    st.tuples(st.just("kill"), st.sampled_from(("before", "after"))),
    st.tuples(st.just("resign")),
    st.tuples(st.just("crash")),
)


async def live(steps: list[Step]) -> World:
    world = World()
    await world.load()
    for step in steps:
        await world.take(step)
    await world.settle()
    return world


@settings(max_examples=300, deadline=None)
@given(st.lists(STEPS, max_size=40))
def test_crash_at_any_append_changes_no_outcome(steps: list[Step]) -> None:
    asyncio.run(live(steps))


def test_ids_expire_in_a_log_that_gathers_records() -> None:
    """The world above waited for ever: nothing ended the turn in which an id expired."""
    begun = [("gather", True), ("kill", "after"), ("begin", "x")]
    asyncio.run(live([*begun, ("pass", 100), ("expire",)]))


# -- one record at a time --------------------------------------------------------------------------


def states(here: Transactions) -> list[list[str]]:
    """Return the states that each batch of the log has, except the first two batches."""
    return [
        [
            record.value.state.value
            for each in iter_records(batch, 0, header)
            if (record := decode_record(each.key or b"", each.value)) and record.value is not None
        ]
        for batch in here.log.batches[2:]
        for _, header in iter_headers(batch)
    ]


async def postponed(**options: Any) -> tuple[Transactions, Producer]:
    """Return a coordinator whose transaction is complete, but not yet in the log."""
    here = await Transactions(version=TV0, **options).load()
    busy(here.runtime, here.time)
    producer = here.ongoing(version=TV0)
    here.end(producer, version=TV0)
    here.mark()
    assert here.state == "CompleteCommit"
    assert states(here) == [["PrepareCommit"]]
    return here, producer


async def test_completion_is_written_with_the_next_record_before_it() -> None:
    here, producer = await postponed()
    here.add(producer, A)
    assert states(here) == [["PrepareCommit"], ["CompleteCommit", "Ongoing"]]
    here.time.pass_ms(DELAY_MS)
    assert len(states(here)) == 2, "once"


async def test_completion_is_written_after_its_delay() -> None:
    here, producer = await postponed()
    here.time.pass_ms(DELAY_MS - 1)
    here.add(producer, A)
    here.end(producer, version=TV0)
    here.mark()
    here.time.pass_ms(DELAY_MS - 1)
    assert states(here)[2:] == [["PrepareCommit"]], "the timer of the first one has fired"
    here.time.pass_ms(1)
    assert states(here)[2:] == [["PrepareCommit"], ["CompleteCommit"]]
    assert here.time.running == 0


async def test_timer_ends_when_nothing_is_postponed() -> None:
    here, producer = await postponed()
    here.add(producer, A)
    assert here.time.running == 1
    here.time.pass_ms(DELAY_MS)
    assert here.time.running == 0


async def test_completion_is_written_at_a_resignation() -> None:
    here, producer = await postponed()
    here.runtime.resigned(0)
    assert states(here) == [["PrepareCommit"], ["CompleteCommit"]]
    assert here.time.running == 0
    await here.load()
    assert (here.state, len(here.sent)) == ("CompleteCommit", 1)
    here.add(producer, A)


async def test_after_a_crash_markers_are_sent_again_before_another_transaction_begins() -> None:
    here, producer = await postponed()
    here.crash()
    assert (states(here), here.time.running) == ([["PrepareCommit"]], 0)
    await here.load()
    assert here.sent[0] == here.sent[1]
    assert code_of(lambda: here.add(producer, A)) == "CONCURRENT_TRANSACTIONS"
    here.mark()
    here.add(producer, A)
    here.crash()
    await here.load()
    assert (here.state, len(here.sent)) == ("Ongoing", 2)


async def test_replicated_log_postpones_nothing() -> None:
    here = await Transactions().load()
    producer = here.ongoing()
    here.end(producer)
    here.log.commits_at_once = False
    here.mark()
    assert here.state == "PrepareCommit"
    here.time.pass_ms(0)
    assert here.state == "CompleteCommit"
    assert states(here)[-1] == ["CompleteCommit"]


async def test_refused_records_are_kept_and_written_before_the_next() -> None:
    here, producer = await postponed()
    here.log.refusal = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert code_of(lambda: here.add(producer, A)) == "COORDINATOR_NOT_AVAILABLE"
    assert here.coordinator.refused_ends() == 1
    assert here.state == "CompleteCommit"
    here.log.refusal = None
    here.add(producer, A)
    assert states(here) == [["PrepareCommit"], ["CompleteCommit", "Ongoing"]]
    assert here.coordinator.refused_ends() == 0


async def test_refused_records_are_written_again_by_the_timer() -> None:
    """KAFKA-9777: the transaction must not stay in PREPARE."""
    here, _ = await postponed()
    here.log.refusal = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    here.time.pass_ms(DELAY_MS + 2 * RETRY_MS)
    assert here.coordinator.refused_ends() == 1
    here.log.refusal = None
    here.time.pass_ms(RETRY_MS)
    assert states(here) == [["PrepareCommit"], ["CompleteCommit"]]
    assert (here.coordinator.refused_ends(), here.time.running) == (0, 0)


async def busy_host(log: FakeLog | None = None) -> Host:
    host = Host()
    host.log = log or host.log
    await host.load()
    busy(host.runtime, host.time)
    return host


def postpone(host: Host, number: int) -> object:
    return host.runtime.write(0, KEY, lambda *_: Decision(None, [number], postpones=True))


async def test_log_that_refuses_takes_no_further_postponed_records() -> None:
    host = await busy_host()
    postpone(host, 1)
    host.log.refusal = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    host.time.pass_ms(DELAY_MS)
    for _ in range(2):
        assert code_of(lambda: postpone(host, 2)) == "COORDINATOR_NOT_AVAILABLE"
    assert (host.numbers, host.runtime.postponed_and_refused()) == ([1], 1)
    host.log.refusal = None
    host.write(3)
    postpone(host, 4)
    assert [value for _, value in host.log.records] == [b"1", b"3"]
    host.time.pass_ms(DELAY_MS)
    assert [value for _, value in host.log.records] == [b"1", b"3", b"4"]


async def test_record_that_is_refused_alone_leaves_the_postponed_one_written() -> None:
    here, producer = await postponed()
    log = FailingLog(here.log.batches, here.log.committed, small_only=True)
    here.hosted.log = here.hosted.postponed._log = log
    here.add(producer, A)
    assert states(here) == [["PrepareCommit"], ["CompleteCommit"], ["Ongoing"]]


async def test_records_that_are_far_apart_are_written_at_once() -> None:
    """Otherwise each would wake an idle broker."""
    host = await Host().load()
    for number in range(3):
        postpone(host, number)
        assert host.log.record_count == number + 1
        assert host.time.running == 0
        host.time.pass_ms(DELAY_MS)
    postpone(host, 3)
    host.time.pass_ms(DELAY_MS - 1)
    postpone(host, 4)
    assert (host.log.record_count, host.numbers) == (4, [0, 1, 2, 3, 4])


async def test_oldest_postponed_record_decides_when_they_are_written() -> None:
    host = await busy_host()
    postpone(host, 1)
    host.time.pass_ms(DELAY_MS - 1)
    postpone(host, 2)
    assert host.log.batches == []
    host.time.pass_ms(1)
    assert [value for _, value in host.log.records] == [b"1", b"2"]


async def test_postponed_records_that_are_too_large_together_are_written_one_by_one() -> None:
    host = await busy_host(FailingLog(small_only=True))
    postpone(host, 1)
    postpone(host, 2)
    host.time.pass_ms(DELAY_MS)
    assert [value for _, value in host.log.records] == [b"1", b"2"]
    assert len(host.log.batches) == 2


async def test_many_postponed_records_are_written_at_once() -> None:
    host = await busy_host()
    for number in range(AT_ONCE - 1):
        postpone(host, number)
    assert host.log.batches == []
    postpone(host, AT_ONCE - 1)
    assert host.log.record_count == AT_ONCE
    assert len(host.log.batches) == 1
    assert host.numbers == list(range(AT_ONCE))


@pytest.mark.parametrize(
    "write",
    [
        lambda host: host.write(2),
        lambda host: host.write(2, 3),
        lambda host: host.write(2, producer=TransactionWriter(PRODUCER, EPOCH)),
        lambda host: host.end(),
        lambda host: host.write(*range(100)),
    ],
    ids=["record", "records", "producer", "marker", "in steps"],
)
async def test_every_append_writes_postponed_records_first(write: Callable[[Host], object]) -> None:
    host = await busy_host()
    postpone(host, 1)
    assert host.log.batches == []
    write(host)
    assert host.log.records[0] == (b"number", b"1")
    assert host.log.record_count > 1
    assert not host.runtime._hosted[0].postponed.records


async def test_replay_that_fails_is_not_written() -> None:
    host = await busy_host()
    with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
        postpone(host, 666)
    assert host.log.batches == []


# -- each check, removed once ----------------------------------------------------------------------


def finds(mutant: Mutant) -> None:
    if mutant.found_by in STORIES:
        asyncio.run(live(STORIES[mutant.found_by]))
    else:
        asyncio.run(globals()[mutant.found_by](*mutant.arguments))


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.title)
def test_missing_check_is_found(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    finds(mutant)
    monkeypatch.setattr(
        mutant.function, "__code__", mutated(mutant.function, mutant.old, mutant.new)
    )
    with pytest.raises((Exception, pytest.fail.Exception)):
        finds(mutant)


@pytest.mark.parametrize("story", STORIES)
def test_story_keeps_every_outcome(story: str) -> None:
    asyncio.run(live(STORIES[story]))
