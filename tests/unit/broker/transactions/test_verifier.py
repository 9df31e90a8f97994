"""The verifier: its requests to the coordinator, its retries, and its metrics."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from barnabas.broker.transactions.verification_request import Answers, VerificationRequest
from barnabas.broker.transactions.verifier import TransactionVerifier
from barnabas.config.broker import BrokerConfig
from barnabas.coordinator.soon import wait
from barnabas.coordinator.transaction.metadata import TV2, Producer
from barnabas.coordinator.transaction.partitions import AddPartitions, VerifyPartitions
from barnabas.metrics.catalogue import BrokerMetrics
from barnabas.metrics.registry import Registry
from barnabas.protocol.errors import ErrorCode, KafkaError

A, B = ("a", 0), ("b", 1)
PRODUCER = Producer(1000, 4)
CONCURRENT = KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
FENCED = KafkaError(ErrorCode.PRODUCER_FENCED)
ELSEWHERE = KafkaError(ErrorCode.NOT_COORDINATOR)


class Clock:
    """A clock that advances a millisecond with every read, so that retries come to an end."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now_ms(self) -> int:
        return int(self.seconds * 1000)

    def monotonic(self) -> float:
        self.seconds += 0.001
        return self.seconds


class Rig:
    """A verifier with a coordinator that gives one answer after the other."""

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.asked: list[tuple[object, ...]] = []
        self.asked_elsewhere: list[tuple[VerificationRequest, int]] = []
        self.clock = Clock()
        metrics = BrokerMetrics(Registry()).transactions
        self.failures = metrics.verification_failures.cell()
        self.times = metrics.verification_time_ms.cell()
        self.properties = {
            "add.partitions.to.txn.retry.backoff.ms": "1",
            "add.partitions.to.txn.retry.backoff.max.ms": "20",
        }
        self.verifier = TransactionVerifier(
            self,  # type: ignore[arg-type]
            self,  # type: ignore[arg-type]
            self.config,
            self.clock,
            metrics,
        )

    def config(self) -> BrokerConfig:
        return BrokerConfig.from_properties({"log.dirs": "/data", **self.properties})

    def verify(self, request: VerifyPartitions) -> Answers:
        """Verify in place of the coordinator."""
        self.asked.append((request.transactional_id, request.producer, list(request.partitions)))
        answer = self._next()
        assert isinstance(answer, dict)
        return answer

    def add_partitions(self, request: AddPartitions) -> Any:
        """Add partitions in place of the coordinator."""
        assert (request.client_version, request.connection) == (TV2, None)
        self.asked.append((request.transactional_id, request.producer, list(request.partitions)))
        return self._next()

    def _next(self) -> Any:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, KafkaError):
            raise answer
        return answer

    def partition_of(self, _key: str) -> int:
        """Return the partition of a transactional id, in place of the coordinator."""
        return 7

    def ask(self, request: VerificationRequest, index: int) -> Any:
        """Ask in place of the coordinators on other brokers."""
        self.asked_elsewhere.append((request, index))
        return self._next()

    async def admit(self, *, adds: bool) -> Answers:
        return await wait(self.verifier.ask("x", PRODUCER, [A, B], adds=adds))

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


async def test_immediate_answer_is_returned_at_once(rig: Rig) -> None:
    rig.answers = [{A: ErrorCode.NONE, B: ErrorCode.NONE}, None]
    assert isinstance(rig.verifier.ask("x", PRODUCER, [A, B], adds=False), dict)
    assert rig.verifier.ask("x", PRODUCER, [A, B], adds=True) == all_(ErrorCode.NONE)
    assert rig.asked == [("x", PRODUCER, [A, B])] * 2


@pytest.mark.parametrize("adds", [False, True])
async def test_refusal_applies_to_every_partition(rig: Rig, adds: bool) -> None:
    rig.answers = [FENCED]
    assert await rig.admit(adds=adds) == all_(ErrorCode.PRODUCER_FENCED)
    assert rig.failures.value == 1


async def test_partition_outside_transaction_is_refused_alone(rig: Rig) -> None:
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
async def test_later_answer_is_awaited_and_counted_once(
    rig: Rig,
    settle: "Callable[[asyncio.Future[None]], None]",
    code: ErrorCode,
    failures: int,
) -> None:
    later = rig.later()
    answer = rig.verifier.ask("x", PRODUCER, [A, B], adds=True)
    assert isinstance(answer, asyncio.Future)
    await asyncio.sleep(0)
    assert sum(rig.times.counts) == 0
    settle(later)
    assert await answer == all_(code)
    assert (rig.failures.value, sum(rig.times.counts)) == (failures, 1)


async def test_concurrent_transactions_is_retried(rig: Rig) -> None:
    rig.answers = [CONCURRENT, CONCURRENT, CONCURRENT, None]
    assert await rig.admit(adds=True) == all_(ErrorCode.NONE)
    assert len(rig.asked) == 4
    assert (rig.failures.value, sum(rig.times.counts)) == (0, 1)


async def test_retries_end_at_deadline(rig: Rig) -> None:
    rig.answers = [CONCURRENT]
    assert await rig.admit(adds=True) == all_(ErrorCode.CONCURRENT_TRANSACTIONS)
    assert 2 <= len(rig.asked) <= 25
    assert rig.failures.value == 1


async def test_backoff_of_zero_allows_one_retry(rig: Rig) -> None:
    rig.properties["add.partitions.to.txn.retry.backoff.max.ms"] = "0"
    rig.answers = [CONCURRENT]
    await rig.admit(adds=True)
    assert len(rig.asked) == 2


async def test_other_errors_are_not_retried(rig: Rig) -> None:
    rig.answers = [CONCURRENT, FENCED]
    assert await rig.admit(adds=True) == all_(ErrorCode.PRODUCER_FENCED)
    assert len(rig.asked) == 2


async def test_verification_of_older_protocol_is_not_retried(rig: Rig) -> None:
    """Clients of the older protocol repeat the request themselves."""
    rig.answers = [CONCURRENT]
    assert await rig.admit(adds=False) == all_(ErrorCode.CONCURRENT_TRANSACTIONS)
    assert len(rig.asked) == 1


async def test_retry_awaits_later_answer(rig: Rig) -> None:
    later = rig.later()
    rig.answers.insert(0, CONCURRENT)
    answer = rig.verifier.ask("x", PRODUCER, [A, B], adds=True)
    while len(rig.asked) < 2:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert isinstance(answer, asyncio.Future)
    assert not answer.done()
    later.set_result(None)
    assert await answer == all_(ErrorCode.NONE)


@pytest.mark.parametrize("insists", [False, True])
async def test_cancelled_request_is_neither_retried_nor_counted(rig: Rig, insists: bool) -> None:
    later = rig.later()
    if insists:
        rig.answers = [CONCURRENT]
    answer = rig.verifier.ask("x", PRODUCER, [A, B], adds=True)
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
async def test_coordinator_on_other_broker_is_asked(rig: Rig, adds: bool) -> None:
    rig.answers = [ELSEWHERE, all_(ErrorCode.NONE)]
    assert await rig.admit(adds=adds) == all_(ErrorCode.NONE)
    assert rig.asked_elsewhere == [(VerificationRequest("x", PRODUCER, [A, B], adds), 7)]
    assert (rig.failures.value, sum(rig.times.counts)) == (0, 1)


@pytest.mark.parametrize(("adds", "times"), [(False, 1), (True, 3)])
async def test_busy_remote_coordinator_is_retried_for_newer_protocol_only(
    rig: Rig, adds: bool, times: int
) -> None:
    """The other broker's answers are a future; KIP-609 lets only the newer protocol retry."""
    rig.answers = []
    for answer in (CONCURRENT, CONCURRENT, KafkaError(ErrorCode.NONE)):
        later: asyncio.Future[Answers] = asyncio.get_running_loop().create_future()
        later.set_result(all_(answer.code))
        rig.answers += [ELSEWHERE, later]
    answers = await rig.admit(adds=adds)
    assert answers == all_(ErrorCode.NONE if adds else ErrorCode.CONCURRENT_TRANSACTIONS)
    assert len(rig.asked_elsewhere) == times


async def test_retry_follows_coordinator_that_moved_to_this_broker(rig: Rig) -> None:
    rig.answers = [ELSEWHERE, all_(ErrorCode.CONCURRENT_TRANSACTIONS), None]
    assert await rig.admit(adds=True) == all_(ErrorCode.NONE)
    assert (len(rig.asked), len(rig.asked_elsewhere)) == (2, 1)


async def test_request_past_deadline_is_not_retried(rig: Rig) -> None:
    later = rig.later()
    answer = rig.verifier.ask("x", PRODUCER, [A, B], adds=True)
    rig.clock.seconds += 0.02
    later.set_exception(CONCURRENT)
    assert await wait(answer) == all_(ErrorCode.CONCURRENT_TRANSACTIONS)
    assert len(rig.asked) == 1


async def test_verification_follows_the_configuration_at_once(rig: Rig) -> None:
    assert rig.verifier.verifies
    rig.properties["transaction.partition.verification.enable"] = "false"
    assert not rig.verifier.verifies
