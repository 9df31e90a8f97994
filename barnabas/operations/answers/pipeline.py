"""The answers of `barnabas pipeline`."""

from dataclasses import dataclass
from typing import Any, Final, Literal

from barnabas.operations.answers.model import Answer


@dataclass(frozen=True, slots=True)
class BatchFigures(Answer):
    """The figures of a batch; null is unknown."""

    number: int
    ended_at_seconds: float
    """End in seconds since 1970."""
    rows_in: int
    rows_out: int | None
    bad_rows: int
    lag: int | None
    """Offsets that are not read yet."""
    total_ms: int
    source_ms: int
    """Asking for offsets and planning the ranges."""
    tasks_ms: int
    """Planning and tasks: reading, computing, writing."""
    commit_ms: int
    """The sink's commit, after the last task; part of `tasks_ms` if it is not known apart."""
    checkpoint_ms: int
    late_rows: int
    """Rows that the watermark has dropped."""
    state_rows: int
    """Rows in the state of the query."""
    watermark: str | None


@dataclass(frozen=True, slots=True)
class LastDecision(Answer):
    """The last committed decision of a sink."""

    batch: int
    query: str
    transactions: int
    rows: int
    offset: int
    """Offset of the decision in the topic of decisions."""


@dataclass(frozen=True, slots=True)
class SinkTransaction(Answer):
    """An open transaction under the id of a sink."""

    transactional_id: str
    producer_id: int
    epoch: int
    age_seconds: float
    is_kept: bool
    """Whether InitProducerId has kept it (KIP-939)."""


@dataclass(frozen=True, slots=True)
class SinkState(Answer):
    """The state of a sink in the cluster; null is unknown."""

    decision: LastDecision | None
    open: list[SinkTransaction] | None
    problem: str | None
    """The reason why the cluster could not be asked."""


@dataclass(frozen=True, slots=True)
class Progress(Answer):
    """The progress of a job, a line for each batch and for each change of the state."""

    job: str
    sink: str
    state: Literal["starting", "running", "stopped", "failed"]
    error: str | None
    query: str | None
    run: str | None
    at_seconds: float
    """Time in seconds since 1970."""
    rows_in_per_s: float
    rows_out_per_s: float
    rows_in: int
    """Rows since the start, as the next fields."""
    rows_out: int
    bad_rows: int
    late_rows: int
    batches: int
    last: BatchFigures | None
    """The last batch."""
    cluster: SinkState


@dataclass(frozen=True, slots=True)
class Status(Answer):
    """The status of a job; null where the checkpoint cannot be read here."""

    job: str
    sink: str
    query: str | None
    batch: int | None
    """The last batch that has ended; -1 before the first one."""
    begun: int | None
    """The last batch that has begun."""
    lag: int | None
    """Offsets that are not read yet."""
    cluster: SinkState


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
    """Transactions of the decision whose outcome the log no longer tells."""
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
    "pipeline run": Progress,
    "pipeline status": Status,
    "pipeline recover": Recovery,
    "pipeline verify": Verdict,
}
