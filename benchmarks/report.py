"""The pages of figures, from the results of `beside_kafka.py`.

docs/PERFORMANCE.md is one screen for users; benchmarks/RESULTS.md has the method, all tables and
the reasons behind them; benchmarks/AIMS.md has the aims.
"""

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import aims, requests, side_by_side
from benchmarks.side_by_side import OURS, THEIRS, Medians, shown

_OF_MEGABYTES = ("throughput", "soon", "security")
"""Parts whose loads have a size in megabytes."""


class Aim(NamedTuple):
    """The target of a figure, relative to Apache Kafka's or absolute."""

    text: str
    met: Callable[[float, float], bool]


def _at_least(ratio: float) -> Aim:
    return Aim(f"at least {ratio:g}x", lambda ours, theirs: ours >= ratio * theirs)


def _at_most(ratio: float, text: str = "") -> Aim:
    return Aim(text or f"at most {ratio:g}x", lambda ours, theirs: ours <= ratio * theirs)


def _own_most(limit: float, unit: str) -> Aim:
    return Aim(f"at most {limit:g} {unit}", lambda ours, _theirs: ours <= limit)


class Row(NamedTuple):
    """One line of a table."""

    measurement: str
    figure: str
    label: str
    aim: Aim | None


def _of_soon(medians: Medians) -> dict[str, list[Row]]:
    rows = []
    for producers in (1, 8):
        name = f"soon after a start: one record each, {producers} at a time"
        who = "one producer" if producers == 1 else f"{producers} producers"
        rows += [
            Row(name, "per_s", f"{who}, transactions/s", _at_least(3)),
            Row(name, "cpu_us", f"{who}, broker CPU us", _at_most(0.125, "at most an eighth")),
            Row(name, "p50_ms", f"{who}, p50 ms", None),
            Row(name, "p99_ms", f"{who}, p99 ms", None),
        ]
    produced = []
    for name in medians:
        if not name.startswith("soon after a start: produce "):
            continue
        label = name.removeprefix("soon after a start: produce ")
        produced += [
            Row(name, "mb_per_s", f"{label}, MB/s", _at_least(2)),
            Row(name, "cpu_s_per_gb", f"{label}, CPU s/GB", _at_most(0.25, "at most a quarter")),
            Row(name, "requests_per_s", f"{label}, requests/s", None),
        ]
    return {"Produce": produced, "Transactions of one record": rows}


def _of_cluster(_medians: Medians) -> dict[str, list[Row]]:
    rows = []
    for size in ("16 KB", "1024 KB"):
        name = f"three replicas: 1024 B in {size}"
        rows += [
            Row(name, "mb_per_s", f"1024 B in {size}, MB/s", _at_least(1)),
            Row(name, "cpu_s_per_gb", f"1024 B in {size}, CPU s/GB, all brokers", _at_most(0.9)),
        ]
    single, gap = "three replicas: one record at a time", "kill -9 of a leader"
    return {
        "Three replicas, acks=all": [
            *rows,
            Row(single, "p50_ms", "one record at a time, p50 ms", None),
            Row(single, "p99_ms", "one record at a time, p99 ms", None),
            Row(single, "cpu_us_per_request", "one record at a time, CPU us, all brokers", None),
            Row(
                "three brokers at rest",
                "resident_mb",
                "memory of an idle broker, MB",
                _at_most(0.2),
            ),
            Row(gap, "seconds", "kill -9 of a leader to the first acknowledged write, s", None),
        ]
    }


def _of_security(medians: Medians) -> dict[str, list[Row]]:
    rows = []
    for what in ("produce", "consume"):
        for size in ("16 KB", "1024 KB"):
            name = f"{what} TLS: 1024 B in {size}"
            rows += [
                Row(name, "mb_per_s", f"{what}, batches of {size}, MB/s", _at_least(1)),
                Row(name, "cpu_s_per_gb", f"{what}, batches of {size}, CPU s/GB", _at_most(1)),
            ]
    coming = []
    for name, aim in (
        ("new TLS 1.3 connections", 1.0),
        ("logins by SCRAM-SHA-512", 0.7),
        ("logins by OAUTHBEARER", 0.7),
    ):
        coming += [
            Row(name, "per_s", f"{name}/s", _at_least(aim)),
            Row(name, "cpu_us", f"{name}, broker CPU us", None),
            Row(name, "neighbour_p99_ms", f"{name}, another client's p99, ms", None),
            Row(name, "neighbour_longest_ms", f"{name}, another client's longest, ms", None),
        ]
    added = [
        Row("start with security", "more", "more at the start, s", _own_most(0.08, "s")),
        Row("start with security", "all", "start, s", None),
        Row("memory with security", "more", "more memory at rest, MB", _own_most(10, "MB")),
        Row("memory with security", "all", "memory at rest, MB", None),
        Row(
            "memory in use with security",
            "more",
            "more memory after clients of each kind, MB",
            None,
        ),
    ]
    loops = [
        Row(name, "held_ms", f"{name} held meanwhile, ms", _own_most(5, "ms"))
        for name in medians
        if name.endswith(": loop")
    ]
    checked = [
        Row(name, "us", f"{name}, us", None if name.endswith("topics") else _own_most(1, "us"))
        for name in medians
        if name.startswith(("rights: ", "quotas: "))
    ]
    return {
        "TLS 1.3, records of 1 KB": rows,
        "Clients that come in": coming + loops,
        "Rights with 10,000 rules, and quotas: CPU of a request": checked,
        "Cost of listeners with TLS and SASL, and an authorizer": added,
    }


def _registering(results: Mapping[str, Any]) -> list[str]:
    """Return the comparison of two settings of one broker."""
    lines = [
        "",
        "## Waiting and registering in advance (KIP-609)",
        "",
        f"{results['rounds']} rounds, {results['machine']['date']}; load average before: "
        f"{results['machine']['load_before']}. Transactions of one record by librdkafka, and of "
        "ten records in ten partitions by our own client with the newer protocol.",
        "",
        "| | | transactions/s | broker CPU us | requests each | retriable refusals |",
        "|---|---|--:|--:|--:|--:|",
    ]
    for name, variants in results["medians"].items():
        for variant, figures in variants.items():
            cells = (
                shown(figures[key])
                for key in ("per_s", "cpu_us", "requests_per_txn", "refusals_per_txn")
            )
            lines.append(f"| {name} | {variant} | {' | '.join(cells)} |")
    return lines


STOCK = "stock connector"


def _pipeline(results: Mapping[str, Any]) -> list[str]:
    """Return the comparison of our Spark source and sink with the stock connector's."""
    where, medians = results["machine"], results["medians"]
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
        *_heads(STOCK),
        *(_line(row, medians, STOCK) for row in _of_pipeline(medians)),
    ]


def _of_pipeline(medians: Medians) -> list[Row]:
    rows = []
    for name in medians:
        faster = _at_least(2 if name.startswith("source:") else 1)
        aims: dict[str, tuple[str, Aim | None]] = {
            "rows_per_s": ("rows/s", faster),
            "cpu_us_per_row": ("CPU us per row", None),
            "p50_ms": (
                "p50 ms",
                Aim("at most 100 ms more", lambda ours, theirs: ours <= theirs + 100),
            ),
            "ms": ("ms", Aim("at most 150", lambda ours, _theirs: ours <= 150)),
            "cpu_ms": ("CPU ms", None),
            "s": ("s", Aim("at most 30", lambda ours, _theirs: ours <= 30)),
            "cpu_s": ("CPU s", None),
            "peak_mb": ("peak memory, MB", None),
            "mb_above_idle": ("MB above idle", Aim("at most 64", lambda ours, _theirs: ours <= 64)),
        }
        rows += [
            Row(name, figure, f"{name}, {label}", aim)
            for figure, (label, aim) in aims.items()
            if figure in medians[name][OURS]
        ]
    return rows


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
_TABLES = {
    "soon": _of_soon,
    "cluster": _of_cluster,
    "security": _of_security,
}


def _all_rows(of: Callable[[Medians], dict[str, list[Row]]], medians: Medians) -> list[Row]:
    return [row for rows in of(medians).values() for row in rows]


_ROWS: Mapping[str, tuple[str, str, Callable[[Medians], list[Row]]]] = {
    **{part: (TITLES[part], THEIRS, partial(_all_rows, of)) for part, of in _TABLES.items()},
    "pipeline": ("The Spark pipeline", STOCK, _of_pipeline),
}
"""By part: its title, the system beside Barnabas, and the rows that may have aims."""


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
    lines = [
        "",
        "## The client in Python",
        "",
        f"CPU time in us that a program takes for a record with `barnabas.client` ({OURS}), and "
        "with other clients for Python:",
        "",
        f"| | {' | '.join(names)} |",
        "|---" + "|--:" * len(names) + "|",
    ]
    for measurement, by_client in medians.items():
        cells = [shown(by_client[name]["cpu_us"]) for name in names]
        lines.append(f"| {measurement} | {' | '.join(cells)} |")
    return [
        *lines,
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
    lines = [
        f"| | {OURS}: CPU us | p50 us | per second | {THEIRS}: CPU us | p50 us | per second |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for name, label in _BARS.items():
        both = (medians[name][OURS], medians[name][THEIRS])
        cells = [shown(each[figure]) for each in both for figure in ("cpu_us", "p50_us", "per_s")]
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return lines


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
    for part, (title, beside, of) in _ROWS.items():
        medians = results.get(part, {}).get("medians", {})
        rows = [row for row in of(medians) if row.aim is not None and row.measurement in medians]
        if rows:
            lines += ["", f"## {title}", "", f"| | {OURS} | {beside} | aim | met |"]
            lines += ["|---|--:|--:|---|---|", *(_judged(row, medians, beside) for row in rows)]
    return "\n".join(lines) + "\n"


def _judged(row: Row, medians: Medians, beside: str) -> str:
    """Return the line of a row that has an aim."""
    ours, theirs = _figures(row, medians, beside)
    assert row.aim is not None
    met = "yes" if row.aim.met(ours, theirs) else "**no**"
    beside_ours = shown(theirs) if theirs else ""
    return f"| {row.label} | {shown(ours)} | {beside_ours} | {row.aim.text} | {met} |"


def _part(part: str, results: Mapping[str, Any]) -> list[str]:
    where, medians = results["machine"], results["medians"]
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
    if part not in _TABLES:
        return lines + side_by_side.part(part, results)
    for title, rows in _TABLES[part](medians).items():
        if rows := [each for each in rows if each.measurement in medians]:
            lines += ["", f"### {title}", ""]
            lines += [*_heads(THEIRS), *(_line(row, medians, THEIRS) for row in rows)]
    return lines


def _heads(beside: str) -> list[str]:
    return [f"| | {OURS} | {beside} | ratio |", "|---|--:|--:|--:|"]


def _line(row: Row, medians: Medians, beside: str) -> str:
    ours, theirs = _figures(row, medians, beside)
    ratio = f"{ours / theirs:.2f}" if theirs else ""
    return f"| {row.label} | {shown(ours)} | {shown(theirs) if theirs else ''} | {ratio} |"


def _figures(row: Row, medians: Medians, beside: str) -> tuple[float, float]:
    """Return our figure, and that of the other system or 0."""
    by_system = medians[row.measurement]
    return by_system[OURS][row.figure], by_system.get(beside, {}).get(row.figure, 0.0)
