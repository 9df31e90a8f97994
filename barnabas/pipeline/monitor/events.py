"""Spark's progress events, as JSON: the figures of a batch, and the text of a failure. Pure."""

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, get_args

from barnabas.pipeline.errors import BadKind
from barnabas.pipeline.jobs.spec import Job
from barnabas.pipeline.monitor.progress import (
    BadExample,
    BadRecords,
    BatchEvent,
    BatchFigures,
    SourceLag,
    StateOperator,
    TopicLag,
)
from barnabas.protocol.records.group_lag import offset_lag

INPUT_METRICS: Final = "barnabas_input_"
"""The name of the observed metrics of a view that is parsed begins so; the view follows.

Their fields are ROWS for a source, `PART.REASON`, the number of bad records, and the same with
FIRST before it, the place of one.
"""
ROWS: Final = "rows"
FIRST: Final = "first."

_REASONS: Final[Mapping[str, BadKind]] = {each: each for each in get_args(BadKind)}


def view_finder(job: Job) -> Callable[[Collection[str]], str]:
    """Return the function that finds the view of a source of the job by its topics.

    Spark's events number sources as its plan has them. Sources of the same topics have one name,
    that of the first.
    """

    def find(topics: Collection[str]) -> str:
        for _, source in job.inputs:
            if source.topics is not None and set(source.topics) == set(topics):
                return source.view
        for _, source in job.inputs:
            if source.pattern is not None and all(map(source.matches, topics)):
                return source.view
        return ", ".join(sorted(topics))

    return find


def read_event(
    text: str, view_of: Callable[[Collection[str]], str], tasks_ended: float | None = None
) -> BatchEvent:
    """Return what one of Spark's progress events, its JSON, tells about its batch.

    Spark counts the rows of a source once for each branch of the query. `tasks_ended` is when the
    last task of the batch has ended, in seconds since the epoch; None if unknown.
    """
    event: Mapping[str, Any] = json.loads(text)
    times: Mapping[str, int] = event.get("durationMs", {})
    # Spark repeats the metrics of the last batch in events without data.
    has_data = event.get("numInputRows", 0) > 0
    views = {
        name.removeprefix(INPUT_METRICS): counts
        for name, counts in event.get("observedMetrics", {}).items()
        if name.startswith(INPUT_METRICS)
    }
    bad = tuple(each for name, counts in views.items() for each in _bad(name, counts, has_data))
    rows_in = event.get("numInputRows", 0)
    if views and has_data:
        rows_in = sum(counts.get(ROWS, 0) for counts in views.values())
    total_ms = times.get("triggerExecution", 0)
    write_ms = times.get("addBatch", 0)
    began = datetime.fromisoformat(event["timestamp"]).timestamp()
    commit_ms = 0
    if tasks_ended is not None:
        written = began + (total_ms - times.get("commitOffsets", 0)) / 1000
        commit_ms = min(write_ms, max(0, round((written - tasks_ended) * 1000)))
    rows_out = event.get("sink", {}).get("numOutputRows", -1)
    operators = tuple(
        _operator(number, each) for number, each in enumerate(event.get("stateOperators", []))
    )
    sources = _sources(event.get("sources", []), view_of)
    watermark = event.get("eventTime", {}).get("watermark")
    batch = BatchFigures(
        number=event["batchId"],
        ended_at_seconds=began + total_ms / 1000,
        rows_in=rows_in,
        rows_out=None if rows_out < 0 else rows_out,
        bad_rows=sum(each.records for each in bad),
        lag=_total_lag(sources),
        total_ms=total_ms,
        source_ms=times.get("latestOffset", 0) + times.get("getBatch", 0),
        tasks_ms=write_ms - commit_ms,
        commit_ms=commit_ms,
        checkpoint_ms=times.get("walCommit", 0) + times.get("commitOffsets", 0),
        late_rows=sum(each.late_rows for each in operators),
        state_rows=sum(each.rows for each in operators),
        watermark=watermark,
        watermark_delay_ms=_delay_ms(watermark, began),
    )
    return BatchEvent(batch, sources, operators, bad)


def _operator(number: int, figures: Mapping[str, Any]) -> StateOperator:
    return StateOperator(
        number=number,
        name=figures.get("operatorName", "unknown"),
        rows=figures.get("numRowsTotal", 0),
        bytes=figures.get("memoryUsedBytes", 0),
        late_rows=figures.get("numRowsDroppedByWatermark", 0),
        removed_rows=figures.get("numRowsRemoved", 0),
    )


def _delay_ms(watermark: str | None, began: float) -> int | None:
    if watermark is None:
        return None
    at = datetime.fromisoformat(watermark).timestamp()
    # Spark's watermark before the first event is the begin of 1970.
    return round((began - at) * 1000) if at > 0 else None


def _bad(view: str, counts: Mapping[str, Any], has_data: bool) -> Iterator[BadRecords]:
    """Yield the bad records of a view, in the fields of its observed metrics."""
    for name, records in counts.items():
        if name == ROWS or name.startswith(FIRST):
            continue
        part, _, reason = name.partition(".")
        first = counts.get(FIRST + name) if has_data else None
        yield BadRecords(
            view=view,
            part="key" if part == "key" else "value",
            reason=_REASONS[reason],
            records=records if has_data else 0,
            example=None if first is None else BadExample(**first),
        )


def _sources(
    sources: Sequence[Mapping[str, Any]], view_of: Callable[[Collection[str]], str]
) -> tuple[SourceLag, ...] | None:
    """Return the lag of each source; None if the offsets of one are unknown.

    A source that the plan has twice is one source, with the larger lag.
    """
    found: dict[str, dict[str, int]] = {}
    for source in sources:
        read, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
        if read is None or latest is None:
            return None
        lags: dict[str, int] = {}
        for partition, end in latest.items():
            topic = partition[0]
            lags[topic] = lags.get(topic, 0) + offset_lag(read.get(partition, 0), end)
        of_view = found.setdefault(view_of(lags), {})
        for topic, lag in lags.items():
            of_view[topic] = max(lag, of_view.get(topic, 0))
    return tuple(
        SourceLag(view, tuple(TopicLag(*each) for each in sorted(lags.items())))
        for view, lags in found.items()
    )


def _total_lag(sources: Sequence[SourceLag] | None) -> int | None:
    if sources is None:
        return None
    return sum(topic.lag for source in sources for topic in source.topics)


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
