"""The answers of `barnabas transactions`."""

from dataclasses import dataclass
from typing import Any, Final, Literal

from barnabas.operations.answers.model import Answer


@dataclass(frozen=True, slots=True)
class Transaction(Answer):
    """A transactional id."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str
    """Kafka's name of the state, such as Ongoing."""


@dataclass(frozen=True, slots=True)
class TwoPhaseTransaction(Answer):
    """An open transaction of two-phase commit (KIP-939)."""

    transactional_id: str
    coordinator: int
    producer_id: int
    epoch: int
    client_producer_id: int
    """The producer id with which the transaction can be ended."""
    client_epoch: int
    kept: bool
    """Whether a client has kept the transaction with InitProducerId."""
    age_ms: int


@dataclass(frozen=True, slots=True)
class DescribedTransaction(Answer):
    """A transactional id with its last transaction."""

    transactional_id: str
    coordinator: int
    producer_id: int
    epoch: int
    state: str
    """Kafka's name of the state, such as Ongoing."""
    timeout_ms: int
    started_at_ms: int | None
    """Start in ms since 1970; null without a transaction."""
    age_ms: int | None
    partitions: list[str]
    """TOPIC:PARTITION of each."""
    kept_by: str | None
    """PRODUCER_ID:EPOCH of the client that may end a kept transaction."""


@dataclass(frozen=True, slots=True)
class Event(Answer):
    """An event of a transaction."""

    at_ms: int
    """Time in ms since 1970."""
    event: str


@dataclass(frozen=True, slots=True)
class StuckPartition(Answer):
    """A partition whose last stable offset is below its high watermark; null is unknown."""

    topic: str
    partition: int
    last_stable_offset: int
    high_watermark: int
    because: str
    advice: str | None
    """A command that helps."""
    producer_id: int | None
    producer_epoch: int | None
    transactional_id: str | None
    coordinator: int | None
    state: str | None
    age_ms: int | None
    time_left_ms: int | None
    client: str | None
    """Address of the client."""
    keeper: str | None
    """The client that may end a transaction of two-phase commit."""
    timeline: list[Event]


@dataclass(frozen=True, slots=True)
class OpenTransaction(Answer):
    """A transaction that is open in a partition."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp_ms: int
    """Timestamp of its last record, in ms since 1970."""


@dataclass(frozen=True, slots=True)
class HangingTransaction(OpenTransaction):
    """A transaction that is open in a partition, but unknown to its coordinator."""

    idle_ms: int
    """Time since its last record."""


@dataclass(frozen=True, slots=True)
class AbortedTransaction(OpenTransaction):
    """A transaction that was aborted in a partition."""

    aborted: Literal[True]


@dataclass(frozen=True, slots=True)
class EndedTransaction(Answer):
    """A transaction of two-phase commit that was ended."""

    transactional_id: str
    producer_id: int
    epoch: int
    committed: bool


@dataclass(frozen=True, slots=True)
class FencedProducer(Answer):
    """A transactional id whose producer was fenced."""

    transactional_id: str
    producer_id: int
    epoch: int
    """The next producer has a higher epoch."""


@dataclass(frozen=True, slots=True)
class RepairedTransaction(OpenTransaction):
    """A hanging transaction, and the marker that was written."""

    decision: Literal["committed", "aborted", "unknown"]
    """The decision of the transaction log."""
    written: bool
    """Whether the marker was written."""
    why: str


ANSWERS: Final[dict[str, Any]] = {
    "transactions list": list[Transaction] | list[TwoPhaseTransaction],
    "transactions describe": DescribedTransaction,
    "transactions why": list[StuckPartition],
    "transactions find-hanging": list[HangingTransaction],
    "transactions abort": AbortedTransaction,
    "transactions end": EndedTransaction,
    "transactions fence": FencedProducer,
    "transactions repair": list[RepairedTransaction],
}
