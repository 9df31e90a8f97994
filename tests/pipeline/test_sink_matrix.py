"""The quick cells of the sink matrix; `python -m tests.pipeline` runs all."""

import time
from collections.abc import Iterator

import pytest

from tests.pipeline.bench import Bench, Evidence, Stream
from tests.pipeline.cells import BOUNDED, CELLS, LOST, QUICK, Cell, in_time, named, saw_loss
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


def test_fault_that_cannot_strike_is_told_with_the_error_of_the_query(running: Bench) -> None:
    """The wait ended after a minute without the reason."""
    stream = Stream(running, "no-strike")
    stream.add()
    fault = stream.fault("carry out", "before", "stop")
    driver = running.drivers.take()
    stream.start(driver, topic="missing")
    with pytest.raises(AssertionError, match="topic missing cannot be written"):
        fault.wait()
    running.drivers.give_back(driver)


def test_sink_that_no_coordinator_knows_is_not_free_of_open_transactions(running: Bench) -> None:
    """No answer about a sink was taken for "nothing is open"."""
    stream = Stream(running, "unknown")
    assert not stream.have_ended()
    assert stream.problems() == [
        "nothing shows that no transaction is open: no coordinator knows a task"
    ]


def test_batch_that_had_too_little_time_runs_again_with_twice_the_timeout(running: Bench) -> None:
    """The matrix waited in vain for a step that a refused batch does not reach."""
    stream = Stream(running, "slow", delivery=BOUNDED, transactionTimeout="4 s")
    stream.add()
    fault = stream.fault("describe", "before", "wait", callback="commit")
    driver = running.drivers.take()

    def run() -> str | None:
        stream.start(driver)
        fault.wait()
        if stream.options["transactionTimeout"] == "4 s":
            # Only time makes a transaction old.
            time.sleep(2.5)
        fault.go()
        return driver.order("await", query=stream.name)

    assert in_time(stream, run) is None
    assert stream.options["transactionTimeout"] != "4 s"
    assert stream.problems() == []
    running.drivers.give_back(driver)


def test_decision_that_is_not_carried_out_yet_is_no_loss() -> None:
    told = "SinkError: batch 1 of query q is decided, but "
    with pytest.raises(AssertionError, match="not all of its rows are visible yet"):
        saw_loss(Evidence(), f"{told}not all of its rows are visible yet: REQUEST_TIMED_OUT")
    saw_loss(Evidence(), f"{told}s.p.0 (2 rows) {LOST}. Go on without these rows")


def test_names_of_cells_differ() -> None:
    assert len({cell.name for cell in CELLS}) == len(CELLS)
