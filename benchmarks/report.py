"""The pages of figures, from the results of `beside_kafka.py`.

docs/PERFORMANCE.md is one screen for users; benchmarks/RESULTS.md has the method, all tables and
the reasons behind them; benchmarks/AIMS.md has the aims beside Barnabas before, the peers and the
floor, and says which are met.
"""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.floors import IN_C
from benchmarks.measures import PAGES, TABLES, shown
from benchmarks.systems import OURS, PEERS, THEIRS

STOCK = "stock connector"
_SAME_TABLES = {"general": "requests"}
_OF_MEGABYTES = ("throughput", "soon", "security")
"""Parts whose loads have a size in megabytes."""
_SHARES = {"a quarter": 0.25, "an eighth": 0.125}

Medians = Mapping[str, Mapping[str, Mapping[str, float]]]
"""Figures by measurement and system."""
Results = Mapping[str, Any]
"""The results of a part, or those of all parts by name."""


def table(
    heads: Sequence[str], rows: Iterable[Iterable[str]], texts: Collection[int] = (0,)
) -> list[str]:
    """Return the lines of a table, of whose columns some are texts and the others numbers."""
    head = "".join(f" {name} |" if name else " |" for name in heads)
    rule = "".join("---|" if at in texts else "--:|" for at in range(len(heads)))
    return [f"|{head}", f"|{rule}", *(f"| {' | '.join(cells)} |" for cells in rows)]


def ratio(value: float, beside: float | None) -> str:
    return f"{value / beside:.2f}" if beside else ""


def spread(values: Sequence[float]) -> str:
    """Return the distance of the farthest rounds, relative to the middle."""
    middle = sorted(values)[len(values) // 2] if len(values) > 1 else 0.0
    return f"{(max(values) - min(values)) / abs(middle):.0%}" if middle else ""


def _labelled(pattern: str, label: str, medians: Medians) -> Iterator[tuple[str, str]]:
    """Yield the measurements of a pattern with their labels."""
    for name in medians:
        if (found := re.fullmatch(pattern, name)) is not None:
            yield name, label.format(name, *found.groups())


# -- tables of one measurement, with a line for each system ----------------------------------------


def side_by_side(part: str, results: Results) -> list[str]:
    """Return the tables of a part: figures, their spread, and ratios to the floor and peers."""
    lines: list[str] = []
    for pattern, columns, *title in TABLES["each_system"][_SAME_TABLES.get(part, part)]:
        pairs = [each.split("=") for each in TABLES["columns"][columns].split("; ")]
        for name, label in _labelled(pattern, title[0] if title else "{0}", results["medians"]):
            lines += ["", f"### {label[0].upper()}{label[1:]}", ""]
            lines += _side_by_side(results["medians"][name], results["runs"][name], pairs)
    return lines


def _side_by_side(
    medians: Mapping[str, Mapping[str, float]],
    runs: Mapping[str, Any],
    columns: Sequence[Sequence[str]],
) -> list[str]:
    measured = {figure for figures in medians.values() for figure in figures}
    (head, first), *others = (each for each in columns if each[1] in measured)
    floor = medians.get(IN_C, {}).get(first)
    lowest = min if "CPU" in head or head.endswith((", s", ", ms", ", MB")) else max
    peer = lowest((medians[each][first] for each in PEERS if each in medians), default=None)
    beside = {"of the floor": floor, "of the best peer": peer}
    if not floor:
        del beside["of the floor"]
    rows = []
    for system in filter(medians.__contains__, TABLES["order"]["systems"]):
        value = medians[system][first]
        cells = [system, shown(value), spread([each[first] for each in runs[system]])]
        cells += [ratio(value, each) for each in beside.values()]
        rows.append([*cells, *(shown(medians[system].get(key)) for _, key in others)])
    return table(["system", head, "spread", *beside, *(each for each, _ in others)], rows)


# -- figures of Barnabas beside another one, some with an aim --------------------------------------


def is_met(aim: str, ours: float, theirs: float) -> bool:
    """Return whether an aim is met: `at least` or `at most`, and a bound. It is a share of the
    other figure (`0.5x`, `a quarter`, `0.5 of another system`), a difference to it (`30 ms more`),
    or absolute (`5 ms`)."""
    _, direction, bound = aim.split(maxsplit=2)
    number = _SHARES.get(bound) or float(bound.split()[0].rstrip("x"))
    if bound in _SHARES or bound.endswith("x") or " of " in bound:
        number *= theirs
    elif bound.endswith(" more"):
        number += theirs
    return ours >= number if direction == "least" else ours <= number


class Row(NamedTuple):
    """A figure beside another one, which is 0 if it was not measured."""

    label: str
    ours: float
    theirs: float
    aim: str
    title: str = ""
    """The title of the table."""
    spreads: tuple[str, str] = ("", "")

    @property
    def figures(self) -> list[str]:
        return [shown(self.ours), shown(self.theirs or None)]

    @property
    def verdict(self) -> list[str]:
        """The aim, and whether it is met."""
        return [self.aim, "yes" if is_met(self.aim, self.ours, self.theirs) else "**no**"]


def _beside(part: str) -> str:
    return STOCK if part == "pipeline" else THEIRS


def _two(part: str, results: Results) -> Iterator[Row]:
    """Yield the rows of a part: those of Barnabas and one other system."""
    medians, beside = results["medians"], _beside(part)
    for title, pattern, begin, figures in TABLES["two_systems"][part]:
        for name, label in _labelled(pattern, begin, medians):
            ours, theirs = medians[name][OURS], medians[name].get(beside, {})
            runs = [results["runs"][name].get(each, []) for each in (OURS, beside)]
            for figure in TABLES["figures"][figures]:
                key, end, *aim = figure.split(" | ")
                if key in ours:
                    one, other = (spread([run[key] for run in each if key in run]) for each in runs)
                    both = ours[key], theirs.get(key, 0.0)
                    yield Row(label + end, *both, aim[0] if aim else "", title, (one, other))


def two_systems(part: str, results: Results) -> list[str]:
    """Return the tables of a part: figures with their spread, and ratios to the other system."""
    lines = []
    for title, several in groupby(_two(part, results), lambda row: row.title):
        rows = []
        for each in several:
            pairs = zip(each.figures, each.spreads, strict=True)
            cells = [cell for pair in pairs for cell in pair]
            rows.append([each.label, *cells, ratio(each.ours, each.theirs)])
        lines += ["", f"### {title}", ""] if title else [""]
        lines += table(["", OURS, "spread", _beside(part), "spread", "ratio"], rows)
    return lines


def _aims(results: Results) -> Iterator[tuple[str, Row]]:
    """Yield each aim whose two figures were measured, with the key of the figure."""
    for part, measurement, figure, aim, *whose in TABLES["aims"]["rows"]:
        medians = results.get(part, {}).get("medians", {})
        own = whose[0] if whose else OURS
        beside = aim.split(" of ", 1)[1]
        # Another measurement of Barnabas, or another system.
        name, system = (beside, own) if beside in medians else (measurement, beside)
        ours = medians.get(measurement, {}).get(own, {}).get(figure)
        theirs = medians.get(name, {}).get(system, {}).get(figure)
        if ours is not None and theirs is not None:
            label = f"{measurement} ({own})" if whose else measurement
            yield figure, Row(label, ours, theirs, aim)
    by_name = results.get("throughput", {}).get("medians", {}).items()
    for name, found in sorted(by_name, key=lambda each: each[0].startswith("consume")):
        rates = {each: figures["mb_per_s"] for each, figures in found.items()}
        peers = [each for each in PEERS if each in rates]
        if OURS in rates and peers:
            best = max(peers, key=rates.__getitem__)
            yield "mb_per_s", Row(name, rates[OURS], rates[best], f"at least 1 of {best}")


def aims(results: Results) -> list[str]:
    """Return the table of all aims of `tables.toml`, and of those at full speed."""
    rows = [
        [
            *(each.label, TABLES["labels"][figure], shown(each.ours), shown(each.theirs)),
            *(ratio(each.ours, each.theirs) or "0.00", *each.verdict),
        ]
        for figure, each in _aims(results)
    ]
    heads = ["row", "figure", OURS, "beside", "ratio", "aim", "met"]
    return table(heads, rows, texts=(0, 1, 5, 6))


# -- the pages -------------------------------------------------------------------------------------

_BARS: Final[dict[str, str]] = TABLES["chart"]
"""The measurements of the chart, and their labels."""
_IN_CHART = {"CPU us": "cpu_us", "p50 us": "p50_us", "per second": "per_s"}


def page(results: Results) -> str:
    """Return the page for users: a summary, a chart, the rows of the chart, and advice."""
    medians, started = results["requests"]["medians"], results["start"]["medians"]
    both = (OURS, THEIRS)
    shares = {
        name: medians[name][OURS]["cpu_us"] / medians[name][THEIRS]["cpu_us"] for name in _BARS
    }
    heads = [f"{each}: CPU us" if head == "CPU us" else head for each in both for head in _IN_CHART]
    rows = [
        [label, *(shown(medians[name][each][key]) for each in both for key in _IN_CHART.values())]
        for name, label in _BARS.items()
    ]
    several = medians["transaction of one record, 8 producers"]
    text: str = PAGES["performance"].format(
        **results["requests"],
        **started,
        shares=shares,
        rates={each: shown(several[each]["per_s"]) for each in both},
        labels=json.dumps(list(_BARS.values())),
        bars=json.dumps([round(share * 100) for share in shares.values()]),
        table="\n".join(table(["", *heads], rows)),
    )
    if "clients" in results:
        clients = results["clients"]["medians"]
        names = list(next(iter(clients.values())))
        rows = [
            [measurement, *(shown(by_client[name]["cpu_us"]) for name in names)]
            for measurement, by_client in clients.items()
        ]
        lines = "\n".join(table(["", *names], rows))
        text += PAGES["clients"].format(**results["clients"], table=lines)
    return text


def tables(results: Results, notes: Path) -> str:
    """Return the page of all results: method, tables, and the notes written by hand."""
    lines: list[str] = []
    for part, title in PAGES["titles"].items():
        if part in results:
            made = two_systems if part in TABLES["two_systems"] else side_by_side
            lines += ["", f"## {title}", "", _run(part, results[part]), *made(part, results[part])]
    return str(PAGES["results"]) + "\n".join(lines) + "\n\n" + notes.read_text()


def _run(part: str, results: Results) -> str:
    """Return the sentences on the run."""
    runs, where = PAGES["runs"], results["machine"]
    megabytes = runs["of_megabytes"] if part in _OF_MEGABYTES else ""
    text = runs.get(part, runs["part"].replace("{of_megabytes}", megabytes))
    if part not in runs and where.get("left_out"):
        text += runs["left_out"]
    return str(text.format(**results))


def aims_page(results: Results) -> str:
    """Return the page of the aims, with those of rows of the other tables."""
    lines = aims(results)
    for part in filter(results.__contains__, TABLES["two_systems"]):
        rows = [row for row in _two(part, results[part]) if row.aim]
        cells = [[each.label, *each.figures, *each.verdict] for each in rows]
        heads = ["", OURS, _beside(part), "aim", "met"]
        if rows:
            lines += ["", f"## {PAGES['titles'][part]}", "", *table(heads, cells, (0, 3, 4))]
    return str(PAGES["aims"]) + "\n".join(lines) + "\n"


def limits_page(runs: Results, notes: Path) -> str:
    """Return the page of the runs of Barnabas alone, with notes written by hand."""
    parts = []
    for name, run in runs.items():
        figures = [[each, value] for each, value in run["figures"].items()]
        made = {"figures_table": "\n".join(table(["figure", ""], figures))}
        for kind, heads in TABLES["limits"].items():
            if kind in run:
                rows = [[each, *cells] for each, cells in run[kind].items()]
                made[f"{kind}_table"] = "\n".join(table(heads, rows, (0, 5)))
        page = PAGES["limits" if name == "limits" else "long_run"]
        parts.append(page.strip().format(**run, **made))
        if name == "limits":
            parts += [notes.read_text().strip(), PAGES["long_runs"].strip()]
    return "\n\n".join(parts) + "\n"
