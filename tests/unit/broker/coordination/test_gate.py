"""What a leader asks the coordinator, how long it insists, and what is counted of it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from typing import Any

import pytest

from barnabas.broker.coordination.gate import TransactionGate
from barnabas.broker.coordination.question import Answers, Question
from barnabas.config.broker import BrokerConfig
from barnabas.coordinator.soon import settled
from barnabas.coordinator.transaction.metadata import Producer
from barnabas.metrics.catalogue import BrokerMetrics
from barnabas.metrics.registry import Registry
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.topic_partition import TopicPartition

A, B = ("a", 0), ("b", 1)
PRODUCER = Producer(1000, 4)
CONCURRENT = KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
FENCED = KafkaError(ErrorCode.PRODUCER_FENCED)
ELSEWHERE = KafkaError(ErrorCode.NOT_COORDINATOR)


class Clock:
    """Every look at it takes a millisecond, so that insisting comes to an end."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now_ms(self) -> int:
        return int(self.seconds * 1000)

    def monotonic(self) -> float:
        self.seconds += 0.001
        return self.seconds


class Rig:
    """The gate before a coordinator that gives one answer after the other."""

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.asked: list[tuple[object, ...]] = []
        self.asked_elsewhere: list[tuple[Question, int]] = []
        self.clock = Clock()
        metrics = BrokerMetrics(Registry()).transactions
        self.failures = metrics.verification_failures.cell()
        self.times = metrics.verification_time_ms.cell()
        self.properties = {
            "add.partitions.to.txn.retry.backoff.ms": "1",
            "add.partitions.to.txn.retry.backoff.max.ms": "20",
        }
        self.gate = TransactionGate(
            self,  # type: ignore[arg-type]
            self,  # type: ignore[arg-type]
            self.config,
            self.clock,
            metrics,
        )

    def config(self) -> BrokerConfig:
        return BrokerConfig.from_properties({"log.dirs": "/data", **self.properties})

    def verify(self, key: str, producer: Producer, asked: Iterable[TopicPartition]) -> Answers:
        """As the coordinator verifies."""
        self.asked.append((key, producer, list(asked)))
        answer = self._next()
        assert isinstance(answer, dict)
        return answer

    def add_for_leader(
        self, key: str, producer: Producer, added: Collection[TopicPartition]
    ) -> Any:
        """As the coordinator adds."""
        self.asked.append((key, producer, list(added)))
        return self._next()

    def _next(self) -> Any:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, KafkaError):
            raise answer
        return answer

    def partition_of(self, _key: str) -> int:
        """As the coordinator finds the partition of a transactional id."""
        return 7

    def ask(self, question: Question, index: int) -> Any:
        """As other brokers' coordinators are asked."""
        self.asked_elsewhere.append((question, index))
        return self._next()

    async def admit(self, *, adds: bool) -> Answers:
        return await settled(self.gate.admit("x", PRODUCER, [A, B], adds=adds))

    def later(self) -> "asyncio.Future[None]":
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.answers = [future]
        return future


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    faults: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: faults.append(context))
    yield Rig()
    await asyncio.sleep(0)
    assert faults == []


def all_(code: ErrorCode) -> Answers:
    return {A: code, B: code}


async def test_answers_at_hand_are_given_at_once(rig: Rig) -> None:
    rig.answers = [{A: ErrorCode.NONE, B: ErrorCode.NONE}, None]
    assert isinstance(rig.gate.admit("x", PRODUCER, [A, B], adds=False), dict)
    assert rig.gate.admit("x", PRODUCER, [A, B], adds=True) == all_(ErrorCode.NONE)
    assert rig.asked == [("x", PRODUCER, [A, B])] * 2


@pytest.mark.parametrize("adds", [False, True])
async def test_a_refusal_is_for_every_partition(rig: Rig, adds: bool) -> None:
    rig.answers = [FENCED]
    assert await rig.admit(adds=adds) == all_(ErrorCode.PRODUCER_FENCED)
    assert rig.failures.value == 1


async def test_a_partition_that_is_not_in_the_transaction_is_told_apart(rig: Rig) -> None:
    rig.answers = [{A: ErrorCode.NONE, B: ErrorCode.TRANSACTION_ABORTABLE}]
    assert (await rig.admit(adds=False))[B] is ErrorCode.TRANSACTION_ABORTABLE
    assert rig.failures.value == 1


@pytest.mark.parametrize(
    ("settle", "code", "failures"),
    [
        (lambda answer: answer.set_result(None), ErrorCode.NONE, 0),
        (lambda answer: answer.set_exception(FENCED), ErrorCode.PRODUCER_FENCED, 1),
        (lambda answer: answer.set_exception(CONCURRENT), ErrorCode.CONCURRENT_TRANSACTIONS, 1),
    ],
)
async def test_a_later_answer_is_waited_for_and_counted_once(
    rig: Rig,
    settle: "Callable[[asyncio.Future[None]], None]",
    code: ErrorCode,
    failures: int,
) -> None:
    later = rig.later()
    answer = rig.gate.admit("x", PRODUCER, [A, B], adds=True)
    assert isinstance(answer, asyncio.Future)
    await asyncio.sleep(0)
    assert sum(rig.times.counts) == 0
    settle(later)
    assert await answer == all_(code)
    assert (rig.failures.value, sum(rig.times.counts)) == (failures, 1)


async def test_it_insists_while_the_transaction_before_is_not_over(rig: Rig) -> None:
    rig.answers = [CONCURRENT, CONCURRENT, CONCURRENT, None]
    assert await rig.admit(adds=True) == all_(ErrorCode.NONE)
    assert len(rig.asked) == 4
    assert (rig.failures.value, sum(rig.times.counts)) == (0, 1)


async def test_it_does_not_insist_for_ever(rig: Rig) -> None:
    rig.answers = [CONCURRENT]
    assert await rig.admit(adds=True) == all_(ErrorCode.CONCURRENT_TRANSACTIONS)
    assert 2 <= len(rig.asked) <= 25
    assert rig.failures.value == 1


async def test_it_asks_once_more_where_there_is_no_time_to_insist(rig: Rig) -> None:
    rig.properties["add.partitions.to.txn.retry.backoff.max.ms"] = "0"
    rig.answers = [CONCURRENT]
    await rig.admit(adds=True)
    assert len(rig.asked) == 2


async def test_it_does_not_insist_on_what_no_time_mends(rig: Rig) -> None:
    rig.answers = [CONCURRENT, FENCED]
    assert await rig.admit(adds=True) == all_(ErrorCode.PRODUCER_FENCED)
    assert len(rig.asked) == 2


async def test_a_verification_is_asked_once(rig: Rig) -> None:
    """Clients of the older protocol repeat the request themselves."""
    rig.answers = [CONCURRENT]
    assert await rig.admit(adds=False) == all_(ErrorCode.CONCURRENT_TRANSACTIONS)
    assert len(rig.asked) == 1


async def test_who_insists_may_be_told_to_wait_for_the_log(rig: Rig) -> None:
    later = rig.later()
    rig.answers.insert(0, CONCURRENT)
    answer = rig.gate.admit("x", PRODUCER, [A, B], adds=True)
    while len(rig.asked) < 2:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert isinstance(answer, asyncio.Future)
    assert not answer.done()
    later.set_result(None)
    assert await answer == all_(ErrorCode.NONE)


@pytest.mark.parametrize("insists", [False, True])
async def test_who_goes_away_is_neither_asked_for_again_nor_counted(
    rig: Rig, insists: bool
) -> None:
    later = rig.later()
    if insists:
        rig.answers = [CONCURRENT]
    answer = rig.gate.admit("x", PRODUCER, [A, B], adds=True)
    assert isinstance(answer, asyncio.Future)
    await asyncio.sleep(0)
    answer.cancel()
    await asyncio.sleep(0.01)
    asked = len(rig.asked)
    await asyncio.sleep(0.01)
    assert len(rig.asked) == asked
    assert later.cancelled() is not insists
    assert sum(rig.times.counts) == 0


@pytest.mark.parametrize("adds", [False, True])
async def test_another_broker_is_asked_where_it_coordinates(rig: Rig, adds: bool) -> None:
    rig.answers = [ELSEWHERE, all_(ErrorCode.NONE)]
    assert await rig.admit(adds=adds) == all_(ErrorCode.NONE)
    assert rig.asked_elsewhere == [(Question("x", PRODUCER, [A, B], adds), 7)]
    assert (rig.failures.value, sum(rig.times.counts)) == (0, 1)


@pytest.mark.parametrize(("adds", "times"), [(False, 1), (True, 3)])
async def test_it_insists_with_another_broker_too_but_only_for_the_newer_protocol(
    rig: Rig, adds: bool, times: int
) -> None:
    """KIP-609: the other broker has answered later, and at once that it is busy."""
    rig.answers = []
    for answer in (CONCURRENT, CONCURRENT, KafkaError(ErrorCode.NONE)):
        later: asyncio.Future[Answers] = asyncio.get_running_loop().create_future()
        later.set_result(all_(answer.code))
        rig.answers += [ELSEWHERE, later]
    answers = await rig.admit(adds=adds)
    assert answers == all_(ErrorCode.NONE if adds else ErrorCode.CONCURRENT_TRANSACTIONS)
    assert len(rig.asked_elsewhere) == times


async def test_the_coordinator_that_has_come_here_meanwhile_is_asked_here(rig: Rig) -> None:
    rig.answers = [ELSEWHERE, all_(ErrorCode.CONCURRENT_TRANSACTIONS), None]
    assert await rig.admit(adds=True) == all_(ErrorCode.NONE)
    assert (len(rig.asked), len(rig.asked_elsewhere)) == (2, 1)


async def test_who_waited_for_its_turn_already_does_not_insist_as_well(rig: Rig) -> None:
    later = rig.later()
    answer = rig.gate.admit("x", PRODUCER, [A, B], adds=True)
    rig.clock.seconds += 0.02
    later.set_exception(CONCURRENT)
    assert await settled(answer) == all_(ErrorCode.CONCURRENT_TRANSACTIONS)
    assert len(rig.asked) == 1


async def test_verification_follows_the_configuration_at_once(rig: Rig) -> None:
    assert rig.gate.verifies
    rig.properties["transaction.partition.verification.enable"] = "false"
    assert not rig.gate.verifies
