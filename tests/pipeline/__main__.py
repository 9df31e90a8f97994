"""The sink matrix: `python -m tests.pipeline`.

    --only TEXT     the cell of this name, or all whose names contain it; may be given several times
    --quick         the cells of every test run
    --list          print the names of the cells
    --seed N        the seed of the soak
    --rounds N      the number of its faults, 100 without it
    --results FILE  write the results there, as JSON

Each cell lets a fault strike a streaming query with the sink. Every row must be in the output once,
as a read_committed consumer of librdkafka sees it, and no transaction may be open. The exit code is
1 if a cell went wrong, or its fault did not strike; 2 if no cell matches.
"""

import argparse
import json
import signal
import sys
import time
from functools import partial
from pathlib import Path

from tests.pipeline.cells import CELLS, QUICK, ROUNDS, Cell, named, soak
from tests.pipeline.running import Figures, bench, is_well, run_cells


def main() -> int:
    for number in (signal.SIGINT, signal.SIGTERM):
        # Brokers and drivers end with the run, however it ends.
        signal.signal(number, lambda *_: sys.exit(1))
    options = _arguments()
    cells: list[Cell] = options.cells
    if options.list:
        print("\n".join(cell.name for cell in cells))
        return 0
    rows: list[Figures] = []
    began = time.monotonic()
    with bench() as bench_of_run:
        for figures in run_cells(bench_of_run, cells):
            rows.append(figures)
            _tell(figures)
            if options.results:
                results = {"seconds": round(time.monotonic() - began), "cells": rows}
                options.results.write_text(json.dumps(results, indent=1) + "\n")
    well = sum(map(is_well, rows))
    print(f"{well} of {len(rows)} cells are well, {time.monotonic() - began:.0f} s")
    return 0 if well == len(rows) else 1


def _tell(figures: Figures) -> None:
    verdict = "well" if is_well(figures) else "WRONG"
    print(f"{figures['cell']}: {verdict}, {figures['seconds']} s; " + "; ".join(figures["seen"]))
    for each in figures["problems"]:
        print(f"    {each}")
    if "failed" in figures:
        print(f"    {figures['failed']}\n{figures['trace']}")
    sys.stdout.flush()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.pipeline", description=__doc__)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--results", type=Path)
    options = parser.parse_args()
    chosen = named(QUICK) if options.quick else list(CELLS)
    names = [c.name for c in chosen]
    wanted = set().union(*(_named(text, names) for text in options.only))
    random_faults = partial(soak, rounds=options.rounds, seed=options.seed)
    chosen = [c._replace(play=random_faults) if c.play is soak else c for c in chosen]
    options.cells = [c for c in chosen if not options.only or c.name in wanted]
    if not options.cells:
        parser.error("no cell has this name; --list prints all names")
    return options


def _named(text: str, names: list[str]) -> list[str]:
    """Return the name that is the text, or the names that contain it."""
    return [text] if text in names else [each for each in names if text in each]


if __name__ == "__main__":
    sys.exit(main())
