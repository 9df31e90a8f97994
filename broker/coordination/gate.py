"""Asks transaction coordinators about partitions that this broker leads (KIP-890).

A leader asks before the first record of a transaction: whether the partition is in it, for clients
of the older protocol, or to add it, for those of the newer one.
"""

import asyncio
from collections.abc import Callable, Sequence

from barnabas.broker.clock import Clock
from barnabas.config.broker import BrokerConfig
from barnabas.coordinator.soon import Soon, promised, settled
from barnabas.coordinator.transaction.coordinator import TransactionCoordinator
from barnabas.coordinator.transaction.metadata import Producer
from barnabas.metrics.catalogue import TransactionMetrics
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.topic_partition import TopicPartition

Answers = dict[TopicPartition, ErrorCode]


class TransactionGate:
    """What Produce and TxnOffsetCommit ask before the first record of a transaction."""

    def __init__(
        self,
        coordinator: TransactionCoordinator,
        config: Callable[[], BrokerConfig],
        clock: Clock,
        metrics: TransactionMetrics,
    ) -> None:
        self._coordinator = coordinator
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
        answers = (
            self._add(transactional_id, producer, partitions)
            if adds
            else self._verify(transactional_id, producer, partitions)
        )
        if isinstance(answers, dict):
            self._count(answers, began)
        else:
            answers.add_done_callback(lambda done: self._count_later(done, began))
        return answers

    def _verify(
        self, transactional_id: str, producer: Producer, partitions: Sequence[TopicPartition]
    ) -> Answers:
        try:
            return self._coordinator.verify(transactional_id, producer, partitions)
        except KafkaError as error:
            return _all(partitions, error)

    def _add(
        self, transactional_id: str, producer: Producer, partitions: Sequence[TopicPartition]
    ) -> Soon[Answers]:
        try:
            answer = self._coordinator.add_for_leader(transactional_id, producer, partitions)
        except KafkaError as error:
            if error.code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                return _all(partitions, error)
            return promised(self._insist(transactional_id, producer, partitions))
        if isinstance(answer, asyncio.Future):
            return promised(self._added(answer, partitions))
        return dict.fromkeys(partitions, ErrorCode.NONE)

    @staticmethod
    async def _added(
        answer: "asyncio.Future[None]", partitions: Sequence[TopicPartition]
    ) -> Answers:
        try:
            await answer
        except KafkaError as error:
            return _all(partitions, error)
        return dict.fromkeys(partitions, ErrorCode.NONE)

    async def _insist(
        self, transactional_id: str, producer: Producer, partitions: Sequence[TopicPartition]
    ) -> Answers:
        """Ask again while the transaction before is not over, but not for long."""
        config = self._config()
        backoff = config.add_partitions_to_txn_retry_backoff_ms / 1000
        deadline = (
            self._clock.monotonic() + config.add_partitions_to_txn_retry_backoff_max_ms / 1000
        )
        while True:
            await asyncio.sleep(backoff)
            try:
                await settled(
                    self._coordinator.add_for_leader(transactional_id, producer, partitions)
                )
                return dict.fromkeys(partitions, ErrorCode.NONE)
            except KafkaError as error:
                again = error.code is ErrorCode.CONCURRENT_TRANSACTIONS
                if not again or self._clock.monotonic() >= deadline:
                    return _all(partitions, error)

    def _count(self, answers: Answers, began: float) -> None:
        if any(answers.values()):
            self._failures.value += 1
        self._time_ms.observe((self._clock.monotonic() - began) * 1000)

    def _count_later(self, done: "asyncio.Future[Answers]", began: float) -> None:
        if not done.cancelled():
            self._count(done.result(), began)


def _all(partitions: Sequence[TopicPartition], error: KafkaError) -> Answers:
    return dict.fromkeys(partitions, error.code)
