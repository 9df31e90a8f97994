"""The report of a verdict: as text and as exit code."""

import sys
from collections.abc import Mapping
from typing import Literal

import click

from barnabas.verify.checks.anomaly import Anomaly
from barnabas.verify.disk.compare import Comparison
from barnabas.verify.judge import LISTED, Verdict

CLEAN = 0
UNUSABLE = 1
ANOMALIES = 3
VOID = 4
_SHOWN = 10
_AROUND = 3
"""Offsets shown on either side of an anomaly."""


def exit_code(verdict: Verdict) -> int:
    """Return the exit code: 0 no anomaly, 3 anomalies, 4 too few operations succeeded, 1 none."""
    if verdict.is_unusable:
        return UNUSABLE
    if not verdict.is_clean:
        return ANOMALIES
    return VOID if verdict.is_void else CLEAN


def word(verdict: Verdict) -> Literal["clean", "anomalies", "void", "unusable"]:
    """Return the verdict in a word."""
    if verdict.is_unusable:
        return "unusable"
    if not verdict.is_clean:
        return "anomalies"
    return "void" if verdict.is_void else "clean"


def show(verdict: Verdict, problems: Mapping[str, int]) -> None:
    """Print the verdict, in colours on a terminal."""
    figures = verdict.figures
    about = verdict.run.about
    click.echo(f"{about.get('workload', 'history')}, seed {about.get('seed')}")
    click.echo(
        "{transactions} transactions ({committed} committed, {aborted} aborted, {undecided} "
        "undecided), {records} records, {reads} read".format(**figures)
    )
    click.echo("{operations} operations, {ok} ok, {unknown} unknown".format(**figures))
    if not verdict.is_unusable:
        _show_found(verdict)
    for problem, count in problems.items():
        click.echo(f"note: {problem}" + (f" ({count} times)" if count > 1 else ""))
    click.echo(word(verdict))


def _show_found(verdict: Verdict) -> None:
    if sys.stdout.isatty():
        _show_table(verdict)
    else:
        for each in verdict.found:
            state = f"{each.total} found" if each.total else "ok"
            click.echo(f"{each.check.numbers:6} {state:10} {each.check.title}")
    for each in verdict.found:
        for anomaly in each.anomalies[:_SHOWN]:
            click.echo(_line(anomaly))
        if each.total > _SHOWN:
            click.echo(f"  ... and {each.total - _SHOWN} more of {each.check.numbers}")
    for anomaly in _first_of_each(verdict):
        _show_surroundings(verdict, anomaly)


def _show_table(verdict: Verdict) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("check", "guarantee", "found", box=None, pad_edge=False)
    for each in verdict.found:
        found = f"[bold red]{each.total}[/]" if each.total else "[green]ok[/]"
        table.add_row(each.check.numbers, each.check.title, found)
    Console().print(table)


def _line(anomaly: Anomaly) -> str:
    where = "" if anomaly.at is None else f" {anomaly.at[0]}-{anomaly.at[1]}"
    if anomaly.offset is not None:
        where += f" offset {anomaly.offset}"
    return f"  {anomaly.check} {anomaly.name}{where}: {anomaly.text}"


def _first_of_each(verdict: Verdict) -> list[Anomaly]:
    firsts: dict[str, Anomaly] = {}
    for anomaly in verdict.anomalies:
        if anomaly.at is not None and anomaly.offset is not None:
            firsts.setdefault(anomaly.name, anomaly)
    return list(firsts.values())


def _show_surroundings(verdict: Verdict, anomaly: Anomaly) -> None:
    """Print the records around an anomaly with transaction, outcome and visibility."""
    run = verdict.run
    assert anomaly.at is not None
    assert anomaly.offset is not None
    committed = run.final_committed.get(anomaly.at, {})
    there = run.final_uncommitted.get(anomaly.at, {})
    click.echo(f"around {anomaly.name}, {anomaly.at[0]}-{anomaly.at[1]}:")
    for offset in range(max(0, anomaly.offset - _AROUND), anomaly.offset + _AROUND + 1):
        value = there.get(offset) or committed.get(offset)
        if value is None:
            continue
        write = run.writes.get(value)
        txn = write.txn if write is not None else None
        outcome = run.outcome(txn).value if txn is not None else "no transaction"
        sees = "read_committed" if offset in committed else "read_uncommitted only"
        click.echo(f"  {offset:8} {value:16} {txn or '-':12} {outcome:14} {sees}")


def comparison_exit_code(found: Comparison) -> int:
    """Return the exit code: 0 equal replicas, 3 differences, 4 nothing to compare."""
    if found.anomalies:
        return ANOMALIES
    return CLEAN if found.batches else VOID


def show_comparison(found: Comparison) -> None:
    """Print the result of a comparison."""
    click.echo(f"{found.partitions} partitions, {found.batches} batches compared")
    for anomaly in found.anomalies[:LISTED]:
        click.echo(_line(anomaly))
    if len(found.anomalies) > LISTED:
        click.echo(f"  ... and {len(found.anomalies) - LISTED} more")
    click.echo({CLEAN: "equal", ANOMALIES: "anomalies", VOID: "void"}[comparison_exit_code(found)])
