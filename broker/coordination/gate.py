"""Asks transaction coordinators about partitions that this broker leads (KIP-890).

A leader asks before the first record of a transaction: whether the partition is in it, for clients
of the older protocol, or to add it, for those of the newer one. The coordinator is mostly another
broker; where it is this one, most answers are at hand.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from barnabas.broker.clock import Clock
from barnabas.broker.coordination.question import Answers, Question
from barnabas.broker.coordination.remote_coordinators import RemoteCoordinators
from barnabas.config.broker import BrokerConfig
from barnabas.coordinator.soon import Soon, promised, settled
from barnabas.coordinator.transaction.coordinator import TransactionCoordinator
from barnabas.coordinator.transaction.metadata import Producer
from barnabas.metrics.catalogue import TransactionMetrics
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.topic_partition import TopicPartition

_FIRST_BACKOFF: Final = 1 / 8
"""Of the whole: markers are mostly a matter of a few milliseconds, and nobody is told of them."""


class TransactionGate:
    """What Produce and TxnOffsetCommit ask before the first record of a transaction."""

    def __init__(
        self,
        coordinator: TransactionCoordinator,
        others: RemoteCoordinators,
        config: Callable[[], BrokerConfig],
        clock: Clock,
        metrics: TransactionMetrics,
    ) -> None:
        self._coordinator = coordinator
        self._others = others
        self._config = config
        self._clock = clock
        self._failures = metrics.verification_failures.cell()
        self._time_ms = metrics.verification_time_ms.cell()

    @property
    def verifies(self) -> bool:
        """Whether clients of the older protocol are checked."""
        return self._config().transaction_partition_verification_enable

    def admit(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Sequence[TopicPartition],
        *,
        adds: bool,
    ) -> Soon[Answers]:
        """What the coordinator says of each partition, at once or as a future that never fails."""
        began = self._clock.monotonic()
        question = Question(transactional_id, producer, partitions, adds)
        answers = self._ask(question)
        if adds:
            answers = self._patiently(question, answers, began)
        if isinstance(answers, dict):
            self._count(answers, began)
        else:
            answers.add_done_callback(lambda done: self._count_later(done, began))
        return answers

    def _ask(self, question: Question) -> Soon[Answers]:
        """Once, and nobody else than who coordinates now."""
        transactional_id, producer, partitions, adds = question
        try:
            if not adds:
                return self._coordinator.verify(transactional_id, producer, partitions)
            answer = self._coordinator.add_for_leader(transactional_id, producer, partitions)
        except KafkaError as error:
            if error.code is ErrorCode.NOT_COORDINATOR:
                return self._others.ask(question, self._coordinator.partition_of(transactional_id))
            return question.all_told(error.code)
        if isinstance(answer, asyncio.Future):
            return promised(_added(question, answer))
        return question.all_told(ErrorCode.NONE)

    def _patiently(self, question: Question, answers: Soon[Answers], began: float) -> Soon[Answers]:
        if isinstance(answers, asyncio.Future):
            return promised(self._see_through(question, answers, began))
        return promised(self._insist(question, began)) if _is_busy(answers) else answers

    async def _see_through(
        self, question: Question, asked: "asyncio.Future[Answers]", began: float
    ) -> Answers:
        answers = await asked
        if _is_busy(answers) and self._clock.monotonic() < self._deadline(began):
            return await self._insist(question, began)
        return answers

    async def _insist(self, question: Question, began: float) -> Answers:
        """Ask again while the transaction before is not over, but not for long."""
        longest = self._config().add_partitions_to_txn_retry_backoff_ms / 1000
        backoff = longest * _FIRST_BACKOFF
        while True:
            await asyncio.sleep(backoff)
            backoff = min(2 * backoff, longest)
            answers = await settled(self._ask(question))
            if not _is_busy(answers) or self._clock.monotonic() >= self._deadline(began):
                return answers

    def _deadline(self, began: float) -> float:
        return began + self._config().add_partitions_to_txn_retry_backoff_max_ms / 1000

    def _count(self, answers: Answers, began: float) -> None:
        if any(answers.values()):
            self._failures.value += 1
        self._time_ms.observe((self._clock.monotonic() - began) * 1000)

    def _count_later(self, done: "asyncio.Future[Answers]", began: float) -> None:
        if not done.cancelled():
            self._count(done.result(), began)


async def _added(question: Question, answer: "asyncio.Future[None]") -> Answers:
    try:
        await answer
    except KafkaError as error:
        return question.all_told(error.code)
    return question.all_told(ErrorCode.NONE)


def _is_busy(answers: Answers) -> bool:
    """Whether the transaction before is not over; then no partition of it can be added."""
    return ErrorCode.CONCURRENT_TRANSACTIONS in answers.values()
