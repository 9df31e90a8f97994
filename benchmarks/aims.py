"""The aims that Barnabas has beside itself before, its peers and the floors, and which are met."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from benchmarks.measures import TABLES, shown
from benchmarks.systems import OURS, PEERS

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
    # Peers are as fast as the faster one of them.
    by_name = results.get("throughput", {}).get("medians", {}).items()
    for name, found in sorted(by_name, key=lambda each: each[0].startswith("consume")):
        rates = {each: figures["mb_per_s"] for each, figures in found.items()}
        peers = [each for each in PEERS if each in rates]
        if OURS in rates and peers:
            best = max(peers, key=rates.__getitem__)
            yield Verdict(name, "mb_per_s", f"at least 1 of {best}", rates[OURS], rates[best])


def said(met: bool) -> str:
    return "yes" if met else "**no**"


def table(results: Mapping[str, Any]) -> list[str]:
    """Return the table of all aims whose figures were measured."""
    lines = [
        "| row | figure | Barnabas | beside | ratio | aim | met |",
        "|---|---|--:|--:|--:|---|---|",
    ]
    for each in verdicts(results):
        figures = [TABLES["labels"][each.figure], shown(each.ours), shown(each.theirs)]
        cells = [each.measurement, *figures, f"{each.ratio:.2f}", each.aim, said(each.met)]
        lines.append(f"| {' | '.join(cells)} |")
    return lines
