"""No hot path has become dearer than `benchmarks/path_costs.json` says."""

import pytest

from benchmarks import path_costs
from benchmarks.path_costs import CALLS, INSTRUCTIONS

BEFORE = {"Fetch": {INSTRUCTIONS: 100_000, CALLS: 5.0}}


def test_cost_within_the_slack_is_not_dearer() -> None:
    now = {"Fetch": {INSTRUCTIONS: 102_900, CALLS: 5.1}}
    assert path_costs.dearer(now, BEFORE) == []


def test_each_cost_beyond_the_slack_is_named() -> None:
    now = {"Fetch": {INSTRUCTIONS: 103_100, CALLS: 6.0}}
    assert path_costs.dearer(now, BEFORE) == [
        "Fetch: 103,100 instructions instead of 100,000",
        "Fetch: 6.0 system calls instead of 5.0",
    ]


def test_path_without_a_figure_is_refused() -> None:
    with pytest.raises(KeyError):
        path_costs.dearer({"Produce": {CALLS: 4.0}}, BEFORE)


@pytest.mark.timeout(900)
def test_no_path_is_dearer_than_its_figures() -> None:
    """`python -m benchmarks.path_costs --write` writes the figures of a change that costs more."""
    if reason := path_costs.why_not():
        pytest.skip(reason)
    if not (figures := path_costs.written()):
        pytest.skip(f"benchmarks/path_costs.json has no figures for {path_costs.build()}")
    try:
        now = path_costs.counted()
    except PermissionError as error:
        pytest.skip(str(error))
    assert path_costs.dearer(now, figures) == []
    # A cost that falls by so much was not counted: late imports once stood in the idle share.
    twice = {path: {kind: 2 * cost for kind, cost in costs.items()} for path, costs in now.items()}
    assert path_costs.dearer(figures, twice) == []
