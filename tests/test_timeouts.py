"""The end of a test that hangs."""

from pathlib import Path

from tests.support.inner_pytest import printed

HANGS = """
import time
from hypothesis import given, strategies

@given(strategies.integers())
def test_hangs(number):
    while number > 100:
        time.sleep(0.01)
"""


def test_example_that_hangs_ends_its_test_once(tmp_path: Path) -> None:
    """Hypothesis shrank such an example without a deadline, and the run never ended."""
    found = printed(tmp_path, HANGS, "--timeout", "1")
    assert "TimedOutError: Timeout (>1.0s)" in found
    assert "1 failed" in found
