"""docs/PERFORMANCE.md from the results of `beside_kafka.py`, with what was missed said aloud."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

OURS, THEIRS = "Barnabas", "Apache Kafka"

Medians = Mapping[str, Mapping[str, Mapping[str, float]]]


class Aim(NamedTuple):
    """How a figure of ours should stand beside theirs, or by itself."""

    text: str
    met: Callable[[float, float], bool]


def _at_least(ratio: float) -> Aim:
    return Aim(f"at least {ratio:g}x", lambda ours, theirs: ours >= ratio * theirs)


def _at_most(ratio: float, text: str = "") -> Aim:
    return Aim(text or f"at most {ratio:g}x", lambda ours, theirs: ours <= ratio * theirs)


def _below(limit: float, ratio: float | None, unit: str) -> Aim:
    text = f"below {limit:g} {unit}" + ("" if ratio is None else ", at most a sixth")
    return Aim(
        text,
        lambda ours, theirs: ours < limit and (ratio is None or ours <= ratio * theirs),
    )


class Row(NamedTuple):
    """One line of a table."""

    measurement: str
    figure: str
    label: str
    aim: Aim | None


def _rows(medians: Medians) -> dict[str, list[Row]]:
    """The tables, in the order of the page."""
    sixth = 1 / 6
    single = "one record at a time"
    return {
        "Starting and resting": [
            Row(
                "start", "seconds", "start to first acknowledged record, s", _below(0.4, sixth, "s")
            ),
            Row("idle", "resident_mb", "resident memory when idle, MB", _below(60, sixth, "MB")),
        ],
        "One record at a time": [
            Row(single, "p50_us", "p50, us", _at_most(0.5)),
            Row(single, "p99_us", "p99, us", _at_most(0.5)),
            Row(single, "cpu_us_per_request", "broker CPU per request, us", None),
        ],
        "Broker CPU of a request": [
            Row(
                "bare produce of 16 KB",
                "cpu_us_per_request",
                "produce of 16 KB, us",
                _below(50, None, "us"),
            ),
            Row("bare fetch of 16 KB", "cpu_us_per_request", "fetch of 16 KB, us", None),
        ],
        "Produce": _loads(medians, "produce"),
        "Consume": _loads(medians, "consume"),
    }


def _loads(medians: Medians, what: str) -> list[Row]:
    rows = []
    for name in medians:
        if not name.startswith(f"{what} "):
            continue
        label = name.removeprefix(f"{what} ")
        faster, cheaper = _at_least(1), _at_most(1)
        if what == "produce":
            small = name.endswith(" 16 KB")
            faster = _at_least(2) if small else _at_least(1)
            cheaper = _at_most(0.25, "at most a quarter") if small else _at_most(0.7)
        rows.append(Row(name, "mb_per_s", f"{label}, MB/s", faster))
        rows.append(Row(name, "cpu_s_per_gb", f"{label}, CPU s/GB", cheaper))
        if what == "produce":
            rows.append(Row(name, "requests_per_s", f"{label}, requests/s", None))
    return rows


def page(results: Mapping[str, Any], notes: Path) -> str:
    """The whole page: machine, command, tables, and the hand-written notes."""
    where, medians = results["machine"], results["medians"]
    lines = [
        "# Performance",
        "",
        f"Barnabas beside Apache Kafka {where['kafka']} with the JVM options of its own scripts, "
        "measured in one run, in turns, after the same warm-up. "
        f"Medians of {results['rounds']} rounds of {results['megabytes']} MB per load; both with "
        "acks=all, their default flush policy, one partition, no compression. CPU seconds and "
        "memory are the kernel's accounting of the broker's process: load and broker share the "
        "cores, so the CPU columns say more than the throughput.",
        "",
        f"- machine: {where['cpu']}, {where['system']}, Python {where['python']}",
        f"- load average before the run: {where['load_before']}",
        f"- date: {where['date']}",
        "- command: `python -m benchmarks.beside_kafka` (writes this page and "
        "`benchmarks/results.json`)",
    ]
    for title, rows in _rows(medians).items():
        lines += ["", f"## {title}", ""]
        lines += [f"| | {OURS} | {THEIRS} | ratio | aim | met |", "|---|--:|--:|--:|---|---|"]
        lines += [_line(row, medians) for row in rows]
    return "\n".join(lines) + "\n\n" + notes.read_text()


def _line(row: Row, medians: Medians) -> str:
    by_system = medians[row.measurement]
    ours, theirs = by_system[OURS][row.figure], by_system[THEIRS][row.figure]
    aim, met = "", ""
    if row.aim is not None:
        aim, met = row.aim.text, "yes" if row.aim.met(ours, theirs) else "**no**"
    ratio = f"{ours / theirs:.2f}" if theirs else ""
    return f"| {row.label} | {_shown(ours)} | {_shown(theirs)} | {ratio} | {aim} | {met} |"


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
