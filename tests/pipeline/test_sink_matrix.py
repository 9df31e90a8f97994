"""The quick cells of the sink matrix; `python -m tests.pipeline` runs all."""

from collections.abc import Iterator

import pytest

from tests.pipeline.bench import Bench
from tests.pipeline.cells import CELLS, QUICK, Cell, named
from tests.pipeline.running import bench, is_well, run_cell

pytestmark = [pytest.mark.xdist_group("spark-matrix"), pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def running() -> Iterator[Bench]:
    with bench() as running:
        yield running


@pytest.mark.parametrize("cell", named(QUICK), ids=lambda cell: cell.name.replace(" ", "-"))
def test_rows_are_neither_lost_nor_twice(running: Bench, cell: Cell) -> None:
    figures = run_cell(running, cell)
    assert is_well(figures), figures


def test_names_of_cells_differ() -> None:
    assert len({cell.name for cell in CELLS}) == len(CELLS)
