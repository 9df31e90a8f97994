"""Crowds, slow peers, slow disks: the small version of `python -m benchmarks.limits`.

A machine that runs tests is busy, so what others may feel is a generous bound; memory is not.
"""

from pathlib import Path

import pytest

from benchmarks import limits
from benchmarks.limits import Felt, Scale
from benchmarks.limits_measures import Window, felt
from benchmarks.limits_page import page, verdict
from tests.integration.adversary.loop_hold import Held

SMALL = Scale(
    connections=300,
    partitions=300,
    members=10,
    slow_consumers=3,
    large_mb=50,
    offsets=10_000,
    keyed_records=20_000,
    rounds=1,
    window_s=0.5,
)
UNDISTURBED_MS = 150.0
LONGEST_WORK_MS = 50.0
"""Of the broker's own in one turn of its loop, whatever else the machine does meanwhile."""


@pytest.mark.parametrize("case", limits.CASES)
def test_others_are_served_and_memory_is_bounded(tmp_path: Path, case: str) -> None:
    for title, figure in limits.CASES[case](tmp_path / case, SMALL).items():
        if isinstance(figure, Felt):
            assert figure.disturbed_p99 < figure.calm_p99 + UNDISTURBED_MS, title
            assert figure.disturbed.longest_work < LONGEST_WORK_MS, title
        elif "over idle" in title:
            assert figure < limits.MAX_GROWTH_MB, title


def rounds(*p99s: tuple[float, float, float]) -> Felt:
    return felt([Window(p99, Held(p99, p99, p99)) for triple in p99s for p99 in triple])


def test_a_ratio_is_held_against_what_two_calm_windows_differ_by() -> None:
    assert verdict(rounds((1, 1.1, 1), (2, 2.2, 2), (1, 9, 1))) == "yes"
    assert verdict(rounds((1, 2, 1), (1, 2, 1.1), (1, 1, 1))) == "**no**"
    assert verdict(rounds((1, 2, 2), (2, 3, 1), (1, 9, 4))) == "lost in the noise"


def test_the_page_says_what_was_measured() -> None:
    text = page({"thunder": rounds((1, 3, 1)), "rain, MB": 7.0}, 1, 0.5)
    assert "| thunder | 1.00 | 3.00 | 3.00 | 1.00 | **no** |" in text
    assert "| thunder | 1.0 / 3.0 | 1.0 / 3.0 | 1.0 / 3.0 |" in text
    assert "| rain, MB | 7 |" in text
