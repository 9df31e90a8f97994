"""The aims that Barnabas has beside itself before, its peers and the floors, and which are met."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from benchmarks.measures import TABLES, shown
from benchmarks.systems import OURS, PEERS

_BUSY = 0.9
"""The share of a core from which on a thread of the client is the limit."""
_SHARES = {"a quarter": 0.25, "an eighth": 0.125}


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


class Verdict(NamedTuple):
    """A figure beside the one that it is held against."""

    measurement: str
    figure: str
    aim: str
    ours: float
    theirs: float
    note: str = ""

    @property
    def ratio(self) -> float:
        return self.ours / self.theirs if self.theirs else 0.0

    @property
    def met(self) -> bool:
        return is_met(self.aim, self.ours, self.theirs)


def verdicts(results: Mapping[str, Any]) -> Iterator[Verdict]:
    """Return the verdict on each aim whose two figures were measured."""
    for part, measurement, figure, aim, *whose in TABLES["aims"]["rows"]:
        medians = results.get(part, {}).get("medians", {})
        own = whose[0] if whose else OURS
        beside = aim.split(" of ", 1)[1]
        # Another measurement of Barnabas, or another system.
        name, system = (beside, own) if beside in medians else (measurement, beside)
        ours = medians.get(measurement, {}).get(own, {}).get(figure)
        theirs = medians.get(name, {}).get(system, {}).get(figure)
        if ours is not None and theirs is not None:
            yield Verdict(measurement, figure, aim, ours, theirs)
    if "throughput" in results:
        cores = int(results["throughput"]["machine"]["cpu"].partition(" x ")[0])
        by_name = results["throughput"]["medians"].items()
        for name, found in sorted(by_name, key=lambda each: each[0].startswith("consume")):
            peers = [each for each in PEERS if each in found]
            if OURS in found and peers:
                yield _faster(name, found, peers, cores)


def _faster(
    name: str, found: Mapping[str, Mapping[str, float]], peers: list[str], cores: int
) -> Verdict:
    """As fast as the best peer, or the client is the limit and the CPU per GB at most 0.7 of it."""
    best = max(peers, key=lambda each: found[each]["mb_per_s"])
    ours, theirs = found[OURS], found[best]["mb_per_s"]
    verdict = Verdict(name, "mb_per_s", f"at least 1 of {best}", ours["mb_per_s"], theirs)
    note = _limit(ours, cores)
    if verdict.met or not note:
        return verdict
    figure = "cpu_s_per_gb"
    cheapest = min(peers, key=lambda each: found[each][figure])
    aim = f"at most 0.7 of {cheapest}"
    return Verdict(name, figure, aim, ours[figure], found[cheapest][figure], note)


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


def said(met: bool) -> str:
    return "yes" if met else "**no**"


def table(results: Mapping[str, Any]) -> list[str]:
    """Return the table of all aims whose figures were measured."""
    lines = [
        "| row | figure | Barnabas | beside | ratio | aim | met |",
        "|---|---|--:|--:|--:|---|---|",
    ]
    for each in verdicts(results):
        text = each.aim + (f"; {each.note}" if each.note else "")
        cells = [
            each.measurement,
            TABLES["labels"][each.figure],
            shown(each.ours),
            shown(each.theirs),
        ]
        lines.append(f"| {' | '.join([*cells, f'{each.ratio:.2f}', text, said(each.met)])} |")
    return lines
