"""The answers of `barnabas pipeline`."""

from dataclasses import dataclass
from typing import Any, Final

from barnabas.operations.answers.model import Answer


@dataclass(frozen=True, slots=True)
class Producer(Answer):
    """A producer id with its epoch."""

    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Place(Answer):
    """The offset of a record in a partition."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Winner(Answer):
    """A transaction that a decision commits."""

    transactional_id: str
    ongoing: Producer
    """The producer of the transaction."""
    client: Producer
    """The producer that may end it."""
    rows: int
    first: Place
    """Its first record."""


@dataclass(frozen=True, slots=True)
class Recovery(Answer):
    """The recovery of a sink."""

    sink: str
    dry_run: bool
    """Whether nothing was changed."""
    query: str | None
    """Query and batch of the last decision; null if the sink has none."""
    batch: int | None
    committed: list[str]
    """Ids of transactions of the decision that were open."""
    aborted: list[str]
    """Ids of open transactions that the decision does not name."""
    lost: list[Winner]
    unknown: list[Winner]
    """Transactions of the decision whose outcome is no longer in the log."""
    is_whole: bool
    """Whether every row of the decision is visible, or the operator has decided."""


@dataclass(frozen=True, slots=True)
class Range(Answer):
    """Input records of a partition that follow each other; `last` is included."""

    topic: str
    partition: int
    first: int
    last: int
    records: int


@dataclass(frozen=True, slots=True)
class Mismatch(Answer):
    """A transaction whose rows in the output differ from its decision."""

    producer_id: int
    epoch: int
    transactional_id: str | None
    batch: int | None
    decided: int | None
    """Null: no decision names the transaction."""
    found: int


@dataclass(frozen=True, slots=True)
class Verdict(Answer):
    """The comparison of the output of a job with its input and with the decisions."""

    job: str
    rows: int
    """Committed records of the output."""
    with_lineage: int
    """Records of the output that name their input."""
    inputs: int
    """Input records."""
    repeated: list[Range]
    missing: list[Range]
    missing_records: int
    dropped: int
    """Input records that are not in the output because an equal one is."""
    foreign: list[Range]
    """Records that the output names, and the input does not have."""
    decisions: int
    has_all_decisions: bool
    """False if compaction has removed decisions: then rows without one are no fault."""
    mismatches: list[Mismatch]
    pending: int
    """Decided transactions that are not committed yet."""
    allowed_missing: int | None
    """Null: any number."""
    problems: list[str]
    """The faults, a line each."""


ANSWERS: Final[dict[str, Any]] = {
    "pipeline recover": Recovery,
    "pipeline verify": Verdict,
}
