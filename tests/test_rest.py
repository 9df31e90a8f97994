"""`tests/run` and `tests/run --rest` are all tests together."""

import re
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression

from tests.support.rest import COLLECTED, KEPT, REST

ROOT = Path(__file__).parents[1]
OWN_COMMANDS = {"docker", "spark"}
"""Marks of tests that neither runs."""


@pytest.fixture
def collected(request: pytest.FixtureRequest) -> dict[str, set[str]]:
    """Return the ids of all tests with their marks, in a run that has collected them."""
    if request.config.args != request.config.getini("testpaths"):
        pytest.skip("only a run without paths collects all tests")
    return request.config.stash[COLLECTED]


def test_each_test_is_run_by_one_of_both_commands(collected: dict[str, set[str]]) -> None:
    first, second = (
        Expression.compile(choice)
        for choice in re.findall(r"-m '(.+?)'", (ROOT / "tests/run").read_text())
    )
    for test, marks in collected.items():
        has = marks.__contains__
        runs = first.evaluate(has) + second.evaluate(has)
        assert runs == (not marks & OWN_COMMANDS), (test, marks)


@pytest.mark.parametrize("entry", [*REST, *KEPT])
def test_each_entry_of_the_list_begins_an_id(entry: str, collected: dict[str, set[str]]) -> None:
    assert any(test.startswith(entry) for test in collected)
    assert entry in REST or entry.startswith(REST)
