"""Tables with a line for each system: its figures, their spread, and ratios to the floor and peers.

The first figure is the one that counts: the broker's CPU time where it is measured.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks import (
    consumer_groups,
    floors,
    group_requests,
    processes,
    requests,
    transaction_loads,
)
from benchmarks.systems import (
    BEFORE,
    GENERAL,
    GENERAL_BEFORE,
    ApacheKafka,
    Barnabas,
    Kfake,
    processes_name,
)

OURS, THEIRS, KFAKE = Barnabas.name, ApacheKafka.name, Kfake.name
PEERS = (THEIRS, KFAKE)
ORDER = (
    floors.IN_C,
    floors.IN_UVLOOP,
    THEIRS,
    KFAKE,
    BEFORE,
    OURS,
    GENERAL_BEFORE,
    GENERAL,
    *(
        processes_name(count, before=before)
        for count in (2, 4, 8, 16, 32)
        for before in (True, False)
    ),
)

Medians = Mapping[str, Mapping[str, Mapping[str, float]]]
BySystem = Mapping[str, Mapping[str, float]]


class Column(NamedTuple):
    """A figure under its head."""

    head: str
    figure: str


CPU = Column("CPU us", "cpu_us")
PER_S = Column("requests/s", "per_s")
P50, P99 = Column("p50 us", "p50_us"), Column("p99 us", "p99_us")


def part(name: str, results: Mapping[str, Any]) -> list[str]:
    """Return the tables of a part."""
    medians, runs = results["medians"], results["runs"]
    lines: list[str] = []
    for title, measurement, columns in _TABLES[name](medians):
        if measurement in medians:
            lines += ["", f"### {title[0].upper()}{title[1:]}", ""]
            lines += _table(medians[measurement], runs[measurement], columns)
    return lines


def _table(medians: BySystem, runs: Mapping[str, Any], columns: Sequence[Column]) -> list[str]:
    first = columns[0]
    floor = medians.get(floors.IN_C, {}).get(first.figure)
    lowest = min if "CPU" in first.head or first.head.endswith((", s", ", ms", ", MB")) else max
    peer = lowest((medians[each][first.figure] for each in PEERS if each in medians), default=None)
    heads = ["system", first.head, "spread", *(["of the floor"] if floor else [])]
    heads += ["of the best peer", *(column.head for column in columns[1:])]
    lines = [f"| {' | '.join(heads)} |", "|---" + "|--:" * (len(heads) - 1) + "|"]
    for system in ORDER:
        if system not in medians:
            continue
        figures = medians[system]
        value = figures[first.figure]
        cells = [system, shown(value), spread([each[first.figure] for each in runs[system]])]
        cells += [ratio(value, beside) for beside in ([floor] if floor else []) + [peer]]
        cells += [shown(figures.get(column.figure)) for column in columns[1:]]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def shown(value: float | None) -> str:
    """Return a figure with three digits, or nothing."""
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def ratio(value: float, beside: float | None) -> str:
    return f"{value / beside:.2f}" if beside else ""


def spread(values: Sequence[float]) -> str:
    """Return the distance of the farthest rounds, relative to the middle."""
    middle = sorted(values)[len(values) // 2]
    return f"{(max(values) - min(values)) / middle:.0%}" if len(values) > 1 and middle else ""


Tables = Iterator[tuple[str, str, Sequence[Column]]]


def _of_start(_medians: Medians) -> Tables:
    yield "Start to the first acknowledged record", "start", [Column("start, s", "seconds")]
    yield "Memory at rest", "idle", [Column("resident, MB", "resident_mb")]


def _of_requests(_medians: Medians) -> Tables:
    kinds = (requests.PLAIN, requests.IDEMPOTENT, requests.IN_TRANSACTION, requests.SINGLE)
    for name in (*kinds, requests.FETCHED, requests.IN_SESSION, *group_requests.NAMES):
        yield name, name, [CPU, PER_S, P50, P99]
    for producers in (1, 8):
        name = requests.transactions_name(producers)
        columns = [CPU, Column("transactions/s", "per_s"), P50, P99]
        yield name, name, [*columns, Column("refusals each", "retries")]


def _of_general(_medians: Medians) -> Tables:
    for name in (requests.PLAIN, requests.IDEMPOTENT, requests.IN_TRANSACTION):
        yield name, name, [CPU, PER_S, P50, P99]


def _of_processes(_medians: Medians) -> Tables:
    for count in (2, 4):
        name = processes.produce_name(count)
        yield name, name, [CPU, PER_S, Column("broker's cores", "cores")]
        name = processes.transactions_name(count)
        yield name, name, [CPU, Column("transactions/s", "per_s"), P50, P99]


def _of_throughput(medians: Medians) -> Tables:
    for name in medians:
        columns = [
            Column("MB/s", "mb_per_s"),
            Column("broker CPU s/GB", "cpu_s_per_gb"),
            Column("client's cores", "client_cores"),
            Column("its busiest thread", "client_busiest"),
            Column("client CPU s", "client_cpu_seconds"),
        ]
        if name.startswith("produce"):
            columns.append(Column("requests/s", "requests_per_s"))
        yield name, name, columns


def _of_streams(_medians: Medians) -> Tables:
    rate, cpu = Column("MB/s", "mb_per_s"), Column("broker CPU s/GB", "cpu_s_per_gb")
    flush = [Column("flush, p50 ms", "flush_p50_ms"), Column("p99 ms", "flush_p99_ms")]
    commit = [Column("commit, p50 ms", "commit_p50_ms"), Column("p99 ms", "commit_p99_ms")]
    yield "Idempotent, without a pause", transaction_loads.IDEMPOTENT, [rate, cpu]
    yield "Bursts of 100 ms, flushed", transaction_loads.FLUSHED, [rate, cpu, *flush]
    yield (
        "Transactions of 100 ms",
        transaction_loads.BURSTS,
        [rate, cpu, Column("of its bursts", "of_bursts"), *flush, *commit],
    )
    for isolation in ("read_uncommitted", "read_committed"):
        yield f"Consumed {isolation}", isolation, [rate]


def _of_transactions(_medians: Medians) -> Tables:
    columns = [
        Column("broker CPU us", "cpu_us"),
        Column("transactions/s", "per_s"),
        Column("p50 ms", "p50_ms"),
        Column("p99 ms", "p99_ms"),
    ]
    for count in (1, 8):
        name = f"one record each, {count} at a time"
        yield f"By librdkafka, {count} at a time", name, columns
        name = transaction_loads.own_name(count)
        yield f"By our client, {count} at a time", name, columns
    yield (
        "Restart until 100,000 transactional ids are served",
        transaction_loads.RESTART,
        [Column("restart, s", "seconds")],
    )


def _of_groups(medians: Medians) -> Tables:
    name = consumer_groups.UNCHANGED
    yield name, name, [CPU, Column("heartbeats/s", "per_s"), P50, P99]
    for name, by_system in medians.items():
        if all("heartbeats" in figures for figures in by_system.values()):
            columns = [
                Column("until all have their assignment, s", "seconds"),
                Column("broker CPU s", "cpu_seconds"),
                Column("heartbeats", "heartbeats"),
            ]
            yield name, name, columns
    for name, by_system in medians.items():
        if all(figures.keys() == {"p99_ms"} for figures in by_system.values()):
            yield name, name, [Column("p99, ms", "p99_ms")]


_TABLES: Mapping[str, Callable[[Medians], Tables]] = {
    "start": _of_start,
    "requests": _of_requests,
    "general": _of_general,
    "profiled": _of_requests,
    "processes": _of_processes,
    "throughput": _of_throughput,
    "streams": _of_streams,
    "transactions": _of_transactions,
    "groups": _of_groups,
}
PARTS = tuple(_TABLES)
