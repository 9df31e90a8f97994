"""Every decision goes one way, whenever its log commits: at once, later, or after gathering."""

import asyncio
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.coordinator.decision import Decision
from barnabas.coordinator.hosted_shard import _WriteQueue
from barnabas.coordinator.transaction.ending import EndTxn
from barnabas.coordinator.transaction.metadata import TV0, TV2, Producer
from barnabas.coordinator.transaction.partitions import AddPartitions
from barnabas.coordinator.transaction.records import TransactionRecord
from barnabas.protocol.errors import ErrorCode, KafkaError
from tests.support.coordinator.numbers_host import Host
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


class Commits(Enum):
    """The time at which the log commits."""

    AT_ONCE = "in the call that appends"
    LATER = "after the request"
    GATHERED = "after the iteration of the event loop whose records are gathered"


class Story:
    """A coordinator, and the answers to the requests of one client."""

    def __init__(self, commits: Commits) -> None:
        self.transactions = Transactions()
        self.commits = commits
        self.is_held = False
        self.producer = Producer(-1, -1)
        self.answers: list[object] = []

    async def take(self, step: Step) -> None:
        kind, *rest = step
        log = self.transactions.log
        log.commits_at_once = not self.is_held and self.commits is not Commits.GATHERED
        log.held = self.is_held or self.commits is Commits.LATER
        getattr(self, "_" + kind)(*rest)
        self.settle()
        # The answers that came as futures.
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    def settle(self) -> None:
        """Let the log append what it has gathered, and commit, unless the story holds it."""
        self.transactions.time.pass_ms(0)
        if not self.is_held:
            self.transactions.log.release()
            self.transactions.time.pass_ms(0)

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
        self.is_held = True

    def _release(self) -> None:
        self.is_held = False

    def _refuse(self, code: ErrorCode | None) -> None:
        self.transactions.log.refusal = None if code is None else KafkaError(code)

    def _pass(self, milliseconds: int) -> None:
        self.transactions.time.pass_ms(milliseconds)

    @property
    def outcome(self) -> object:
        it = self.transactions
        try:
            txn, events = it.txn, it.coordinator.events(ID)
        except KafkaError as error:
            txn = events = error.code  # type: ignore[assignment]
        return self.answers, it.sent, txn, events, it.faults


async def told(steps: list[Step], commits: Commits, *, postpones: bool) -> Story:
    story = Story(commits)
    await story.transactions.load()
    story.transactions.hosted.postponed.refused = not postpones
    for step in [("init", False), *steps, ("refuse", None), ("pass", 1000), ("release",)]:
        await story.take(step)
    return story


def outcome(steps: list[Step], commits: Commits, *, postpones: bool = False) -> object:
    story = asyncio.run(told(steps, commits, postpones=postpones))
    return story.outcome, story.transactions.log.records


@settings(max_examples=200, deadline=None)
@given(st.lists(STEPS | REFUSALS, max_size=30))
def test_answers_and_records_do_not_depend_on_the_time_of_the_commit(steps: list[Step]) -> None:
    assert outcome(steps, Commits.LATER) == outcome(steps, Commits.AT_ONCE)


@settings(max_examples=200, deadline=None)
@given(st.lists(STEPS, max_size=30))
def test_gathered_records_change_neither_answers_nor_the_order_of_records(
    steps: list[Step],
) -> None:
    assert outcome(steps, Commits.GATHERED) == outcome(steps, Commits.AT_ONCE)


@settings(max_examples=200, deadline=None)
@given(st.lists(STEPS, max_size=30))
def test_postponed_records_change_neither_answers_nor_the_order_of_records(
    steps: list[Step],
) -> None:
    without = outcome(steps, Commits.AT_ONCE)
    assert outcome(steps, Commits.AT_ONCE, postpones=True) == without


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


async def test_step_that_may_not_wait_is_refused_where_it_would() -> None:
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


async def test_step_that_may_not_wait_is_refused_behind_a_write_or_a_long_replay() -> None:
    transactions = await Transactions().load()
    asked = AddPartitions(ID, transactions.init(), (A,), TV0, 1)
    hosted = transactions.runtime._hosted[0]
    hosted._replays = deque()
    assert not transactions.coordinator.add_partitions_at_once(asked)
    hosted._replays = None
    hosted._queues["another"] = _WriteQueue()
    assert not transactions.coordinator.add_partitions_at_once(asked)
    hosted._queues.clear()
    assert transactions.coordinator.add_partitions_at_once(asked)


async def postponed_behind(host: Host) -> list[object]:
    """Write a record that may be postponed; return the values that the log has then."""
    assert not host.runtime._hosted[0].postponed.takes(host.time.passed_ms)
    host.runtime.write(0, "postponed", lambda *_: Decision(None, [7], postpones=True))
    return [value for _, value in host.log.records]


async def test_nothing_is_postponed_behind_a_write_that_is_not_committed() -> None:
    host = await Host().load()
    assert await postponed_behind(host) == []
    host = await Host().load()
    host.log.held = True
    host.write(1)
    assert await postponed_behind(host) == [b"1", b"7"]
    host.log.release()
    assert host.numbers == [1, 7]


async def test_nothing_is_postponed_behind_a_long_replay() -> None:
    host = await Host().load()
    host.runtime._hosted[0]._replays = deque()
    assert await postponed_behind(host) == [b"7"]
    assert host.numbers == []
