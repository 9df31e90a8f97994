"""Every cell of the fault matrix once: `python -m tests.chaos`.

    --only TEXT     cells whose name contains it; may be given several times
    --again         only cells that are missing in FILE, did not end or took too long: their rows
                    are replaced, with the reason; rows with a violation stay
    --list          print the names of the cells
    --results FILE  write the numbers there, as JSON; without it a complete run replaces the record
                    of the last complete run, and a partial run writes none
    --page          write docs/RELIABILITY.md's numbers from FILE, and run no cell

No cell is left out for root on Linux with iproute2, iptables, strace and a C compiler. The exit
code is 1 if a promise was violated, a cell took too long or its fault had no effect; 2 if no cell
matches.
"""

import argparse
import itertools
import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.chaos import page
from tests.chaos.cells import CELLS, Cell
from tests.chaos.cluster import ChaosCluster, Kind
from tests.chaos.running import Figures, at_rest, under_load, why_not


def main() -> int:
    for number in (signal.SIGINT, signal.SIGTERM):
        # Brokers, mounts and namespaces go with the run, however it ends.
        signal.signal(number, lambda *_: sys.exit(1))
    options = _arguments()
    cells: list[Cell] = options.cells
    if options.list:
        print("\n".join(cell.name for cell in cells))
        return 0
    record: Path = options.results or page.RESULTS
    if options.page:
        page.write(json.loads(record.read_text()))
        return 0
    told = _earlier(record) if options.again else Results()
    # A partial result must not replace a complete one.
    is_kept = options.results or options.again or not options.only
    cells = [cell for cell in cells if told.wants(cell)]
    for kind, group in itertools.groupby(cells, lambda cell: cell.kind):
        for figures in _on_clusters(kind, list(group)):
            told.take(figures)
            _tell(figures)
            if is_kept:
                record.write_text(json.dumps(told.as_json(), indent=1) + "\n")
    return 0 if told.are_well() else 1


class Results:
    """The results of the cells in their order, and the cells that ran again with the reasons."""

    def __init__(self, seconds: float = 0.0) -> None:
        self._began = time.monotonic() - seconds
        self.cells: dict[str, Figures] = {}
        self.rests: list[Figures] = []
        self.again: list[str] = []

    def take(self, figures: Figures) -> None:
        if "at rest" in figures:
            self.rests.append(figures)
            return
        name = figures["cell"]
        if name in self.cells:
            before = self.cells[name]
            why = before.get("failed") or ", ".join(before["missed"])
            self.again.append(f"{name}: {why.splitlines()[0]}")
        self.cells[name] = figures

    def wants(self, cell: Cell) -> bool:
        """Return whether a cell is to be struck (again)."""
        before = self.cells.get(cell.name)
        if before is None or "failed" in before:
            return True
        return bool(before.get("missed")) and not before["violations"]

    def are_well(self) -> bool:
        return all(map(_is_well, [*self.cells.values(), *self.rests]))

    def as_json(self) -> dict[str, Any]:
        return {
            "seconds": round(time.monotonic() - self._began),
            "again": self.again,
            "cells": [self.cells[cell.name] for cell in CELLS if cell.name in self.cells],
            "rests": self.rests,
        }


def _earlier(path: Path) -> Results:
    """As an earlier run has left them."""
    saved = json.loads(path.read_text())
    results = Results(saved["seconds"])
    results.again = saved["again"]
    results.rests = saved["rests"]
    results.cells = {row["cell"]: row for row in saved["cells"]}
    return results


def _on_clusters(kind: Kind, cells: Sequence[Cell]) -> Iterable[Figures]:
    """Each cell under a load of its own; after one that went wrong, the cluster is another."""
    left = list(cells)
    while left:
        directory = Path(tempfile.mkdtemp(prefix="chaos-"))
        with ChaosCluster(directory / "cluster", kind) as cluster:
            went_well = True
            while left and went_well:
                figures = _one(left.pop(0), cluster, directory)
                went_well = _is_well(figures)
                yield figures
            if went_well and not kind.lossy:
                yield {"at rest": kind.name, **at_rest(cluster)}
        if went_well:
            shutil.rmtree(directory, ignore_errors=True)
        else:
            print(f"    see {directory}", flush=True)


def _one(cell: Cell, cluster: ChaosCluster, directory: Path) -> Figures:
    reason = why_not(cell, cluster)
    if reason is not None:
        return {"cell": cell.name, "skipped": reason}
    seed = CELLS.index(cell)
    try:
        figures = under_load([cell], cluster, directory / f"load-{seed}", seed)
    except Exception as error:
        return {"cell": cell.name, "failed": f"{type(error).__name__}: {error}"[:2000]}
    return {**figures.pop("cells")[0], **figures}


def _is_well(figures: Figures) -> bool:
    if "skipped" in figures:
        return True
    if "failed" in figures:
        return False
    if "at rest" in figures:
        return not figures["anomalies"]
    return figures["verdict"] == "clean" and not figures["violations"] and not figures["missed"]


def _tell(figures: Figures) -> None:
    if "at rest" in figures:
        print(f"at rest: {figures}", flush=True)
        return
    name = figures["cell"]
    if "verdict" not in figures:
        print(f"{name}: {figures.get('skipped') or figures['failed']}", flush=True)
        return
    counts = figures["figures"]
    share = counts["unknown"] / max(counts["operations"], 1)
    print(
        f"{name}: {figures['verdict']}, {counts['transactions']} transactions, "
        f"{share:.1%} unknown, gap {figures['gap_s']} s (elsewhere {figures['gap_elsewhere_s']}, "
        f"calm {figures['gap_calm_s']}), in sync after {figures['full_after_s']} s; "
        + "; ".join([*figures["seen"], *figures["missed"], *figures["anomalies"]]),
        flush=True,
    )


def _is_wanted(cell: Cell, only: Sequence[str]) -> bool:
    return not only or any(text in cell.name for text in only)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--results", type=Path)
    options = parser.parse_args()
    options.cells = [cell for cell in CELLS if _is_wanted(cell, options.only)]
    if not options.cells:
        parser.error("no cell has this name; --list prints all names")
    return options


if __name__ == "__main__":
    sys.exit(main())
