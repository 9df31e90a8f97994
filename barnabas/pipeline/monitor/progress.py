"""The progress of a job: figures of its batches, its last decision and its open transactions. Pure.

A `Monitor` is fed with Spark's progress events; its `Progress` is the one model that a terminal,
JSON lines, `pipeline status`, a web page and metrics show. The schema of the JSON has the
docstrings of its fields.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple, get_args

from pydantic import TypeAdapter, ValidationError

from barnabas.config.faults import first_fault
from barnabas.pipeline.errors import BadKind
from barnabas.registry.wire import Part

WINDOW_SECONDS: Final = 30.0
"""Rates are means over the last seconds, so that they fall when batches no longer come."""
_MOST_BATCHES: Final = 1000

State = Literal["starting", "running", "stopped", "failed"]
STARTING: Final = "starting"
RUNNING: Final = "running"
STOPPED: Final = "stopped"
FAILED: Final = "failed"
STATES: Final[tuple[State, ...]] = get_args(State)


@dataclass(frozen=True, slots=True)
class BatchFigures:
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
    """The sink's commit, after the last task; included in `tasks_ms` if not measured separately."""
    checkpoint_ms: int
    late_rows: int
    """Rows that the watermark has dropped."""
    state_rows: int
    """Rows in the state of the query."""
    watermark: str | None
    """The watermark that the batch began with; Spark has one for all operators of a query."""
    watermark_delay_ms: int | None
    """The time from the watermark to the begin of the batch; null before the first watermark."""


@dataclass(frozen=True, slots=True)
class TopicLag:
    """The lag of a source in a topic."""

    topic: str
    lag: int
    """Offsets that are not read yet."""


@dataclass(frozen=True, slots=True)
class SourceLag:
    """The lag of a source of the job."""

    view: str
    topics: tuple[TopicLag, ...]


@dataclass(frozen=True, slots=True)
class StateOperator:
    """An operator of the query that keeps state."""

    number: int
    """Its place in Spark's plan, where 0 is next to the sink."""
    name: str
    """Spark's name, such as `dedupe`, `stateStoreSave` (GROUP BY) or `symmetricHashJoin`."""
    rows: int
    bytes: int
    """The memory of its state."""
    late_rows: int
    """Rows that the watermark has dropped, since the start."""
    removed_rows: int
    """Rows that have left the state, since the start."""


@dataclass(frozen=True, slots=True)
class BadExample:
    """The place of a bad record. The record itself is in the topic for bad records."""

    topic: str | None
    partition: int | None
    offset: int | None
    schema: str | None
    """Subject and id of its schema; null without a registry."""


@dataclass(frozen=True, slots=True)
class BadRecords:
    """The bad records of one view for one reason."""

    view: str
    """The view of a source, or of a step that parses."""
    part: Part
    reason: BadKind
    records: int
    """The number since the start."""
    example: BadExample | None
    """A record of the last batch that had one; null if the view has no places of records."""


@dataclass(frozen=True, slots=True)
class LastDecision:
    """The last committed decision of a sink."""

    batch: int
    query: str
    transactions: int
    rows: int
    offset: int
    """Offset of the decision in the topic of decisions."""


@dataclass(frozen=True, slots=True)
class DecisionCounts:
    """The decisions of a sink since the start of its job."""

    committed: int
    transactions: int
    """The transactions of tasks that these decisions have committed."""
    dropped: int
    """Decisions that were aborted: of batches that failed, or that were decided before."""


@dataclass(frozen=True, slots=True)
class SinkTransaction:
    """An open transaction under the id of a sink."""

    transactional_id: str
    producer_id: int
    epoch: int
    age_seconds: float
    is_kept: bool
    """Whether InitProducerId has kept it (KIP-939)."""


@dataclass(frozen=True, slots=True)
class SinkState:
    """The state of a sink in the cluster; null is unknown."""

    decision: LastDecision | None
    counts: DecisionCounts | None
    open: tuple[SinkTransaction, ...] | None
    problem: str | None
    """The reason why the cluster could not be asked."""


UNKNOWN: Final = SinkState(decision=None, counts=None, open=None, problem=None)


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a job, a line for each batch and for each change of the state."""

    job: str
    sink: str
    state: State
    error: str | None
    query: str | None
    run: str | None
    at_seconds: float
    """Time in seconds since 1970."""
    progressed_at_seconds: float
    """The last time at which a batch ended or the query waited for data; before, the start."""
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
    sources: tuple[SourceLag, ...] | None
    operators: tuple[StateOperator, ...]
    bad: tuple[BadRecords, ...]
    """Each reason that the records of a view can have, with those that no record has had."""
    cluster: SinkState

    @classmethod
    def from_json(cls, text: str | bytes) -> "Progress":
        """Return the progress in the JSON of its fields; raises ValueError."""
        try:
            return _ADAPTER.validate_json(text)
        except ValidationError as error:
            raise ValueError(f"not a progress of this version: {first_fault(error)}") from error

    def to_json(self) -> bytes:
        """Return the JSON of its fields, a line without its end."""
        return _ADAPTER.dump_json(self)


_ADAPTER: Final = TypeAdapter(Progress)


@dataclass(frozen=True, slots=True)
class Status:
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
    progress: Progress | None
    """The job's progress as its last run has left it in the checkpoint, at `at_seconds`."""


class BatchEvent(NamedTuple):
    """One of Spark's progress events; the numbers in `operators` and `bad` are of its batch."""

    batch: BatchFigures
    sources: tuple[SourceLag, ...] | None = None
    """None if the offsets of a source are unknown."""
    operators: tuple[StateOperator, ...] = ()
    bad: tuple[BadRecords, ...] = ()


class Monitor:
    """The figures of a running job since its start."""

    def __init__(self, job: str, sink: str, started: float) -> None:
        self.job = job
        self._sink = sink
        self._started = started
        self._recent: deque[BatchFigures] = deque(maxlen=_MOST_BATCHES)
        self._totals = [0, 0, 0, 0]
        self._batches = 0
        self._sources: tuple[SourceLag, ...] | None = None
        self._operators: dict[tuple[int, str], StateOperator] = {}
        self._bad: dict[tuple[str, str, str], BadRecords] = {}
        self.progressed_at = started
        """The last time at which a batch ended or the query waited for data."""
        self.state: State = STARTING
        self.error: str | None = None
        self.query: str | None = None
        self.run: str | None = None
        self.cluster = UNKNOWN

    @property
    def last_batch(self) -> int:
        """The number of the last batch; -1 if there was none."""
        return self._recent[-1].number if self._recent else -1

    def add(self, event: BatchEvent) -> None:
        """Add the figures of a batch that has ended; a later event replaces that of its batch."""
        batch = event.batch
        self._sources = event.sources
        if self._recent and self._recent[-1].number >= batch.number:
            # Spark repeats the last batch every ten seconds while no data comes.
            self._recent[-1] = replace(self._recent[-1], lag=batch.lag)
            return
        self._recent.append(batch)
        self.progressed_at = max(self.progressed_at, batch.ended_at_seconds)
        self._batches += 1
        figures = (batch.rows_in, batch.rows_out or 0, batch.bad_rows, batch.late_rows)
        self._totals = [sum(each) for each in zip(self._totals, figures, strict=True)]
        self._add_operators(event.operators)
        self._add_bad(event.bad)

    def _add_operators(self, operators: Iterable[StateOperator]) -> None:
        before, self._operators = self._operators, {}
        for each in operators:
            key = (each.number, each.name)
            if (old := before.get(key)) is not None:
                each = replace(
                    each,
                    late_rows=old.late_rows + each.late_rows,
                    removed_rows=old.removed_rows + each.removed_rows,
                )
            self._operators[key] = each

    def _add_bad(self, found: Iterable[BadRecords]) -> None:
        for each in found:
            key = (each.view, each.part, each.reason)
            if (old := self._bad.get(key)) is not None:
                each = replace(
                    each,
                    records=old.records + each.records,
                    example=each.example or old.example,
                )
            self._bad[key] = each

    def progress(self, now: float) -> Progress:
        """Return the progress at `now`, in seconds since the epoch."""
        since = now - WINDOW_SECONDS
        recent = [each for each in self._recent if each.ended_at_seconds > since]
        seconds = max(1.0, min(WINDOW_SECONDS, now - self._started))
        rows_in, rows_out, bad_rows, late_rows = self._totals
        return Progress(
            job=self.job,
            sink=self._sink,
            state=self.state,
            error=self.error,
            query=self.query,
            run=self.run,
            at_seconds=now,
            progressed_at_seconds=self.progressed_at,
            rows_in_per_s=sum(each.rows_in for each in recent) / seconds,
            rows_out_per_s=sum(each.rows_out or 0 for each in recent) / seconds,
            rows_in=rows_in,
            rows_out=rows_out,
            bad_rows=bad_rows,
            late_rows=late_rows,
            batches=self._batches,
            last=self._recent[-1] if self._recent else None,
            sources=self._sources,
            operators=tuple(self._operators.values()),
            bad=tuple(self._bad.values()),
            cluster=self.cluster,
        )
