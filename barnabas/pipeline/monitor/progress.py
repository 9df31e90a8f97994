"""The progress of a job: figures of its batches, its last decision and its open transactions. Pure.

A `Monitor` is fed with the JSON of Spark's progress events; its `Progress` is shown in a terminal,
as JSON lines, and as a web page with metrics. The schema of the lines has the docstrings of its
fields.
"""

import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Literal, get_args

from barnabas.protocol.records.group_lag import offset_lag

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
    open: tuple[SinkTransaction, ...] | None
    problem: str | None
    """The reason why the cluster could not be asked."""


UNKNOWN: Final = SinkState(decision=None, open=None, problem=None)


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

    @classmethod
    def from_json(cls, text: str) -> "Progress":
        """Return the progress in the JSON of its fields; raises ValueError."""
        try:
            data = json.loads(text)
            last, cluster = data["last"], data["cluster"]
            decision, rows = cluster["decision"], cluster["open"]
            data["last"] = last and BatchFigures(**last)
            data["cluster"] = SinkState(
                decision and LastDecision(**decision),
                None if rows is None else tuple(SinkTransaction(**row) for row in rows),
                cluster["problem"],
            )
            return cls(**data)
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a progress of this version: {error}") from error


class Monitor:
    """The figures of a running job since its start."""

    def __init__(self, job: str, sink: str, started: float) -> None:
        self.job = job
        self._sink = sink
        self._started = started
        self._recent: deque[BatchFigures] = deque(maxlen=_MOST_BATCHES)
        self._totals = [0, 0, 0, 0]
        self._batches = 0
        self.state: State = STARTING
        self.error: str | None = None
        self.query: str | None = None
        self.run: str | None = None
        self.cluster = UNKNOWN

    @property
    def last_batch(self) -> int:
        """The number of the last batch; -1 if there was none."""
        return self._recent[-1].number if self._recent else -1

    def add(self, batch: BatchFigures) -> None:
        """Add the figures of a batch that has ended; a later event replaces that of its batch."""
        if self._recent and self._recent[-1].number >= batch.number:
            # Spark repeats the last batch every ten seconds while no data comes.
            self._recent[-1] = replace(self._recent[-1], lag=batch.lag)
            return
        self._recent.append(batch)
        self._batches += 1
        figures = (batch.rows_in, batch.rows_out or 0, batch.bad_rows, batch.late_rows)
        self._totals = [sum(each) for each in zip(self._totals, figures, strict=True)]

    def progress(self, now: float) -> Progress:
        """Return the progress at `now`, in seconds since the epoch."""
        since = now - WINDOW_SECONDS
        recent = [each for each in self._recent if each.ended_at_seconds > since]
        seconds = max(1.0, min(WINDOW_SECONDS, now - self._started))
        rows_in, rows_out, bad_rows, late_rows = self._totals
        return Progress(
            self.job,
            self._sink,
            self.state,
            self.error,
            self.query,
            self.run,
            now,
            sum(each.rows_in for each in recent) / seconds,
            sum(each.rows_out or 0 for each in recent) / seconds,
            rows_in,
            rows_out,
            bad_rows,
            late_rows,
            self._batches,
            self._recent[-1] if self._recent else None,
            self.cluster,
        )


# -- Spark's progress events -----------------------------------------------------------------------


def read_event(text: str, metrics: str, tasks_ended: float | None = None) -> BatchFigures:
    """Return the figures of one of Spark's progress events, its JSON.

    The names of the observed metrics with the numbers of rows read begin with `metrics`. Spark
    counts the rows of a source once for each branch of the query. `tasks_ended` is when the last
    task of the batch has ended, in seconds since the epoch; None if unknown.
    """
    event: Mapping[str, Any] = json.loads(text)
    times: Mapping[str, int] = event.get("durationMs", {})
    of_sources = [
        counts
        for name, counts in event.get("observedMetrics", {}).items()
        if name.startswith(metrics)
    ]
    observed = {name: sum(each.get(name, 0) for each in of_sources) for name in ("rows", "bad")}
    rows_in = observed["rows"] if of_sources else event.get("numInputRows", 0)
    total_ms = times.get("triggerExecution", 0)
    write_ms = times.get("addBatch", 0)
    began = datetime.fromisoformat(event["timestamp"]).timestamp()
    commit_ms = 0
    if tasks_ended is not None:
        written = began + (total_ms - times.get("commitOffsets", 0)) / 1000
        commit_ms = min(write_ms, max(0, round((written - tasks_ended) * 1000)))
    rows_out = event.get("sink", {}).get("numOutputRows", -1)
    states: Sequence[Mapping[str, Any]] = event.get("stateOperators", [])
    # Spark repeats the metrics of the last batch in events without data.
    has_data = event.get("numInputRows", 0) > 0
    return BatchFigures(
        number=event["batchId"],
        ended_at_seconds=began + total_ms / 1000,
        rows_in=rows_in if has_data else 0,
        rows_out=None if rows_out < 0 else rows_out,
        bad_rows=observed["bad"] if has_data else 0,
        lag=_lag(event.get("sources", [])),
        total_ms=total_ms,
        source_ms=times.get("latestOffset", 0) + times.get("getBatch", 0),
        tasks_ms=write_ms - commit_ms,
        commit_ms=commit_ms,
        checkpoint_ms=times.get("walCommit", 0) + times.get("commitOffsets", 0),
        late_rows=sum(each.get("numRowsDroppedByWatermark", 0) for each in states),
        state_rows=sum(each.get("numRowsTotal", 0) for each in states),
        watermark=event.get("eventTime", {}).get("watermark"),
    )


def _lag(sources: Sequence[Mapping[str, Any]]) -> int | None:
    """Return the number of offsets between what was read and the ends of the partitions."""
    lag = 0
    for source in sources:
        read, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
        if read is None or latest is None:
            return None
        for partition, end in latest.items():
            lag += offset_lag(read.get(partition, 0), end)
    return lag


def _offsets(value: object) -> dict[tuple[str, str], int] | None:
    """Return offsets by topic and partition from the stock connector's JSON; None for others."""
    try:
        data = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return None
    if not isinstance(data, dict):
        return None
    found = {}
    for topic, partitions in data.items():
        if not isinstance(partitions, dict):
            return None
        for partition, offset in partitions.items():
            if not isinstance(offset, int):
                return None
            found[topic, partition] = offset
    return found


_PYTHON_ERROR: Final = "Error: "


def failure_text(message: str) -> str:
    """Return the line of a failed query's message that says what went wrong.

    Spark's message has the traces of Java and of the Python worker. The last line of a Python
    trace is the error; `raise_error` has its text behind USER_RAISED_EXCEPTION.
    """
    lines = [line.strip() for line in message.strip().splitlines()]
    for line in reversed(lines):
        if "[USER_RAISED_EXCEPTION]" in line:
            return _without_class(line.partition("[USER_RAISED_EXCEPTION]")[2])
    for line in reversed(lines):
        name, colon, text = line.partition(": ")
        if colon and text and name.startswith("barnabas.") and " " not in name:
            return text
    for line in reversed(lines):
        name, colon, text = line.partition(_PYTHON_ERROR)
        if colon and text and name.replace(".", "").isidentifier():
            return line
    return _without_class(lines[0] if lines else "unknown failure")


def _without_class(line: str) -> str:
    if line.startswith("[") and "] " in line:
        line = line.partition("] ")[2]
    return line.partition(" SQLSTATE: ")[0].strip()
