"""The page of figures says what the results say."""

import json

from benchmarks import report
from benchmarks.beside_kafka import HERE, PAGE, RESULTS, medians


def test_the_page_is_made_from_the_results() -> None:
    assert PAGE.read_text() == report.page(json.loads(RESULTS.read_text()), HERE / "notes.md")


def test_the_medians_are_those_of_the_runs() -> None:
    for part in json.loads(RESULTS.read_text()).values():
        assert part["medians"] == medians(part["runs"])


def test_an_aim_that_is_missed_is_said_to_be_missed() -> None:
    results = json.loads(RESULTS.read_text())
    produced = results["log"]["medians"]["produce 1024 B in 1024 KB"]
    produced[report.OURS]["mb_per_s"] = produced[report.THEIRS]["mb_per_s"] / 2
    page = report.page(results, HERE / "notes.md")
    start = page.rindex("| 1024 B in 1024 KB, MB/s", 0, page.index("### Consume"))
    row = page[start:].splitlines()[0]
    assert "0.50" in row
    assert "**no**" in row
