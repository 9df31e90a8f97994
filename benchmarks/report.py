"""The pages of figures, from the results of `beside_kafka.py`.

docs/PERFORMANCE.md is one screen for users; benchmarks/RESULTS.md has the method, all tables and
the reasons behind them; benchmarks/AIMS.md has the aims.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks import aims
from benchmarks.floors import IN_C
from benchmarks.measures import PAGES, TABLES, shown
from benchmarks.systems import OURS, PEERS, THEIRS

STOCK = "stock connector"
_SAME_TABLES = {"general": "requests", "profiled": "requests"}
_OF_MEGABYTES = ("throughput", "soon", "security")
"""Parts whose loads have a size in megabytes."""

BySystem = Mapping[str, Mapping[str, float]]
Medians = Mapping[str, BySystem]


def _heads(*names: str, texts: int = 1) -> list[str]:
    """Return the first lines of a table whose first columns are texts, the others numbers."""
    rule = "|---" * texts + "|--:" * (len(names) - texts) + "|"
    return ["|" + "".join(f" {name} |" if name else " |" for name in names), rule]


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _labelled(pattern: str, label: str, medians: Medians) -> Iterator[tuple[str, str]]:
    """Yield the measurements of a pattern with their labels."""
    for name in medians:
        if (found := re.fullmatch(pattern, name)) is not None:
            yield name, label.format(name, *found.groups())


# -- tables of one measurement, with a line for each system ----------------------------------------

Columns = Sequence[Sequence[str]]
"""Heads and figures."""


def side_by_side(part: str, results: Mapping[str, Any]) -> list[str]:
    """Return the tables of a part: figures, their spread, and ratios to the floor and peers."""
    medians, runs = results["medians"], results["runs"]
    lines: list[str] = []
    for pattern, columns, *title in TABLES["each_system"][_SAME_TABLES.get(part, part)]:
        for name, label in _labelled(pattern, title[0] if title else "{0}", medians):
            pairs = [each.split("=") for each in TABLES["columns"][columns].split("; ")]
            lines += ["", f"### {label[0].upper()}{label[1:]}", ""]
            lines += _side_by_side(medians[name], runs[name], pairs)
    return lines


def _side_by_side(medians: BySystem, runs: Mapping[str, Any], columns: Columns) -> list[str]:
    measured = {figure for figures in medians.values() for figure in figures}
    (head, first), *others = (each for each in columns if each[1] in measured)
    floor = medians.get(IN_C, {}).get(first)
    lowest = min if "CPU" in head or head.endswith((", s", ", ms", ", MB")) else max
    peer = lowest((medians[each][first] for each in PEERS if each in medians), default=None)
    names = ["system", head, "spread", *(["of the floor"] if floor else []), "of the best peer"]
    lines = _heads(*names, *(head for head, _ in others))
    for system in TABLES["order"]["systems"]:
        if system in medians:
            figures = medians[system]
            value = figures[first]
            cells = [system, shown(value), spread([each[first] for each in runs[system]])]
            cells += [ratio(value, beside) for beside in ([floor] if floor else []) + [peer]]
            lines.append(_row(*cells, *(shown(figures.get(key)) for _, key in others)))
    return lines


def ratio(value: float, beside: float | None) -> str:
    return f"{value / beside:.2f}" if beside else ""


def spread(values: Sequence[float]) -> str:
    """Return the distance of the farthest rounds, relative to the middle."""
    middle = sorted(values)[len(values) // 2] if len(values) > 1 else 0.0
    return f"{(max(values) - min(values)) / abs(middle):.0%}" if middle else ""


# -- tables of many measurements, ours and one other system ----------------------------------------


class Row(NamedTuple):
    """One line of a table; `theirs` is 0 if the other system was not measured."""

    title: str
    label: str
    ours: float
    theirs: float
    spreads: tuple[str, str]
    aim: str

    @property
    def cells(self) -> list[str]:
        return [self.label, shown(self.ours), shown(self.theirs or None)]

    @property
    def cells_with_spreads(self) -> list[str]:
        label, *figures = self.cells
        return [label, *(each for pair in zip(figures, self.spreads, strict=True) for each in pair)]

    @property
    def met(self) -> bool:
        return aims.is_met(self.aim, self.ours, self.theirs)


def _beside(part: str) -> str:
    return STOCK if part == "pipeline" else THEIRS


def _two(part: str, results: Mapping[str, Any]) -> Iterator[Row]:
    """Yield the rows of a part."""
    medians, beside = results["medians"], _beside(part)
    for title, pattern, begin, figures in TABLES["two_systems"][part]:
        for name, label in _labelled(pattern, begin, medians):
            ours, theirs = medians[name][OURS], medians[name].get(beside, {})
            runs = [results["runs"][name].get(each, []) for each in (OURS, beside)]
            for figure in TABLES["figures"][figures]:
                key, end, *aim = figure.split(" | ")
                if key in ours:
                    one, other = (spread([run[key] for run in each if key in run]) for each in runs)
                    value = theirs.get(key, 0.0)
                    yield Row(title, label + end, ours[key], value, (one, other), *aim or [""])


def two_systems(part: str, results: Mapping[str, Any]) -> list[str]:
    """Return the tables of a part: figures with their spread, and ratios to the other system."""
    lines = []
    for title, rows in groupby(_two(part, results), lambda row: row.title):
        lines += ["", f"### {title}", ""] if title else [""]
        lines += _heads("", OURS, "spread", _beside(part), "spread", "ratio")
        lines += [_row(*row.cells_with_spreads, ratio(row.ours, row.theirs)) for row in rows]
    return lines


# -- the pages -------------------------------------------------------------------------------------

_BARS: Final[dict[str, str]] = TABLES["chart"]
"""The measurements of the chart, and their labels."""
_IN_CHART = {"CPU us": "cpu_us", "p50 us": "p50_us", "per second": "per_s"}


def page(results: Mapping[str, Any]) -> str:
    """Return the page for users: a summary, a chart, the rows of the chart, and advice."""
    medians, started = results["requests"]["medians"], results["start"]["medians"]
    both = (OURS, THEIRS)
    shares = {
        name: medians[name][OURS]["cpu_us"] / medians[name][THEIRS]["cpu_us"] for name in _BARS
    }
    heads = [f"{each}: CPU us" if head == "CPU us" else head for each in both for head in _IN_CHART]
    lines = _heads("", *heads)
    for name, label in _BARS.items():
        figures = [medians[name][each][key] for each in both for key in _IN_CHART.values()]
        lines.append(_row(label, *map(shown, figures)))
    several = medians["transaction of one record, 8 producers"]
    text = PAGES["performance"].format(
        **results["requests"],
        **started,
        shares=shares,
        rates={each: shown(several[each]["per_s"]) for each in both},
        labels=json.dumps(list(_BARS.values())),
        bars=json.dumps([round(share * 100) for share in shares.values()]),
        table="\n".join(lines),
    )
    if "clients" not in results:
        return str(text)
    clients = results["clients"]["medians"]
    names = list(next(iter(clients.values())))
    lines = _heads("", *names)
    for measurement, by_client in clients.items():
        lines.append(_row(measurement, *(shown(by_client[name]["cpu_us"]) for name in names)))
    return str(text + PAGES["clients"].format(**results["clients"], table="\n".join(lines)))


def tables(results: Mapping[str, Any], notes: Path) -> str:
    """Return the page of all results: method, tables, and the notes written by hand."""
    lines: list[str] = []
    for part, title in PAGES["titles"].items():
        if part in results:
            lines += ["", f"## {title}", "", _run(part, results[part]), *_part(part, results[part])]
    return str(PAGES["results"]) + "\n".join(lines) + "\n\n" + notes.read_text()


def _run(part: str, results: Mapping[str, Any]) -> str:
    """Return the sentences on the run."""
    runs, where = PAGES["runs"], results["machine"]
    if part == "pipeline" and "spark" not in where:
        part = "earlier_pipeline"
    megabytes = runs["of_megabytes"] if part in _OF_MEGABYTES else ""
    text = runs.get(part, runs["part"].replace("{of_megabytes}", megabytes))
    if part not in runs and where.get("left_out"):
        text += runs["left_out"]
    return str(text.format(**results))


def _part(part: str, results: Mapping[str, Any]) -> list[str]:
    """Return the tables of a part."""
    if part == "registering":
        return _registering(results["medians"])
    if part in TABLES["two_systems"]:
        return two_systems(part, results)
    return side_by_side(part, results)


def _registering(medians: Medians) -> list[str]:
    """Return the comparison of two settings of one broker."""
    heads = ("transactions/s", "broker CPU us", "requests each", "retriable refusals")
    keys = ("per_s", "cpu_us", "requests_per_txn", "refusals_per_txn")
    rows = (
        _row(name, variant, *(shown(figures[key]) for key in keys))
        for name, variants in medians.items()
        for variant, figures in variants.items()
    )
    return ["", *_heads("", "", *heads, texts=2), *rows]


def aims_page(results: Mapping[str, Any]) -> str:
    """Return the page of the aims: those of `aims.py`, and those of rows of the other tables."""
    lines = aims.table(results)
    for part in filter(results.__contains__, TABLES["two_systems"]):
        if rows := [row for row in _two(part, results[part]) if row.aim]:
            lines += ["", f"## {PAGES['titles'][part]}", ""]
            lines += [f"| | {OURS} | {_beside(part)} | aim | met |", "|---|--:|--:|---|---|"]
            lines += [_row(*row.cells, row.aim, aims.said(row.met)) for row in rows]
    return str(PAGES["aims"]) + "\n".join(lines) + "\n"
