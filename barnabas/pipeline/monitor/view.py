"""The progress of a job in a terminal."""

import time

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from barnabas.pipeline.monitor.progress import FAILED, BatchFigures, Progress, SinkState

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
    shown += cluster_rows(progress.cluster)
    if progress.state == FAILED and progress.error:
        shown.append(("error", progress.error))
    return shown


def _more(progress: Progress) -> str:
    bad = f", {progress.bad_rows:,} bad" if progress.bad_rows else ""
    return bad + (f", {progress.late_rows:,} late" if progress.late_rows else "")


def _batch(batch: BatchFigures) -> list[tuple[str, str]]:
    lag = "unknown" if batch.lag is None else f"{batch.lag:,} offsets"
    shown = [
        ("lag", lag),
        ("batch", f"{batch.number}, {batch.rows_in:,} rows in {batch.total_ms:,} ms"),
        (
            "time",
            f"source {batch.source_ms:,} ms, tasks {batch.tasks_ms:,} ms, "
            f"commit {batch.commit_ms:,} ms, checkpoint {batch.checkpoint_ms:,} ms",
        ),
    ]
    if batch.state_rows:
        shown.append(("state", f"{batch.state_rows:,} rows, watermark {batch.watermark or '-'}"))
    return shown


def cluster_rows(state: SinkState) -> list[tuple[str, str]]:
    """Return the lines about the sink."""
    if state.problem is not None:
        return [("cluster", state.problem)]
    decision = "none"
    if last := state.decision:
        decision = f"batch {last.batch}: {last.rows:,} rows in {last.transactions} transactions"
    shown = [("decision", decision)]
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
