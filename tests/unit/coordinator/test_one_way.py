"""Every decision goes one way, whenever its log commits: at once, later, or after gathering."""

import asyncio
import inspect
from collections import deque
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.coordinator.decision import Decision
from barnabas.coordinator.hosted_shard import HostedShard, _WriteQueue
from barnabas.coordinator.runtime import CoordinatorRuntime
from barnabas.coordinator.transaction.ending import EndTxn
from barnabas.coordinator.transaction.metadata import TV0, TV2, Producer
from barnabas.coordinator.transaction.partitions import AddPartitions
from barnabas.coordinator.transaction.records import TransactionRecord
from barnabas.coordinator.transaction.states import TransactionState
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.records.compression import Compression
from barnabas.protocol.steps import Steps
from tests.support.coordinator.numbers_host import KEY, Host
from tests.support.mutants import Mutant, installed
from tests.unit.coordinator.story import REFUSALS, STEPS, Commits, Step, Story
from tests.unit.coordinator.transactions import (
    EXHAUSTED,
    ID,
    A,
    Transactions,
    transaction,
)


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


def repeated(transactions: Transactions, producer: Producer, version: int = TV0) -> Any:
    """Return what adds A to the producer's transactions, and what ends them."""
    coordinator = transactions.coordinator
    add = coordinator.repeated(AddPartitions(ID, producer, (A,), version, 1))
    end = coordinator.repeated(EndTxn(ID, producer, True, version, None, 1))
    return add, end


async def test_repeated_step_is_refused_where_it_would_wait() -> None:
    transactions = await Transactions().load()
    producer = transactions.init()
    add, end = repeated(transactions, producer)
    transactions.log.commits_at_once = False
    assert transactions.again(add, producer) is None
    assert transactions.state == "Empty"
    transactions.log.commits_at_once = True
    assert transactions.again(add, Producer(producer.producer_id, 7)) is None
    assert transactions.state == "Empty"
    assert transactions.again(add, producer) == ()
    assert transactions.again(end, producer) == ()
    assert transactions.again(end, producer) is None
    assert transactions.again(add, producer) is None
    assert transactions.state == "PrepareCommit"
    transactions.runtime.resigned(0)
    assert transactions.again(end, producer) is None


async def test_repeated_end_that_needs_another_producer_id_is_refused() -> None:
    open_now = transaction(
        TransactionState.ONGOING, EXHAUSTED.epoch, partitions=frozenset({A}), start_ms=0
    )
    transactions = await Transactions().write(open_now).load()
    _, end = repeated(transactions, EXHAUSTED, TV2)
    assert transactions.again(end, EXHAUSTED) is None
    assert transactions.state == "Ongoing"


async def test_repeated_step_is_refused_behind_a_write_or_a_long_replay() -> None:
    transactions = await Transactions().load()
    producer = transactions.init()
    add, _ = repeated(transactions, producer)
    hosted = transactions.runtime._hosted[0]
    hosted._replays = deque()
    assert transactions.again(add, producer) is None
    hosted._replays = None
    hosted._queues["another"] = _WriteQueue()
    assert transactions.again(add, producer) is None
    hosted._queues.clear()
    hosted.serving = False
    assert transactions.again(add, producer) is None
    hosted.serving = True
    hosted._compression = Compression.GZIP
    assert transactions.again(add, producer) is None
    hosted._compression = Compression.NONE
    assert transactions.again(add, producer) == ()


async def test_write_lands_at_once_unless_it_would_wait() -> None:
    host = Host()
    assert not host.runtime.lands_at_once(0)
    await host.load()
    hosted = host.runtime._hosted[0]
    host.log.commits_at_once = False
    assert not host.runtime.lands_at_once(0)
    host.log.commits_at_once = True
    hosted._replays = deque()
    assert not host.runtime.lands_at_once(0)
    hosted._replays = None
    hosted._queues["another"] = _WriteQueue()
    assert not host.runtime.lands_at_once(0)
    hosted._queues.clear()
    hosted.serving = False
    assert not host.runtime.lands_at_once(0)
    hosted.serving = True
    assert host.runtime.lands_at_once(0)
    host.runtime.write(0, KEY, lambda *_: Decision(None, [1]))
    assert host.numbers == [1]


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


# -- each check, removed once ----------------------------------------------------------------------

WAITS = "test_repeated_step_is_refused_where_it_would_wait"
BEHIND = "test_repeated_step_is_refused_behind_a_write_or_a_long_replay"
PUT, CARRY_OUT = HostedShard.put, HostedShard._carry_out
LANDS = "test_write_lands_at_once_unless_it_would_wait"
AT_ONCE: Any = HostedShard.lands_at_once.fget  # type: ignore[attr-defined]
MUTANTS = (
    Mutant(AT_ONCE, "self.log.commits_at_once and ", "", LANDS),
    Mutant(AT_ONCE, "not self._queues and ", "", LANDS),
    Mutant(AT_ONCE, " and self._replays is None", "", LANDS),
    Mutant(CoordinatorRuntime.lands_at_once, "hosted.serving and ", "", LANDS),
    Mutant(PUT, "not self.lands_at_once or ", "", WAITS),
    Mutant(PUT, "not self.lands_at_once or ", "", BEHIND),
    Mutant(PUT, " or self._compression", "", BEHIND),
    Mutant(
        CARRY_OUT,
        "and not self._queues",
        "",
        "test_nothing_is_postponed_behind_a_write_that_is_not_committed",
    ),
    Mutant(
        CARRY_OUT,
        "and self._replays is None",
        "",
        "test_nothing_is_postponed_behind_a_long_replay",
    ),
    Mutant(HostedShard._append, "not write.landed and ", "", "test_write_that_has_landed_is_free"),
    Mutant(HostedShard._drain, "if queue.draining:", "if False:", "test_waiting_writes_take_turns"),
)


async def test_write_that_has_landed_is_free() -> None:
    host = await Host().load()
    host.write(1)
    assert host.runtime._hosted[0]._queues == {}
    host.write(2)
    assert host.numbers == [1, 2]


async def test_waiting_writes_take_turns() -> None:
    """A write whose records are made in steps ends before the next one is decided."""
    host = await Host().load()
    host.log.held = True
    depths = []

    def steps() -> Steps[None]:
        yield None
        yield None

    def decided(*_: object) -> Decision[int, None]:
        depths.append(len(inspect.stack(0)))
        return Decision(None, [len(depths)], steps=steps())

    answers = [host.runtime.write(0, KEY, decided) for _ in range(4)]
    host.log.release()
    assert host.numbers == [1, 2, 3, 4]
    assert len(set(depths[1:])) == 1
    assert [await each for each in answers] == [None] * 4  # type: ignore[misc]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.title)
def test_missing_check_is_found(mutant: Mutant) -> None:
    story = globals()[mutant.found_by]
    asyncio.run(story())
    with installed(mutant), pytest.raises((Exception, pytest.fail.Exception)):
        asyncio.run(story())
