"""The verification of transactional batches before a Produce request appends them (KIP-890).

Before the first batch of a transaction in a partition, its coordinator is asked, once for all the
partitions of a request. A refusal concerns one partition.
"""

# The annotations of nested functions would be evaluated at each call.
from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from barnabas.broker.cluster.topic_names import INTERNAL_TOPICS
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.transactions.verification_request import Answers
from barnabas.broker.transactions.verifier import TransactionVerifier
from barnabas.coordinator.soon import Soon, map_answer
from barnabas.coordinator.transaction.metadata import TV2, Producer
from barnabas.coordinator.transaction.partitions import AddPartitions
from barnabas.coordinator.transaction.repeated import RepeatedStep
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    BatchHeader,
    HeaderFields,
)
from barnabas.protocol.records.claim import Claim
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.storage.producers.state import ProducerStateManager
from barnabas.storage.producers.verification import UNVERIFIED, Opener, VerificationGuard

_new = tuple.__new__
ADDS_SINCE: Final = 12
"""The Produce version since which leaders add the partitions to the transaction."""
_TRANSIENT: Final = frozenset(
    (
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    )
)

Batches = Sequence[tuple[TopicPartition, BatchHeader]]
"""The transactional batches of a request."""
Owner = tuple[str, str | None]
"""A transactional id, and the principal of the client; None without an authorizer."""
Verdicts = dict[TopicPartition, VerificationGuard | KafkaError | None]
"""For each partition with a transactional batch: the guard for the append, or the refusal."""


class VerificationError(KafkaError):
    """A refusal by the transaction coordinator, or an error because no coordinator could be asked.

    The log was not asked. A client whose version lacks the code gets another one, and this message.
    """


class ProduceVerification:
    """The requests to the coordinator about transactions that a partition does not know yet."""

    def __init__(self, replicas: ReplicaManager, verifier: TransactionVerifier) -> None:
        self._replicas = replicas
        self._verifier = verifier

    def repeated(self, place: TopicPartition, opener: Opener) -> RepeatedStep | None:
        """Return what adds a partition to each transaction of a client; None if its coordinator is
        another broker, or verifies only."""
        transactional_id, adds, principal = opener
        if not adds:
            return None
        # Each transaction names its producer.
        producer = Producer(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        return self._verifier.repeated_add(
            AddPartitions(transactional_id, producer, (place,), TV2, principal=principal)
        )

    def add_again(
        self,
        added: RepeatedStep,
        producers: ProducerStateManager,
        opener: Opener,
        header: HeaderFields,
        now_ms: int,
    ) -> VerificationGuard | None:
        """Add the partition of a batch to its transaction; return the guard for the append, or None
        if the batch is not certainly accepted; raises KafkaError too."""
        _, _, _, _, _, _, _, _, _, producer_id, epoch, sequence, _ = header
        transactional_id, adds, principal = opener
        claim = transactional_id, producer_id, epoch, sequence, adds, principal
        guard = producers.begin_verification(_new(Claim, claim))
        producer = _new(Producer, (producer_id, epoch))
        return guard if self._verifier.add_again(added, producer, now_ms) else None

    def ask(
        self, transactional_id: str, version: int, batches: Batches, principal: str | None = None
    ) -> Soon[Verdicts]:
        """Return the verdict on each batch; most verdicts need no wait.

        Raises INVALID_PRODUCER_ID_MAPPING if the batches are of more than one producer.
        """
        producer = _producer(batches[0][1])
        if any(_producer(header) != producer for _, header in batches):
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                "Transactional records contained more than one producer ID",
            )
        adds, owner = version >= ADDS_SINCE, (transactional_id, principal)
        if not adds and not self._verifier.verifies:
            return {partition: UNVERIFIED for partition, _ in batches}
        verdicts: Verdicts = {
            partition: self._begin(owner, partition, header, adds) for partition, header in batches
        }
        unknown = [
            each
            for each, verdict in verdicts.items()
            if isinstance(verdict, VerificationGuard) and not verdict.answered
        ]
        if not unknown:
            return verdicts
        answers = self._verifier.ask(
            transactional_id, producer, unknown, adds=adds, principal=principal
        )
        waits = adds and isinstance(answers, asyncio.Future)

        def judge(given: Answers) -> Verdicts:
            judged = self._judged(producer, verdicts, given)
            return self._renewed(owner, batches, judged) if waits else judged

        return map_answer(answers, judge)

    def _begin(
        self, owner: Owner, partition: TopicPartition, header: BatchHeader, adds: bool
    ) -> VerificationGuard | KafkaError | None:
        try:
            if partition.topic in INTERNAL_TOPICS:
                # The coordinator is not asked, because it would add the partition.
                raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
            transactional_id, principal = owner
            producer = _producer(header)
            claim = Claim(transactional_id, *producer, header.base_sequence, adds, principal)
            return self._replicas.partition(*partition).begin_verification(claim)
        except KafkaError as error:
            return VerificationError(error.code)

    def _judged(self, producer: Producer, verdicts: Verdicts, answers: Answers) -> Verdicts:
        for partition, code in answers.items():
            if code is ErrorCode.NONE:
                continue
            guard, verdicts[partition] = verdicts[partition], _refusal(code)
            if code is ErrorCode.INVALID_PRODUCER_ID_MAPPING and isinstance(
                guard, VerificationGuard
            ):
                # Any client can invent producer ids: they must not fill the memory.
                self._forget(partition, producer, guard)
        return verdicts

    def _renewed(self, owner: Owner, batches: Batches, verdicts: Verdicts) -> Verdicts:
        """Replace the guards by new ones, after a wait for the previous transaction.

        The marker of that transaction has invalidated the earlier guard. A batch that is late
        itself is refused for its epoch, which belongs to its transaction alone.
        """
        for partition, header in batches:
            if isinstance(verdicts[partition], VerificationGuard):
                verdicts[partition] = self._begin(owner, partition, header, adds=True)
        return verdicts

    def _forget(
        self, partition: TopicPartition, producer: Producer, guard: VerificationGuard
    ) -> None:
        with suppress(KafkaError):
            log = self._replicas.partition(*partition).log
            log.producers.forget_verification(producer.producer_id, guard)


def _producer(header: BatchHeader) -> Producer:
    return _new(Producer, header[9:11])


def _refusal(code: ErrorCode) -> KafkaError:
    if code is ErrorCode.TRANSACTION_ABORTABLE:
        return VerificationError(code, "Partition was not added to the transaction")
    if code in _TRANSIENT:
        return VerificationError(
            code,
            "Unable to verify the partition has been added to the transaction. "
            f"Underlying error: {code.name}",
        )
    return VerificationError(code)
