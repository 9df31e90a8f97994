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


HANGS_AT_A_JUMP_WITHOUT_A_LINE = """
import pytest

@pytest.fixture
def broker():
    for each in iter(int, 1):
        if each == 1:
            print(each)

def test_starts(broker):
    pass

def test_after():
    pass
"""


def test_end_of_a_fixture_is_rendered_wherever_it_hangs(tmp_path: Path) -> None:
    """pytest subtracted 1 from the line, which was None, and all other tests were lost."""
    found = printed(tmp_path, HANGS_AT_A_JUMP_WITHOUT_A_LINE, "--timeout", "0.2")
    assert "TimedOutError: Timeout (>0.2s)" in found
    assert "1 passed, 1 error" in found
