"""Crowds, slow peers, slow disks: the small version of `python -m benchmarks.limits`.

A machine that runs tests is busy, so what others may feel is a generous bound; memory is not.
"""

from pathlib import Path

import pytest

from benchmarks import limits
from benchmarks.limits import Felt, Scale

SMALL = Scale(
    connections=300,
    partitions=300,
    members=10,
    slow_consumers=3,
    large_mb=50,
    offsets=10_000,
    rounds=1,
    window_s=0.5,
)
UNDISTURBED_MS = 150.0


@pytest.mark.parametrize("case", limits.CASES)
def test_others_are_served_and_memory_is_bounded(tmp_path: Path, case: str) -> None:
    for title, figure in limits.CASES[case](tmp_path / case, SMALL).items():
        if isinstance(figure, Felt):
            assert figure.disturbed_p99 < figure.calm_p99 + UNDISTURBED_MS, title
        elif "over idle" in title:
            assert figure < limits.MAX_GROWTH_MB, title
