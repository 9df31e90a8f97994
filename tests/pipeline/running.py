"""Cells one after the other on one bench, and their results."""

import re
import tempfile
import time
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from barnabas.testing import Cluster
from tests.pipeline.bench import CONFIGS, MASTER, Bench, Evidence
from tests.pipeline.cells import Cell
from tests.pipeline.drivers import Drivers

Figures = dict[str, Any]


@contextmanager
def bench(*, master: str = MASTER) -> Iterator[Bench]:
    """Start three brokers; drivers start when they are needed, and all end together."""
    with tempfile.TemporaryDirectory(prefix="pipeline-", ignore_cleanup_errors=True) as folder:
        drivers = Drivers(Path(folder) / "drivers", master)
        drivers.start_spare()
        try:
            with Cluster(CONFIGS, processes=True) as cluster:
                running = Bench(Path(folder), cluster, drivers)
                with running.ending:
                    yield running
        finally:
            drivers.kill_all()


def run_cell(bench: Bench, cell: Cell, suffix: str = "") -> Figures:
    """Play a cell and judge its streams; an error of the cell itself is a failure."""
    evidence = Evidence()
    began = time.monotonic()
    figures: Figures = {"cell": cell.name, "seen": evidence.seen, "problems": []}
    try:
        streams = cell.play(bench, evidence, _plain(cell.name + suffix))
        for stream in streams:
            figures["problems"] += stream.problems()
        if not evidence.seen:
            figures["problems"].append("nothing shows that the fault struck")
    except Exception as error:
        figures["failed"] = f"{type(error).__name__}: {error}"[-6000:]
        figures["trace"] = traceback.format_exc()[-1500:]
        bench.kill_drivers()
    figures["seconds"] = round(time.monotonic() - began, 1)
    return figures


def run_cells(bench: Bench, cells: Iterable[Cell]) -> Iterator[Figures]:
    """Play cells one after the other."""
    for cell in cells:
        yield run_cell(bench, cell)


def is_well(figures: Figures) -> bool:
    """Return whether a cell has shown its fault, and the output has each value once."""
    return not figures["problems"] and "failed" not in figures


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
