"""The pages of figures, from the results of `beside_kafka.py`.

docs/PERFORMANCE.md is one screen for users; benchmarks/RESULTS.md has the method, all tables and
the reasons behind them; benchmarks/AIMS.md has the aims.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import aims, consumer_groups, floors, requests, three_brokers, whole_clients
from benchmarks.measures import shown
from benchmarks.systems import (
    BEFORE,
    GENERAL,
    GENERAL_BEFORE,
    KFAKE,
    OURS,
    PEERS,
    SOON,
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
Columns = Sequence[tuple[str, str]]
"""Heads and keys of figures. The first is the one that counts: CPU time where it is measured."""


class Table(NamedTuple):
    """The figures of a measurement."""

    measurement: str
    columns: Columns
    title: str = ""
    """The title, if it is not the measurement's name."""


def _each(unit: str, times: str = "us") -> Columns:
    rates = [("CPU us" if times == "us" else "broker CPU us", "cpu_us"), (unit, "per_s")]
    return [*rates, *((f"{name} {times}", f"{name}_{times}") for name in ("p50", "p99"))]


_REQUEST, _TRANSACTION = _each("requests/s"), _each("transactions/s")
_RATE, _CPU = ("MB/s", "mb_per_s"), ("broker CPU s/GB", "cpu_s_per_gb")
_FLUSH, _COMMIT = (
    [(f"{name}, p50 ms", f"{name}_p50_ms"), ("p99 ms", f"{name}_p99_ms")]
    for name in ("flush", "commit")
)
_OF_CLIENT = [
    ("client's cores", "client_cores"),
    ("its busiest thread", "client_busiest"),
    ("client CPU s", "client_cpu_seconds"),
]
_JOINS = [
    ("until all have their assignment, s", "seconds"),
    ("broker CPU s", "cpu_seconds"),
    ("heartbeats", "heartbeats"),
]
_SINGLE = [
    *(Table(name, _REQUEST) for name in (*requests.PRODUCED, requests.SINGLE)),
    *(Table(name, _REQUEST) for name in (requests.FETCHED, requests.IN_SESSION)),
    *(Table(name, _REQUEST) for name in requests.COORDINATED),
    *(
        Table(requests.transactions_name(count), [*_TRANSACTION, ("refusals each", "retries")])
        for count in (1, 8)
    ),
]
_SIDE_BY_SIDE: Mapping[str, Sequence[Table]] = {
    "start": [
        Table("start", [("start, s", "seconds")], "Start to the first acknowledged record"),
        Table("idle", [("resident, MB", "resident_mb")], "Memory at rest"),
    ],
    "requests": _SINGLE,
    "general": _SINGLE[: len(requests.PRODUCED)],
    "profiled": _SINGLE,
    "processes": [
        table
        for count in (2, 4)
        for table in (
            Table(requests.several_name(count), [*_REQUEST[:2], ("broker's cores", "cores")]),
            Table(requests.beside_name(count), _TRANSACTION),
        )
    ],
    "streams": [
        Table(whole_clients.IDEMPOTENT, [_RATE, _CPU], "Idempotent, without a pause"),
        Table(whole_clients.FLUSHED, [_RATE, _CPU, *_FLUSH]),
        Table(
            whole_clients.BURSTS,
            [_RATE, _CPU, ("of its bursts", "of_bursts"), *_FLUSH, *_COMMIT],
        ),
        *(Table(each, [_RATE], f"Consumed {each}") for each in whole_clients.ISOLATIONS),
    ],
    "transactions": [
        *(
            Table(name(count), _each("transactions/s", "ms"), f"By {client}, {count} at a time")
            for count in (1, 8)
            for client, name in (
                ("librdkafka", whole_clients.librdkafka_name),
                ("our client", whole_clients.own_name),
            )
        ),
        Table(
            whole_clients.RESTART,
            [("restart, s", "seconds")],
            "Restart until 100,000 transactional ids are served",
        ),
    ],
}


def _tables_of(part: str, medians: Medians) -> Iterator[Table]:
    """Yield the tables of a part; of some the sizes of the run give the measurements."""
    yield from _SIDE_BY_SIDE.get(part, ())
    if part == "throughput":
        for name in medians:
            more = [("requests/s", "requests_per_s")] if name.startswith("produce") else []
            yield Table(name, [_RATE, _CPU, *_OF_CLIENT, *more])
    if part == "groups":
        yield Table(consumer_groups.UNCHANGED, _each("heartbeats/s"))
        for figure, columns in (("heartbeats", _JOINS), ("p99_ms", [("p99, ms", "p99_ms")])):
            for name, by_system in medians.items():
                if all(figure in figures for figures in by_system.values()):
                    yield Table(name, columns)


def side_by_side(part: str, results: Mapping[str, Any]) -> list[str]:
    """Return the tables of a part: figures, their spread, and ratios to the floor and peers."""
    medians, runs = results["medians"], results["runs"]
    lines: list[str] = []
    for name, columns, title in _tables_of(part, medians):
        if name in medians:
            title = title or name
            lines += ["", f"### {title[0].upper()}{title[1:]}", ""]
            lines += _side_by_side(medians[name], runs[name], columns)
    return lines


def _side_by_side(medians: BySystem, runs: Mapping[str, Any], columns: Columns) -> list[str]:
    (head, first), *others = columns
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


class Aim(NamedTuple):
    """The target of a figure: a share of the other system's, and more."""

    text: str
    share: float = 0.0
    more: float = 0.0
    least: bool = False

    def met(self, ours: float, theirs: float) -> bool:
        bound = self.share * theirs + self.more
        return ours >= bound if self.least else ours <= bound


def _at_least(share: float) -> Aim:
    return Aim(f"at least {share:g}x", share, least=True)


def _at_most(share: float, text: str = "") -> Aim:
    return Aim(text or f"at most {share:g}x", share)


def _own_most(limit: float, unit: str = "") -> Aim:
    return Aim(f"at most {limit:g} {unit}".strip(), more=limit)


class Row(NamedTuple):
    """One line of a table."""

    measurement: str
    figure: str
    label: str
    aim: Aim | None = None


Tables = dict[str, list[Row]]
"""Rows by the title of their table."""


def _rows(measurement: str, label: str, *figures: tuple[str, str, Aim | None]) -> list[Row]:
    """Return the rows of a measurement; a figure has a key, a unit and perhaps an aim."""
    return [
        Row(measurement, key, label + (unit if unit.startswith("/") else f", {unit}"), aim)
        for key, unit, aim in figures
    ]


def _of_soon(medians: Medians) -> Tables:
    produced, transactions = f"{SOON}produce ", []
    for producers, label in ((1, "one producer"), (8, "8 producers")):
        transactions += _rows(
            SOON + whole_clients.librdkafka_name(producers),
            label,
            ("per_s", "transactions/s", _at_least(3)),
            ("cpu_us", "broker CPU us", _at_most(0.125, "at most an eighth")),
            ("p50_ms", "p50 ms", None),
            ("p99_ms", "p99 ms", None),
        )
    return {
        "Produce": [
            row
            for name in medians
            if name.startswith(produced)
            for row in _rows(
                name,
                name.removeprefix(produced),
                ("mb_per_s", "MB/s", _at_least(2)),
                ("cpu_s_per_gb", "CPU s/GB", _at_most(0.25, "at most a quarter")),
                ("requests_per_s", "requests/s", None),
            )
        ],
        "Transactions of one record": transactions,
    }


def _of_cluster(_medians: Medians) -> Tables:
    rows = []
    for size in whole_clients.BATCH_BYTES:
        rows += _rows(
            three_brokers.stream_name(size),
            f"1024 B in {size // 1024} KB",
            ("mb_per_s", "MB/s", _at_least(1)),
            ("cpu_s_per_gb", "CPU s/GB, all brokers", _at_most(0.9)),
        )
    rows += _rows(
        three_brokers.SINGLE,
        "one record at a time",
        ("p50_ms", "p50 ms", None),
        ("p99_ms", "p99 ms", None),
        ("cpu_us_per_request", "CPU us, all brokers", None),
    )
    memory = ("resident_mb", "MB", _at_most(0.2))
    rows += _rows(three_brokers.AT_REST, "memory of an idle broker", memory)
    gap = "kill -9 of a leader to the first acknowledged write"
    return {
        "Three replicas, acks=all": [
            *rows,
            *_rows(three_brokers.KILLED, gap, ("seconds", "s", None)),
        ]
    }


def _of_security(medians: Medians) -> Tables:
    data, coming, loops, checked, added = [], [], [], [], []
    for what in ("produce", "consume"):
        for size in ("16 KB", "1024 KB"):
            data += _rows(
                f"{what} TLS: 1024 B in {size}",
                f"{what}, batches of {size}",
                ("mb_per_s", "MB/s", _at_least(1)),
                ("cpu_s_per_gb", "CPU s/GB", _at_most(1)),
            )
    for name, share in (
        ("new TLS 1.3 connections", 1.0),
        ("logins by SCRAM-SHA-512", 0.7),
        ("logins by OAUTHBEARER", 0.7),
    ):
        coming += _rows(
            name,
            name,
            ("per_s", "/s", _at_least(share)),
            ("cpu_us", "broker CPU us", None),
            ("neighbour_p99_ms", "another client's p99, ms", None),
            ("neighbour_longest_ms", "another client's longest, ms", None),
        )
    for name in medians:
        if name.endswith(": loop"):
            loops += _rows(name, f"{name} held meanwhile", ("held_ms", "ms", _own_most(5, "ms")))
        if name.startswith(("rights: ", "quotas: ")):
            aim = None if name.endswith("topics") else _own_most(1, "us")
            checked += _rows(name, name, ("us", "us", aim))
    for name, unit, more, whole, limit in (
        ("start with security", "s", "more at the start", "start", 0.08),
        ("memory with security", "MB", "more memory at rest", "memory at rest", 10),
    ):
        added += _rows(name, more, ("more", unit, _own_most(limit, unit)))
        added += _rows(name, whole, ("all", unit, None))
    used = "more memory after clients of each kind"
    return {
        "TLS 1.3, records of 1 KB": data,
        "Clients that come in": coming + loops,
        "Rights with 10,000 rules, and quotas: CPU of a request": checked,
        "Cost of listeners with TLS and SASL, and an authorizer": [
            *added,
            *_rows("memory in use with security", used, ("more", "MB", None)),
        ],
    }


_OF_PIPELINE: Sequence[tuple[str, str, Aim | None]] = (
    ("rows_per_s", "rows/s", _at_least(1)),
    ("cpu_us_per_row", "CPU us per row", None),
    ("p50_ms", "p50 ms", Aim("at most 100 ms more", 1, 100)),
    ("ms", "ms", _own_most(150)),
    ("cpu_ms", "CPU ms", None),
    ("s", "s", _own_most(30)),
    ("cpu_s", "CPU s", None),
    ("peak_mb", "peak memory, MB", None),
    ("mb_above_idle", "MB above idle", _own_most(64)),
)


def _of_pipeline(medians: Medians) -> Tables:
    rows = []
    for name, by_system in medians.items():
        for row in _rows(
            name, name, *(each for each in _OF_PIPELINE if each[0] in by_system[OURS])
        ):
            faster = row.figure == "rows_per_s" and name.startswith("source:")
            rows.append(row._replace(aim=_at_least(2)) if faster else row)
    return {"": rows}


_TABLES: Mapping[str, tuple[str, Callable[[Medians], Tables]]] = {
    "soon": (THEIRS, _of_soon),
    "cluster": (THEIRS, _of_cluster),
    "security": (THEIRS, _of_security),
    "pipeline": (STOCK, _of_pipeline),
}
"""By part: the system beside Barnabas, and the rows that may have aims."""


def _lines(rows: Iterable[Row], medians: Medians, beside: str) -> list[str]:
    lines = _heads("", OURS, beside, "ratio")
    for row in rows:
        ours, theirs = _figures(row, medians, beside)
        lines.append(_row(row.label, shown(ours), shown(theirs or None), ratio(ours, theirs)))
    return lines


def _figures(row: Row, medians: Medians, beside: str) -> tuple[float, float]:
    """Return our figure, and that of the other system or 0."""
    by_system = medians[row.measurement]
    return by_system[OURS][row.figure], by_system.get(beside, {}).get(row.figure, 0.0)


def _several(part: str, medians: Medians) -> list[str]:
    beside, tables = _TABLES[part]
    lines = []
    for title, rows in tables(medians).items():
        if rows := [each for each in rows if each.measurement in medians]:
            lines += ["", f"### {title}", "", *_lines(rows, medians, beside)]
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
    if part not in _TABLES:
        return lines + side_by_side(part, results)
    return lines + _several(part, results["medians"])


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
        *_lines(_of_pipeline(medians)[""], medians, STOCK),
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
    for part, (beside, tables) in _TABLES.items():
        medians = results.get(part, {}).get("medians", {})
        all_rows = [row for rows in tables(medians).values() for row in rows]
        rows = [row for row in all_rows if row.aim is not None and row.measurement in medians]
        if rows:
            title = TITLES.get(part, "The Spark pipeline")
            lines += ["", f"## {title}", "", f"| | {OURS} | {beside} | aim | met |"]
            lines += ["|---|--:|--:|---|---|", *(_judged(row, medians, beside) for row in rows)]
    return "\n".join(lines) + "\n"


def _judged(row: Row, medians: Medians, beside: str) -> str:
    """Return the line of a row that has an aim."""
    ours, theirs = _figures(row, medians, beside)
    assert row.aim is not None
    met = "yes" if row.aim.met(ours, theirs) else "**no**"
    return _row(row.label, shown(ours), shown(theirs or None), row.aim.text, met)
