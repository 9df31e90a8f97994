"""Which transactional batches of a Produce request may be appended, and with which guard.

Before the first batch of a transaction in a partition its coordinator is asked, once for all the
partitions of a request (KIP-890). What is refused is refused by partition.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from struct import Struct
from typing import Final, NamedTuple

from barnabas.broker.coordination.gate import TransactionGate
from barnabas.broker.coordination.question import Answers
from barnabas.broker.metadata.topic_names import INTERNAL_TOPICS
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.coordinator.soon import Soon, then
from barnabas.coordinator.transaction.metadata import Producer
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import HEADER_SIZE, TRANSACTIONAL
from barnabas.protocol.records.claim import Claim
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.storage.verification import UNVERIFIED, Guard

ADDS_SINCE: Final = 12
"""The version of Produce whose clients leave it to leaders to add partitions."""

_MAGIC_AT: Final = 16
_MAGIC: Final = 2
_ATTRIBUTES_LOW_BYTE: Final = 22
_PRODUCER: Final = Struct(">qhi")
_PRODUCER_AT: Final = 43
_TRANSIENT: Final = frozenset(
    (
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    )
)

Verdicts = dict[TopicPartition, Guard | KafkaError | None]
"""For each partition with a transactional batch: the guard to append it with, or why not."""


class Refused(KafkaError):
    """No log was asked: the coordinator, or the lack of one, says no. Clients that are told
    another code, for want of this one in their version, are told the message."""


class Batch(NamedTuple):
    """The transactional batch for one partition, as far as it concerns its producer."""

    place: TopicPartition
    producer: Producer
    sequence: int


def is_transactional(records: bytes | memoryview) -> bool:
    """Whether the batch is. A request holds one per partition; the validator refuses a second."""
    return (
        len(records) >= HEADER_SIZE
        and bool(records[_ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL)
        and records[_MAGIC_AT] == _MAGIC
    )


def batch_of(place: TopicPartition, records: bytes | memoryview) -> Batch:
    """What a transactional batch says of its producer."""
    producer_id, epoch, sequence = _PRODUCER.unpack_from(records, _PRODUCER_AT)
    return Batch(place, Producer(producer_id, epoch), sequence)


class ProduceAdmission:
    """Asks the coordinator where a partition does not know the transaction yet."""

    def __init__(self, replicas: ReplicaManager, gate: TransactionGate) -> None:
        self._replicas = replicas
        self._gate = gate

    def ask(self, transactional_id: str, version: int, batches: Sequence[Batch]) -> Soon[Verdicts]:
        """A verdict on each batch, mostly at once.

        Raises INVALID_PRODUCER_ID_MAPPING where the request is of more than one producer.
        """
        producer = batches[0].producer
        if any(each.producer != producer for each in batches):
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                "Transactional records contained more than one producer ID",
            )
        adds = version >= ADDS_SINCE
        if not adds and not self._gate.verifies:
            return {each.place: UNVERIFIED for each in batches}
        verdicts: Verdicts = {
            each.place: self._begin(transactional_id, each, adds) for each in batches
        }
        unknown = [place for place, verdict in verdicts.items() if isinstance(verdict, Guard)]
        if not unknown:
            return verdicts
        answers = self._gate.admit(transactional_id, producer, unknown, adds=adds)
        waits = adds and isinstance(answers, asyncio.Future)

        def judge(given: Answers) -> Verdicts:
            judged = self._judged(producer, verdicts, given)
            return self._renewed(transactional_id, batches, judged) if waits else judged

        return then(answers, judge)

    def _begin(
        self, transactional_id: str, batch: Batch, adds: bool
    ) -> "Guard | KafkaError | None":
        try:
            if batch.place[0] in INTERNAL_TOPICS:
                # Not even asked about: the coordinator would add it.
                raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
            claim = Claim(transactional_id, *batch.producer, batch.sequence, adds)
            return self._replicas.partition(*batch.place).begin_verification(claim)
        except KafkaError as error:
            return Refused(error.code)

    def _judged(self, producer: Producer, verdicts: Verdicts, answers: Answers) -> Verdicts:
        for place, code in answers.items():
            if code is ErrorCode.NONE:
                continue
            guard, verdicts[place] = verdicts[place], _refusal(code)
            if code is ErrorCode.INVALID_PRODUCER_ID_MAPPING and isinstance(guard, Guard):
                # Anybody can make producer ids up: nothing of them stays in memory.
                self._forget(place, producer, guard)
        return verdicts

    def _renewed(
        self, transactional_id: str, batches: Sequence[Batch], verdicts: Verdicts
    ) -> Verdicts:
        """Guards of this moment: who waited for the transaction before to end has lost the older
        one to its marker. What comes too late itself is refused for its epoch, which is its
        transaction's alone."""
        for each in batches:
            if isinstance(verdicts[each.place], Guard):
                verdicts[each.place] = self._begin(transactional_id, each, adds=True)
        return verdicts

    def _forget(self, place: TopicPartition, producer: Producer, guard: Guard) -> None:
        with suppress(KafkaError):
            log = self._replicas.partition(*place).log
            log.producers.forget_verification(producer.producer_id, guard)


def _refusal(code: ErrorCode) -> KafkaError:
    if code is ErrorCode.TRANSACTION_ABORTABLE:
        return Refused(code, "Partition was not added to the transaction")
    if code in _TRANSIENT:
        return Refused(
            code,
            "Unable to verify the partition has been added to the transaction. "
            f"Underlying error: {code.name}",
        )
    return Refused(code)
