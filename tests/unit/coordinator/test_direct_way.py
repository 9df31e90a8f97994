"""Decisions of one record that the log commits at once: the direct way equals the general one."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.coordinator.transaction.ending import EndTxn
from barnabas.coordinator.transaction.metadata import TV0, TV2, Producer
from barnabas.coordinator.transaction.partitions import AddPartitions
from barnabas.coordinator.transaction.records import TransactionRecord
from barnabas.protocol.errors import ErrorCode, KafkaError
from tests.unit.coordinator.transactions import ID, A, B, Transactions

Step = tuple[Any, ...]
VERSIONS = st.sampled_from((TV0, TV2))
REFUSALS = st.tuples(st.just("refuse"), st.sampled_from((None, ErrorCode.MESSAGE_TOO_LARGE)))
STEPS = st.one_of(
    st.tuples(st.just("init"), st.booleans()),
    st.tuples(st.just("add"), st.sampled_from(((A,), (B,), (A, B))), VERSIONS),
    st.tuples(st.just("stale"), VERSIONS),
    st.tuples(st.just("end"), st.booleans(), VERSIONS),
    st.tuples(st.just("mark")),
    st.tuples(st.just("hold")),
    st.tuples(st.just("release")),
    st.tuples(st.just("pass"), st.integers(1, 200)),
)


class Story:
    """A coordinator, and the answers to the requests of one client."""

    def __init__(self, *, direct: bool) -> None:
        self.transactions = Transactions(direct=direct)
        self.producer = Producer(-1, -1)
        self.answers: list[object] = []

    def take(self, step: Step) -> None:
        kind, *rest = step
        getattr(self, "_" + kind)(*rest)

    def _heard(self, ask: Callable[[], Any]) -> None:
        place = len(self.answers)
        self.answers.append("waits")

        def arrived(answer: Any) -> None:
            self.answers[place] = answer
            if isinstance(answer, Producer):
                self.producer = answer

        try:
            answer = ask()
        except KafkaError as error:
            arrived((error.code, error.message))
            return
        if hasattr(answer, "add_done_callback"):
            answer.add_done_callback(
                lambda done: arrived(
                    done.result()
                    if done.exception() is None
                    else (done.exception().code, done.exception().message)
                )
            )
        else:
            arrived(answer)

    def _init(self, resumes: bool) -> None:
        expected = self.producer if resumes and self.producer.epoch >= 0 else None
        self._heard(lambda: self.transactions.init(expected))

    def _add(self, partitions: tuple[Any, ...], version: int) -> None:
        ask = self.transactions.lead if version >= TV2 else self.transactions.add
        self._heard(lambda: ask(self.producer, *partitions))

    def _stale(self, version: int) -> None:
        stale = Producer(self.producer.producer_id, self.producer.epoch - 1)
        self._heard(lambda: self.transactions.end(stale, version=version))

    def _end(self, commits: bool, version: int) -> None:
        self._heard(lambda: self.transactions.end(self.producer, commits=commits, version=version))

    def _mark(self) -> None:
        if self.transactions.sent:
            self.transactions.mark()

    def _hold(self) -> None:
        log = self.transactions.log
        log.held, log.commits_at_once = True, False

    def _release(self) -> None:
        self.transactions.log.release()
        self.transactions.log.commits_at_once = True

    def _refuse(self, code: ErrorCode | None) -> None:
        self.transactions.log.refusal = None if code is None else KafkaError(code)

    def _pass(self, milliseconds: int) -> None:
        self.transactions.time.pass_ms(milliseconds)

    @property
    def outcome(self) -> object:
        it = self.transactions
        it.log.refusal = None
        it.time.pass_ms(1000)
        self._release()
        try:
            txn, events = it.txn, it.coordinator.events(ID)
        except KafkaError as error:
            txn = events = error.code  # type: ignore[assignment]
        return self.answers, it.sent, txn, events, it.faults


async def told(steps: list[Step], *, direct: bool, postpones: bool) -> Story:
    story = Story(direct=direct)
    await story.transactions.load()
    story.transactions.hosted.postponed.refused = not postpones
    story.take(("init", False))
    for step in steps:
        story.take(step)
    return story


@settings(max_examples=200, deadline=None)
@given(st.lists(STEPS | REFUSALS, max_size=30))
def test_direct_way_equals_general_way(steps: list[Step]) -> None:
    async def tell(direct: bool) -> object:
        story = await told(steps, direct=direct, postpones=False)
        return story.outcome, story.transactions.log.batches

    assert asyncio.run(tell(True)) == asyncio.run(tell(False))


@settings(max_examples=200, deadline=None)
@given(st.lists(STEPS, max_size=30))
def test_postponed_records_change_neither_answers_nor_the_order_of_records(
    steps: list[Step],
) -> None:
    async def tell(direct: bool) -> object:
        story = await told(steps, direct=direct, postpones=True)
        return story.outcome, story.transactions.log.records

    assert asyncio.run(tell(True)) == asyncio.run(tell(False))


async def test_replay_that_fails_ends_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    transactions = await Transactions().load()
    producer = transactions.init()

    def fail(record: TransactionRecord, producer_id: int = -1) -> None:  # noqa: ARG001
        raise ValueError("a bug")

    monkeypatch.setattr(transactions.shard, "replay", fail)
    with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
        transactions.add(producer, A)
    assert [str(each) for each in transactions.faults] == ["a bug"]
    with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
        transactions.add(producer, A)


async def test_uncertain_decision_is_left_to_the_general_way() -> None:
    transactions = await Transactions().load()
    producer = transactions.init()
    asked = AddPartitions(ID, producer, (A,), TV0, 1)
    transactions.log.commits_at_once = False
    assert not transactions.coordinator.add_partitions_at_once(asked)
    assert transactions.table.pending == {}
    transactions.log.commits_at_once = True
    fenced = AddPartitions(ID, Producer(producer.producer_id, 7), (A,), TV0, 1)
    assert not transactions.coordinator.add_partitions_at_once(fenced)
    assert transactions.state == "Empty"
    assert transactions.coordinator.add_partitions_at_once(asked)
    end = EndTxn(ID, producer, True, TV0, None, 1)
    assert transactions.coordinator.end_at_once(end)
    assert not transactions.coordinator.end_at_once(end)
    assert not transactions.coordinator.add_partitions_at_once(asked)
    assert transactions.state == "PrepareCommit"
    transactions.runtime.resigned(0)
    assert not transactions.coordinator.end_at_once(end)


async def test_write_during_a_long_replay_takes_the_general_way() -> None:
    transactions = await Transactions().load()
    assert transactions.runtime.direct(0) is not None
    transactions.runtime._hosted[0]._replays = deque()
    assert transactions.runtime.direct(0) is None


async def test_direct_way_can_be_switched_off() -> None:
    assert (await Transactions(direct=False).load()).runtime.direct(0) is None
