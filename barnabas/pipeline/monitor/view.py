"""The progress of a job in a terminal."""

import time

from rich import filesize
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from barnabas.pipeline.monitor.progress import (
    FAILED,
    BadRecords,
    BatchFigures,
    Progress,
    SinkState,
)

_SHOWN_TRANSACTIONS = 8


def render(progress: Progress) -> RenderableType:
    """Return the view of a job."""
    style = {"running": "green", "failed": "red bold"}.get(progress.state, "yellow")
    head = Text.assemble(
        (progress.job, "bold"), "  ", (progress.state, style), f"  sink {progress.sink}"
    )
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for name, text in rows(progress):
        table.add_row(name, text)
    return Group(head, table)


def rows(progress: Progress) -> list[tuple[str, str]]:
    """Return the names and texts of the view's lines."""
    shown = [
        ("rows/s", f"{progress.rows_in_per_s:,.0f} in, {progress.rows_out_per_s:,.0f} out"),
        ("rows", f"{progress.rows_in:,} in, {progress.rows_out:,} out{_more(progress)}"),
    ]
    if progress.last is not None:
        shown += _batch(progress.last)
    shown += figure_rows(progress)
    shown += cluster_rows(progress.cluster)
    if progress.state == FAILED and progress.error:
        shown.append(("error", progress.error))
    return shown


def _more(progress: Progress) -> str:
    bad = f", {progress.bad_rows:,} bad" if progress.bad_rows else ""
    return bad + (f", {progress.late_rows:,} late" if progress.late_rows else "")


def _batch(batch: BatchFigures) -> list[tuple[str, str]]:
    lag = "unknown" if batch.lag is None else f"{batch.lag:,} offsets"
    return [
        ("lag", lag),
        ("batch", f"{batch.number}, {batch.rows_in:,} rows in {batch.total_ms:,} ms"),
        (
            "time",
            f"source {batch.source_ms:,} ms, tasks {batch.tasks_ms:,} ms, "
            f"commit {batch.commit_ms:,} ms, checkpoint {batch.checkpoint_ms:,} ms",
        ),
    ]


def figure_rows(progress: Progress) -> list[tuple[str, str]]:
    """Return the lines about the parts of a job: lag of sources, state, bad records."""
    lags = [
        (f"{source.view}, {each.topic}", f"{each.lag:,} offsets")
        for source in progress.sources or ()
        for each in source.topics
    ]
    # A single one is the lag of the job.
    shown = [("", f"lag of {name}: {text}") for name, text in lags] if len(lags) > 1 else []
    if progress.operators and (last := progress.last) is not None:
        delay = last.watermark_delay_ms
        behind = "none yet" if delay is None else f"{last.watermark}, {delay / 1000:,.0f} s behind"
        shown.append(("watermark", behind))
    shown += [
        (
            f"state {each.number}",
            f"{each.name}: {each.rows:,} rows, {filesize.decimal(each.bytes)},"
            f" {each.late_rows:,} late",
        )
        for each in progress.operators
    ]
    return shown + [("bad", _bad_text(each)) for each in progress.bad if each.records]


def _bad_text(bad: BadRecords) -> str:
    text = f"{bad.records:,} of {bad.view}: {bad.part} {bad.reason}"
    if (example := bad.example) is None:
        return text
    place = f"{example.topic}/{example.partition}@{example.offset}"
    return f"{text}, such as {place}{f', {example.schema}' if example.schema else ''}"


def cluster_rows(state: SinkState) -> list[tuple[str, str]]:
    """Return the lines about the sink."""
    if state.problem is not None:
        return [("cluster", state.problem)]
    decision = "none"
    if last := state.decision:
        decision = f"batch {last.batch}: {last.rows:,} rows in {last.transactions} transactions"
    shown = [("decision", decision)]
    if counts := state.counts:
        committed = f"{counts.committed:,} committed with {counts.transactions:,} transactions"
        shown.append(("decisions", f"{committed}, {counts.dropped:,} dropped"))
    if state.open is None:
        return shown
    kept = [each for each in state.open if each.is_kept]
    shown.append(("open", f"{len(state.open)} transactions, {len(kept)} kept"))
    shown += [
        ("", f"{each.transactional_id} {each.producer_id}:{each.epoch}, {each.age_seconds:,.0f} s")
        for each in kept[:_SHOWN_TRANSACTIONS]
    ]
    if len(kept) > _SHOWN_TRANSACTIONS:
        shown.append(("", f"and {len(kept) - _SHOWN_TRANSACTIONS} more"))
    return shown


def line(progress: Progress) -> str:
    """Return the progress as one line of text, for output that is not a terminal."""
    clock = time.strftime("%H:%M:%S", time.localtime(progress.at_seconds))
    text = f"{clock} {progress.job} {progress.state}"
    if last := progress.last:
        text += (
            f": batch {last.number}, {last.rows_in} rows in, "
            f"{'?' if last.rows_out is None else last.rows_out} out, {last.bad_rows} bad, "
            f"lag {'?' if last.lag is None else last.lag}, source {last.source_ms} ms, "
            f"tasks {last.tasks_ms} ms, commit {last.commit_ms} ms"
        )
    return f"{text}: {progress.error}" if progress.error else text
