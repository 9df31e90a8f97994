"""The page of reliability says what the run of the whole matrix said."""

import json

from tests.chaos.__main__ import Results
from tests.chaos.cells import CELLS
from tests.chaos.page import PAGE, RESULTS, numbers, with_numbers


def test_the_numbers_of_the_page_are_those_of_the_run() -> None:
    page = PAGE.read_text()
    assert page == with_numbers(page, json.loads(RESULTS.read_text()))


def test_every_cell_has_a_line_and_a_violation_is_not_hidden() -> None:
    results = json.loads(RESULTS.read_text())
    struck = [row["cell"] for row in results["cells"]]
    page, *newer = numbers(results).split("Newer than this run")
    assert struck == [cell.name for cell in CELLS if f"| {cell.name} |" in page]
    assert all(cell.name in struck or cell.name in newer[0] for cell in CELLS)
    results["cells"][0]["violations"] = 7
    assert "| violations | 7 |" in numbers(results)
    results["cells"][0] = {"cell": "first", "failed": "AssertionError"}
    assert "| first | **failed** |" in numbers(results)


def test_what_took_too_long_is_struck_again_and_told_but_a_violation_stays() -> None:
    results = Results()
    slow, wrong, never = CELLS[:3]
    results.take({"cell": slow.name, "violations": 0, "missed": ["9 s without a write"]})
    results.take({"cell": wrong.name, "violations": 1, "missed": ["9 s without a write"]})
    assert [results.wants(cell) for cell in (slow, wrong, never)] == [True, False, True]
    results.take({"cell": slow.name, "violations": 0, "missed": []})
    assert not results.wants(slow)
    assert results.again == [f"{slow.name}: 9 s without a write"]


def test_two_brokers_cut_from_each_other_had_no_bar_and_could_miss_none() -> None:
    bars = {cell.name: cell.bar for cell in CELLS}
    assert bars["two brokers cut from each other"] == (45.0, 1.0)
    assert bars["one broker does not hear another"] == (45.0, 1.0)


def test_the_record_keeps_the_bars_of_today() -> None:
    results = json.loads(RESULTS.read_text())
    rows = {row["cell"]: row for row in results["cells"] if "verdict" in row}
    held = [cell for cell in CELLS if cell.bar is not None and cell.name in rows]
    for cell in held:
        row = rows[cell.name]
        assert cell.bar is not None
        assert row["missed"] or row["gap_s"] <= cell.bar.struck + row["gap_calm_s"], cell.name
        assert row["missed"] or row["gap_elsewhere_s"] <= cell.bar.others + row["gap_calm_s"]
    assert f"| bars missed, of {len(held)} cells that have one |" in numbers(results)
