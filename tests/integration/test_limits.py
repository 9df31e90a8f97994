"""Many connections, slow peers, slow disks: a small run of `python -m benchmarks.alone limits`.

A machine that runs tests is busy, so the bound on other clients' latency is generous; memory is
not.
"""

from argparse import Namespace
from pathlib import Path

import pytest

from benchmarks import alone, limits
from benchmarks.limits import Felt, Window, felt
from tests.support.brokers.loop_hold import Held

SMALL = Namespace(
    connections=300,
    partitions=300,
    members=10,
    slow_consumers=3,
    large_mb=50,
    offsets=10_000,
    keyed_records=20_000,
    rounds=1,
    window_s=0.5,
    load_window_s=0.6,
)
UNDISTURBED_MS = 150.0
MAX_GROWTH_MB = 300
LONGEST_WORK_MS = 50.0
"""The longest CPU time of one loop iteration, which does not depend on the machine's load."""


@pytest.mark.parametrize("case", limits.CASES)
def test_loads_leave_other_clients_served_and_memory_bounded(tmp_path: Path, case: str) -> None:
    for title, figure in limits.CASES[case](tmp_path / case, SMALL).items():
        if isinstance(figure, Felt):
            assert figure.disturbed_p99 < figure.calm_p99 + UNDISTURBED_MS, title
            assert figure.disturbed.longest_work < LONGEST_WORK_MS, title
        elif "over idle" in title:
            assert figure < MAX_GROWTH_MB, title


def rounds(*p99s: tuple[float, float, float]) -> Felt:
    return felt([Window(p99, Held(p99, p99, p99)) for triple in p99s for p99 in triple])


def test_felt_ratio_is_compared_with_the_difference_of_two_quiet_windows() -> None:
    assert rounds((1, 1.1, 1), (2, 2.2, 2), (1, 9, 1)).verdict == "yes"
    assert rounds((1, 2, 1), (1, 2, 1.1), (1, 1, 1)).verdict == "**no**"
    assert rounds((1, 2, 2), (2, 3, 1), (1, 9, 4)).verdict == "within the noise"


def test_page_shows_the_measured_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KEPT", "PAGE"):
        monkeypatch.setattr(alone, name, tmp_path / name)
    alone.KEPT.write_text("{}")
    options = Namespace(run="limits", **vars(SMALL), only="")
    alone.keep(options, {"thunder": rounds((1, 3, 1)), "rain, MB": 7.0})
    text = alone.PAGE.read_text()
    assert "| thunder | 1.00 | 3.00 | 3.00 | 1.00 | **no** |" in text
    assert "| thunder | 1.0 / 3.0 | 1.0 / 3.0 | 1.0 / 3.0 |" in text
    assert "| rain, MB | 7 |" in text
