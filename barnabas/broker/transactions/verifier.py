"""The verification of transactions by their coordinators, for partitions of this broker (KIP-890).

A leader asks before the first record of a transaction: whether the partition is in it, for clients
of the older protocol, or to add it, for those of the newer one. The coordinator is mostly another
broker; if it is this one, most answers come at once.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from barnabas.broker.transactions.remote_coordinators import RemoteCoordinators
from barnabas.broker.transactions.verification_request import Answers, VerificationRequest
from barnabas.config.broker import BrokerConfig
from barnabas.coordinator.ports import Clock
from barnabas.coordinator.soon import Soon, chain, spawn, wait
from barnabas.coordinator.transaction.coordinator import TransactionCoordinator
from barnabas.coordinator.transaction.metadata import TV2, Producer
from barnabas.coordinator.transaction.partitions import AddPartitions, VerifyPartitions
from barnabas.coordinator.transaction.repeated import RepeatedStep
from barnabas.metrics.catalogue import TransactionMetrics
from barnabas.protocol.backoff import Backoff
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.topic_partition import TopicPartition

_FIRST_BACKOFF: Final = 1 / 8
"""The first part of the back-off: markers mostly take a few milliseconds."""


class TransactionVerifier:
    """The check of Produce and TxnOffsetCommit before the first record of a transaction."""

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

    def ask(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Sequence[TopicPartition],
        *,
        adds: bool,
        principal: str | None = None,
    ) -> Soon[Answers]:
        """Return the coordinator's answers, at once or as a future that never fails."""
        began = self._clock.monotonic()
        request = VerificationRequest(transactional_id, producer, partitions, adds, principal)
        answers = self._ask_once(request)
        if adds:
            answers = self._ask_until_free(request, answers, began)
        if isinstance(answers, dict):
            self._count(answers, began)
        else:
            answers.add_done_callback(lambda done: self._count_later(done, began))
        return answers

    def repeated_add(self, request: AddPartitions) -> RepeatedStep | None:
        """Return what adds the same partitions to further transactions; None if this broker does
        not coordinate them."""
        if self._coordinator.shard_of(request.transactional_id) is None:
            return None
        return self._coordinator.repeated(request)

    def add_again(self, added: RepeatedStep, producer: Producer, now_ms: int) -> bool:
        """Add partitions as `ask` does, if that is certainly accepted at once; return whether it
        is."""
        began = self._clock.monotonic()
        if added.again((producer, False), now_ms) is None:
            return False
        self._time_ms.observe((self._clock.monotonic() - began) * 1000)
        return True

    def _ask_once(self, request: VerificationRequest) -> Soon[Answers]:
        """Ask the broker that coordinates now, once."""
        transactional_id, producer, partitions, adds, principal = request
        try:
            if not adds:
                question = transactional_id, producer, partitions, principal
                return self._coordinator.verify(VerifyPartitions(*question))
            answer = self._coordinator.add_partitions(
                AddPartitions(transactional_id, producer, partitions, TV2, principal=principal)
            )
        except KafkaError as error:
            if error.code is ErrorCode.NOT_COORDINATOR:
                return self._others.ask(request, self._coordinator.partition_of(transactional_id))
            return request.all_with(error.code)
        if isinstance(answer, asyncio.Future):
            return spawn(_added(request, answer))
        return request.all_with(ErrorCode.NONE)

    def _ask_until_free(
        self, request: VerificationRequest, answers: Soon[Answers], began: float
    ) -> Soon[Answers]:
        if not isinstance(answers, asyncio.Future):
            return spawn(self._ask_again(request, began)) if _is_busy(answers) else answers

        def ask_again_if_busy(given: Answers) -> Soon[Answers]:
            if _is_busy(given) and self._clock.monotonic() < self._deadline(began):
                return spawn(self._ask_again(request, began))
            return given

        return chain(answers, ask_again_if_busy)

    async def _ask_again(self, request: VerificationRequest, began: float) -> Answers:
        """Ask again while the previous transaction is not over, until the deadline."""
        longest = self._config().add_partitions_to_txn_retry_backoff_ms / 1000
        backoff = Backoff(longest * _FIRST_BACKOFF, longest)
        while True:
            await asyncio.sleep(backoff.failed())
            answers = await wait(self._ask_once(request))
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


async def _added(request: VerificationRequest, answer: "asyncio.Future[None]") -> Answers:
    try:
        await answer
    except KafkaError as error:
        return request.all_with(error.code)
    return request.all_with(ErrorCode.NONE)


def _is_busy(answers: Answers) -> bool:
    """Return whether the previous transaction is not over, so that no partition can be added."""
    return ErrorCode.CONCURRENT_TRANSACTIONS in answers.values()
