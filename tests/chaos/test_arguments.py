"""The arguments of the fault matrix: which cells run, and where the numbers are written."""

import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos import __main__ as matrix
from tests.chaos import page

Run = Callable[..., int]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The matrix on clusters that survive everything, with a record of a whole run."""
    record = tmp_path / "record.json"
    record.write_text(json.dumps({"seconds": 1, "again": [], "cells": [], "rests": []}))
    monkeypatch.setattr(page, "RESULTS", record)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(
        matrix,
        "_on_clusters",
        lambda _, cells: ({"cell": cell.name, "skipped": "a test"} for cell in cells),
    )

    def main(*words: str) -> int:
        monkeypatch.setattr(sys, "argv", ["chaos", *words])
        return matrix.main()

    return main


def _cells(file: Path) -> list[str]:
    return [row["cell"] for row in json.loads(file.read_text())["cells"]]


def test_a_part_of_the_matrix_overwrote_the_record_of_the_whole(run: Run) -> None:
    assert run("--only", "ZooKeeper away 30 s") == 0
    assert _cells(page.RESULTS) == []
    assert run() == 0
    assert len(_cells(page.RESULTS)) == len(matrix.CELLS)


def test_a_part_of_the_matrix_is_written_where_somebody_asks_for_it(
    run: Run, tmp_path: Path
) -> None:
    asked = tmp_path / "asked.json"
    run("--only", "ZooKeeper away 30 s", "--results", str(asked))
    assert _cells(asked) == ["ZooKeeper away 30 s"]
    # Together with what the record has already it is a record again.
    run("--only", "ZooKeeper away 30 s", "--again")
    assert _cells(page.RESULTS) == ["ZooKeeper away 30 s"]


@pytest.mark.parametrize("more", [[], ["--list"]])
def test_a_name_that_no_cell_has_passed_for_a_run_without_a_fault(
    run: Run, more: list[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run("--only", "Zookeeper", *more)
    assert ended.value.code == 2
