"""The aims that Barnabas has beside itself before, its peers and the floors, and which are met."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from benchmarks import consumer_groups, floors, requests, whole_clients
from benchmarks.measures import shown
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
from benchmarks.whole_clients import BATCH_BYTES, RECORD_BYTES

SELF = "itself"
_NOISE = 1.05
"""The most by which a figure of before may be exceeded where nothing is to change."""
_BUSY = 0.9
"""The share of a core from which on a thread of the client is the limit."""


class Aim(NamedTuple):
    """A bound for a figure of Barnabas, relative to a figure of another system."""

    part: str
    measurement: str
    figure: str
    ratio: float
    beside: str
    """The other system; SELF is Barnabas in another measurement."""
    least: bool = False
    """Whether the ratio is the lower bound; otherwise it is the upper."""
    other: str = ""
    """The other measurement, if it is not the same."""
    ours: str = OURS

    @property
    def text(self) -> str:
        bound = "at least" if self.least else "at most"
        return f"{bound} {self.ratio:g} of {self.other or self.beside}"


class Verdict(NamedTuple):
    """A figure beside the one that it is held against."""

    aim: Aim
    ours: float
    theirs: float
    note: str = ""

    @property
    def ratio(self) -> float:
        return self.ours / self.theirs if self.theirs else 0.0

    @property
    def met(self) -> bool:
        ratio = self.ratio
        return ratio >= self.aim.ratio if self.aim.least else ratio <= self.aim.ratio


def aims() -> Iterator[Aim]:
    """Return every aim but those of throughput, which also depend on the client."""
    yield from _of_requests()
    yield from _of_transactions()
    yield from _of_streams()
    yield from _of_processes()
    yield from _of_groups()
    yield Aim("start", "start", "seconds", _NOISE, BEFORE)
    yield Aim("start", "idle", "resident_mb", _NOISE, BEFORE)
    replicated = "three replicas: 1024 B in 16 KB"
    for ratio, beside in ((0.85, BEFORE), (0.15, THEIRS)):
        yield Aim("cluster", replicated, "cpu_s_per_gb", ratio, beside)
    for name, figures in _CLUSTER.items():
        for figure in figures:
            least = figure == "mb_per_s"
            bound = round(1 / _NOISE, 2) if least else _NOISE
            yield Aim("cluster", name, figure, bound, BEFORE, least)


_CLUSTER = {
    "three replicas: 1024 B in 16 KB": ("mb_per_s",),
    "three replicas: 1024 B in 1024 KB": ("mb_per_s", "cpu_s_per_gb"),
    "three replicas: one record at a time": ("p50_ms", "p99_ms", "cpu_us_per_request"),
    "three brokers at rest": ("resident_mb",),
    "kill -9 of a leader": ("seconds",),
}


def _of_requests() -> Iterator[Aim]:
    plain, single, fetched = requests.PLAIN, requests.SINGLE, requests.FETCHED
    for name in (plain, requests.IDEMPOTENT, requests.IN_TRANSACTION):
        yield Aim("requests", name, "cpu_us", 0.9, BEFORE)
        yield Aim("general", name, "cpu_us", 0.8, GENERAL_BEFORE, ours=GENERAL)
    for ratio, beside in ((0.6, THEIRS), (0.55, KFAKE), (1.9, floors.IN_C)):
        yield Aim("requests", plain, "cpu_us", ratio, beside)
    for figure, ratio, beside in (
        ("cpu_us", 0.75, BEFORE),
        ("cpu_us", 0.7, KFAKE),
        ("p50_us", 0.8, BEFORE),
        ("p50_us", 0.85, THEIRS),
        ("p50_us", 0.95, KFAKE),
        ("p99_us", 0.5, THEIRS),
        ("p99_us", 0.5, KFAKE),
    ):
        yield Aim("requests", single, figure, ratio, beside)
    for ratio, beside in ((0.7, BEFORE), (0.7, THEIRS), (0.65, KFAKE)):
        yield Aim("requests", fetched, "cpu_us", ratio, beside)
    for name in requests.COORDINATED:
        yield Aim("requests", name, "cpu_us", 0.8, BEFORE)
        yield Aim("requests", name, "cpu_us", 1.0, THEIRS)


def _of_transactions() -> Iterator[Aim]:
    for count, bounds in (
        (1, ((0.35, BEFORE), (0.6, THEIRS), (0.8, KFAKE))),
        (8, ((0.33, BEFORE), (0.2, THEIRS), (1.2, KFAKE))),
    ):
        newer = whole_clients.own_name(count)
        for ratio, beside in bounds:
            yield Aim("requests", requests.transactions_name(count), "cpu_us", ratio, beside)
            yield Aim("transactions", newer, "cpu_us", ratio, beside)
    yield Aim("requests", requests.transactions_name(8), "per_s", 1.5, THEIRS, least=True)


def _of_streams() -> Iterator[Aim]:
    bursts = whole_clients.BURSTS
    flushed = whole_clients.FLUSHED
    yield Aim("streams", bursts, "mb_per_s", 0.97, SELF, least=True, other=flushed)
    for peer in PEERS:
        yield Aim("streams", bursts, "mb_per_s", 1.3, peer, least=True)


def _of_processes() -> Iterator[Aim]:
    for count in (2, 4):
        several = processes_name(count)
        produced, transacted = requests.several_name(count), requests.beside_name(count)
        for name, figure, ratio in (
            (produced, "per_s", 0.85 * count),
            (produced, "cpu_us", 1.1),
            (transacted, "cpu_us", 1.3),
        ):
            least = figure == "per_s"
            yield Aim("processes", name, figure, ratio, OURS, least, ours=several)
        before = processes_name(count, before=True)
        yield Aim("processes", transacted, "cpu_us", 0.6, before, ours=several)


def _of_groups() -> Iterator[Aim]:
    yield Aim("groups", consumer_groups.UNCHANGED, "cpu_us", 0.6, THEIRS)
    for shape in consumer_groups.shapes():
        yield Aim("groups", shape.name, "seconds", 1.0, THEIRS)
        alone = consumer_groups.ALONE
        yield Aim("groups", shape.beside, "p99_ms", 1.2, SELF, other=alone)


def verdicts(results: Mapping[str, Any]) -> Iterator[Verdict]:
    """Return the verdict on each aim whose two figures were measured."""
    for aim in aims():
        medians = results.get(aim.part, {}).get("medians", {})
        beside = OURS if aim.beside == SELF else aim.beside
        ours = medians.get(aim.measurement, {}).get(aim.ours, {}).get(aim.figure)
        theirs = medians.get(aim.other or aim.measurement, {}).get(beside, {}).get(aim.figure)
        if ours is not None and theirs is not None:
            yield Verdict(aim, ours, theirs)
    if "throughput" in results:
        cores = int(results["throughput"]["machine"]["cpu"].partition(" x ")[0])
        yield from _of_throughput(results["throughput"]["medians"], cores)


def _of_throughput(medians: Mapping[str, Any], cores: int) -> Iterator[Verdict]:
    """As fast as the best peer, or the client is the limit and the CPU per GB at most 0.7 of it."""
    for what in ("produce", "consume"):
        for batch in BATCH_BYTES:
            for size in RECORD_BYTES:
                name = f"{what} {size} B in {batch // 1024} KB"
                found = medians.get(name, {})
                peers = [each for each in PEERS if each in found]
                if OURS in found and peers:
                    yield _faster(name, found, peers, cores)


def _faster(
    name: str, found: Mapping[str, Mapping[str, float]], peers: list[str], cores: int
) -> Verdict:
    best = max(peers, key=lambda each: found[each]["mb_per_s"])
    ours = found[OURS]
    aim = Aim("throughput", name, "mb_per_s", 1.0, best, least=True)
    verdict = Verdict(aim, ours["mb_per_s"], found[best]["mb_per_s"])
    note = _limit(ours, cores)
    if verdict.met or not note:
        return verdict
    cheapest = min(peers, key=lambda each: found[each]["cpu_s_per_gb"])
    aim = Aim("throughput", name, "cpu_s_per_gb", 0.7, cheapest)
    return Verdict(aim, ours["cpu_s_per_gb"], found[cheapest]["cpu_s_per_gb"], note)


def _limit(ours: Mapping[str, float], cores: int) -> str:
    """Return the text that shows that the client is the limit, or nothing.

    Either a thread of the client is busy all the time, or the machine is, mostly with the client.
    """
    client, busiest = ours.get("client_cores", 0.0), ours.get("client_busiest", 0.0)
    broker = ours["cpu_seconds"] / ours["seconds"]
    if busiest >= _BUSY:
        return f"the client is the limit: its busiest thread has {busiest:.0%} of a core"
    if client > broker and client + broker >= _BUSY * cores:
        return f"the client is the limit: it has {client:.2f} of {cores} cores, the broker the rest"
    return ""


LABELS = {
    "cpu_us": "CPU us",
    "cpu_us_per_request": "CPU us",
    "per_s": "per second",
    "p50_us": "p50 us",
    "p99_us": "p99 us",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "mb_per_s": "MB/s",
    "cpu_s_per_gb": "CPU s/GB",
    "seconds": "s",
    "resident_mb": "MB",
}


def table(results: Mapping[str, Any]) -> list[str]:
    """Return the table of all aims whose figures were measured."""
    lines = [
        "| row | figure | Barnabas | beside | ratio | aim | met |",
        "|---|---|--:|--:|--:|---|---|",
    ]
    for each in verdicts(results):
        aim, met = each.aim, "yes" if each.met else "**no**"
        text = aim.text + (f"; {each.note}" if each.note else "")
        cells = [aim.measurement, LABELS[aim.figure], shown(each.ours), shown(each.theirs)]
        lines.append(f"| {' | '.join([*cells, f'{each.ratio:.2f}', text, met])} |")
    return lines
