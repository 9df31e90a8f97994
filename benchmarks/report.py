"""The pages of figures, from the results of `beside_kafka.py`.

docs/PERFORMANCE.md is one screen for users; benchmarks/RESULTS.md has the method, all tables and
the reasons behind them; benchmarks/AIMS.md has the aims.
"""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks import aims, floors, requests
from benchmarks.measures import HERE, shown
from benchmarks.systems import (
    BEFORE,
    GENERAL,
    GENERAL_BEFORE,
    KFAKE,
    OURS,
    PEERS,
    THEIRS,
    processes_name,
)

STOCK = "stock connector"
TITLES = {
    "start": "Start and memory at rest",
    "requests": "Single requests, and transactions of one record",
    "general": "Produce with every short way switched off",
    "profiled": "The same on a Python built with profiles",
    "processes": "Several processes on one host",
    "throughput": "Producing and consuming at full speed",
    "streams": "Streams in transactions of 100 ms",
    "transactions": "Transactions of whole clients",
    "soon": "Soon after a start",
    "cluster": "Three brokers, three replicas",
    "security": "Security",
    "groups": "Consumer groups of KIP-848",
}
TABLES: Final = tomllib.loads((HERE / "tables.toml").read_text())
_SAME_TABLES = {"general": "requests", "profiled": "requests"}
_OF_MEGABYTES = ("throughput", "soon", "security")
"""Parts whose loads have a size in megabytes."""
_SHARES = {"a quarter": 0.25, "an eighth": 0.125}

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

ORDER = (
    floors.IN_C,
    floors.IN_UVLOOP,
    THEIRS,
    KFAKE,
    BEFORE,
    OURS,
    GENERAL_BEFORE,
    GENERAL,
    *(processes_name(count, before=way) for count in (2, 4, 8, 16, 32) for way in (True, False)),
)
Columns = Sequence[Sequence[str]]
"""Heads and figures."""


def side_by_side(part: str, results: Mapping[str, Any]) -> list[str]:
    """Return the tables of a part: figures, their spread, and ratios to the floor and peers."""
    medians, runs = results["medians"], results["runs"]
    lines: list[str] = []
    for pattern, columns, *title in TABLES["each_system"][_SAME_TABLES.get(part, part)]:
        for name, label in _labelled(pattern, *title or ["{0}"], medians):
            pairs = [each.split("=") for each in TABLES["columns"][columns].split("; ")]
            lines += ["", f"### {label[0].upper()}{label[1:]}", ""]
            lines += _side_by_side(medians[name], runs[name], pairs)
    return lines


def _side_by_side(medians: BySystem, runs: Mapping[str, Any], columns: Columns) -> list[str]:
    measured = {figure for figures in medians.values() for figure in figures}
    (head, first), *others = (each for each in columns if each[1] in measured)
    floor = medians.get(floors.IN_C, {}).get(first)
    lowest = min if "CPU" in head or head.endswith((", s", ", ms", ", MB")) else max
    peer = lowest((medians[each][first] for each in PEERS if each in medians), default=None)
    names = ["system", head, "spread", *(["of the floor"] if floor else []), "of the best peer"]
    lines = _heads(*names, *(head for head, _ in others))
    for system in ORDER:
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
    middle = sorted(values)[len(values) // 2]
    return f"{(max(values) - min(values)) / middle:.0%}" if len(values) > 1 and middle else ""


# -- tables of many measurements, ours and one other system ----------------------------------------


class Row(NamedTuple):
    """One line of a table; `theirs` is 0 if the other system was not measured."""

    title: str
    label: str
    ours: float
    theirs: float
    aim: str

    @property
    def cells(self) -> list[str]:
        return [self.label, shown(self.ours), shown(self.theirs or None)]

    @property
    def met(self) -> bool:
        """Whether the aim is met: a share of the other system's figure, or an absolute bound."""
        words = self.aim.split(maxsplit=2)
        number = words[2].rstrip("x").split()[0]
        if words[2] in _SHARES or words[2].endswith("x"):
            bound = self.theirs * (_SHARES.get(words[2]) or float(number))
        else:
            bound = float(number) + (self.theirs if words[2].endswith(" more") else 0.0)
        return self.ours >= bound if words[1] == "least" else self.ours <= bound


def _beside(part: str) -> str:
    return STOCK if part == "pipeline" else THEIRS


def _two(part: str, medians: Medians) -> Iterator[Row]:
    """Yield the rows of a part."""
    for title, pattern, begin, figures in TABLES["two_systems"][part]:
        for name, label in _labelled(pattern, begin, medians):
            ours, theirs = medians[name][OURS], medians[name].get(_beside(part), {})
            for figure in TABLES["figures"][figures]:
                key, end, *aim = figure.split(" | ")
                if key in ours:
                    yield Row(title, label + end, ours[key], theirs.get(key, 0.0), *aim or [""])


def _two_systems(part: str, medians: Medians) -> list[str]:
    lines = []
    for title, rows in groupby(_two(part, medians), lambda row: row.title):
        lines += ["", f"### {title}", ""] if title else []
        lines += _heads("", OURS, _beside(part), "ratio")
        lines += [_row(*row.cells, ratio(row.ours, row.theirs)) for row in rows]
    return lines


# -- the pages -------------------------------------------------------------------------------------


def page(results: Mapping[str, Any]) -> str:
    """Return the page for users: a summary, a chart, the rows of the chart, and advice."""
    where = results["requests"]["machine"]
    lines = [
        "# Performance",
        "",
        "For those who ask whether Barnabas is quick enough for them. "
        "[benchmarks/RESULTS.md](../benchmarks/RESULTS.md) has all tables, the method and the "
        "reasons behind the figures; [LIMITS.md](LIMITS.md) has the load that one broker carries.",
        "",
        *_summary(results),
        "",
        *_rows_of_chart(results["requests"]["medians"]),
        "",
        f"Medians of {results['requests']['rounds']} rounds on {where['cpu']}, {where['date']}. "
        "CPU is that of the broker for one request or transaction, p50 the time to its response.",
        "",
        "- **A broker process uses one core**, and threads for codecs and for reads from disk. "
        "`barnabas serve --processes auto` runs one process for each core; a transaction on two "
        "processes costs about twice as much.",
        "- **Batches count.** A request costs nearly the same for one record as for 16 KB of them: "
        "`linger.ms` of a few milliseconds helps here as it does with Kafka.",
        "- **A Python built with profile-guided optimization** (Debian's and the image's "
        "are) costs 6 to 11 % less.",
        "- **Fsync is the disk's.** With `flush.messages=1` concurrent producers share an fsync.",
        "",
        "`python -m benchmarks.beside_kafka` measures this beside Apache Kafka on your machine.",
    ]
    if "clients" in results:
        lines += _clients(results["clients"])
    return "\n".join(lines) + "\n"


def _clients(results: Mapping[str, Any]) -> list[str]:
    """Return the table of our client beside those of others."""
    where, medians = results["machine"], results["medians"]
    names = list(next(iter(medians.values())))
    return [
        "",
        "## The client in Python",
        "",
        f"CPU time in us that a program takes for a record with `barnabas.client` ({OURS}), and "
        "with other clients for Python:",
        "",
        *_heads("", *names),
        *(
            _row(measurement, *(shown(by_client[name]["cpu_us"]) for name in names))
            for measurement, by_client in medians.items()
        ),
        "",
        f"Medians of {results['rounds']} rounds of {results['records']:,} records in one "
        f"partition, in turns, on {where['cpu']}, Python {where['python']}, {where['date']}. "
        f"Others: {where['clients']}. Ours is plain Python but for CRC-32C; aiokafka reads and "
        "writes records in compiled code, confluent-kafka is librdkafka. All have the defaults of "
        "their library, but batches of up to 512 KB, which are ours. `python -m "
        "benchmarks.clients` measures it; whole batches (`send_batch`, `fetch_batches`) cost less.",
    ]


def _rows_of_chart(medians: Medians) -> list[str]:
    """Return the table of the measurements of the chart."""
    figures = {"CPU us": "cpu_us", "p50 us": "p50_us", "per second": "per_s"}
    names = [f"{OURS}: CPU us", *[*figures][1:], f"{THEIRS}: CPU us", *[*figures][1:]]
    lines = _heads("", *names)
    for name, label in _BARS.items():
        both = (medians[name][OURS], medians[name][THEIRS])
        lines.append(_row(label, *(shown(each[key]) for each in both for key in figures.values())))
    return lines


_BARS = {
    requests.PLAIN: "Produce 16 KB",
    requests.SINGLE: "one record",
    requests.FETCHED: "Fetch 16 KB",
    requests.transactions_name(1): "transaction, 1 producer",
    requests.transactions_name(8): "transaction, 8 producers",
}
"""The measurements of the chart, and their labels."""


def _summary(results: Mapping[str, Any]) -> list[str]:
    """Return three sentences and a chart."""
    where, medians = results["requests"]["machine"], results["requests"]["medians"]
    shares = {
        name: medians[name][OURS]["cpu_us"] / medians[name][THEIRS]["cpu_us"] for name in _BARS
    }
    started = results["start"]["medians"]
    seconds, megabytes = (
        {whose: started[name][whose][figure] for whose in (OURS, THEIRS)}
        for name, figure in (("start", "seconds"), ("idle", "resident_mb"))
    )
    transactions = medians[requests.transactions_name(8)]
    bars = json.dumps([round(share * 100) for share in shares.values()])
    return [
        f"Barnabas takes {shares[requests.PLAIN]:.0%} of the CPU time of a warmed-up Apache Kafka "
        f"{where['kafka']} for a Produce of 16 KB, {shares[requests.FETCHED]:.0%} for a Fetch, and "
        f"{shares[requests.transactions_name(1)]:.0%} for a transaction of one record by one "
        f"producer, {shares[requests.transactions_name(8)]:.0%} by eight at once, on Python "
        f"{where['python']}.",
        f"It acknowledges its first record {seconds[OURS]:.1f} s after its start and takes "
        f"{megabytes[OURS]:.0f} MB at rest; Kafka takes {seconds[THEIRS]:.1f} s and "
        f"{megabytes[THEIRS]:.0f} MB.",
        f"Eight producers commit {shown(transactions[OURS]['per_s'])} transactions/s on one broker "
        f"process, and {shown(transactions[THEIRS]['per_s'])} on Kafka, which uses all cores.",
        "",
        "```mermaid",
        "xychart-beta",
        '    title "CPU time of the broker; Apache Kafka = 100"',
        f"    x-axis {json.dumps(list(_BARS.values()))}",
        "    y-axis 0 --> 100",
        f"    bar {bars}",
        "```",
    ]


def tables(results: Mapping[str, Any], notes: Path) -> str:
    """Return the page of all results: method, tables, and the notes written by hand."""
    lines = [
        "# Results",
        "",
        "## Method",
        "",
        "Barnabas, Apache Kafka with the JVM options of Kafka's own scripts, and kfake (the broker "
        "of franz-go, in Go, with its data in files), measured in one run, in turns. All have the "
        "same warm-up: whole rounds that are not counted, or, soon after a start, 20 MB or 50 "
        "transactions of each producer on brokers that have just been started. The figures are "
        "medians; the spread is the distance of the farthest rounds. All have acks=all, their "
        "default flush policy, one partition and no compression. CPU times are the kernel's "
        "accounting in nanoseconds, of all threads and child processes of the broker. Load and "
        "broker share the cores, so CPU times are more reliable than rates.",
        "",
        "The floors read the same frames, write the same bytes to a file and send answers of the "
        "same size, and do nothing else: one is a program in C (`benchmarks/floor.c`), one a bare "
        "protocol on uvloop (`benchmarks/uvloop_floor.py`).",
        "",
        "Command: `python -m benchmarks.beside_kafka` (writes this page, `docs/PERFORMANCE.md` and "
        "`benchmarks/results.json`). The aims, met and missed, are in `benchmarks/AIMS.md`.",
    ]
    for part in TITLES:
        if part in results:
            lines += _part(part, results[part])
    if "registering" in results:
        lines += _registering(results["registering"])
    if "pipeline" in results:
        lines += _pipeline(results["pipeline"])
    return "\n".join(lines) + "\n\n" + notes.read_text()


def _part(part: str, results: Mapping[str, Any]) -> list[str]:
    where = results["machine"]
    lines = [
        "",
        f"## {TITLES[part]}",
        "",
        f"{results['rounds']} rounds"
        + (f" of {results['megabytes']} MB per load" if part in _OF_MEGABYTES else "")
        + f", {where['date']}, Apache Kafka {where['kafka']}, on {where['cpu']}, "
        f"{where['system']}, Python {where['python']}; load average before: "
        f"{where['load_before']}."
        + (f" Left out: {where['left_out']}." if where.get("left_out") else ""),
    ]
    if part not in TABLES["two_systems"]:
        return lines + side_by_side(part, results)
    return lines + _two_systems(part, results["medians"])


def _registering(results: Mapping[str, Any]) -> list[str]:
    """Return the comparison of two settings of one broker."""
    heads = ("transactions/s", "broker CPU us", "requests each", "retriable refusals")
    keys = ("per_s", "cpu_us", "requests_per_txn", "refusals_per_txn")
    return [
        "",
        "## Waiting and registering in advance (KIP-609)",
        "",
        f"{results['rounds']} rounds, {results['machine']['date']}; load average before: "
        f"{results['machine']['load_before']}. Transactions of one record by librdkafka, and of "
        "ten records in ten partitions by our own client with the newer protocol.",
        "",
        *_heads("", "", *heads, texts=2),
        *(
            _row(name, variant, *(shown(figures[key]) for key in keys))
            for name, variants in results["medians"].items()
            for variant, figures in variants.items()
        ),
    ]


def _pipeline(results: Mapping[str, Any]) -> list[str]:
    """Return the comparison of our Spark source and sink with the stock connector's."""
    where = results["machine"]
    versions, sessions = "PySpark 4.2", "one session"
    cost = "The CPU time is that of the driver, its JVM and the Python workers."
    if "spark" in where:
        # Earlier results have one session, and no memory.
        versions = f"PySpark and stock connector {where['spark']}"
        sessions = "a session each"
        cost = (
            "CPU time and peak memory are the sums of the driver, its JVM and the Python workers. "
            "Pages that processes share count in each, and the JVM keeps what an earlier load has "
            "taken: the loads run in the order of the table. The CPU time of a trigger has a share "
            "of its query's start."
        )
    return [
        "",
        "## The Spark pipeline",
        "",
        f"{results['rounds']} rounds of {results['megabytes']} MB per load, {where['date']}, "
        f"{versions}, on {where['cpu']}, {where['system']}; load average before: "
        f"{where['load_before']}. Both connectors run in turns in {sessions} "
        "(local[2]) on one Barnabas broker; each load runs once before it "
        f"counts. {cost} Our sink is exactly-once, the stock sink at-least-once.",
        "",
        *_two_systems("pipeline", results["medians"]),
    ]


def aims_page(results: Mapping[str, Any]) -> str:
    """Return the page of the aims: those of `aims.py`, and those of rows of the other tables."""
    lines = [
        "# Aims",
        "",
        "The figures of benchmarks/RESULTS.md that have an aim. One beside a system that was not "
        "measured is left out. `python -m benchmarks.beside_kafka` writes this page.",
        "",
        *aims.table(results),
    ]
    for part in TABLES["two_systems"]:
        medians = results.get(part, {}).get("medians", {})
        if rows := [row for row in _two(part, medians) if row.aim]:
            lines += ["", f"## {TITLES.get(part, 'The Spark pipeline')}", ""]
            lines += [f"| | {OURS} | {_beside(part)} | aim | met |", "|---|--:|--:|---|---|"]
            lines += [_row(*row.cells, row.aim, aims.said(row.met)) for row in rows]
    return "\n".join(lines) + "\n"
