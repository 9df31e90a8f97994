"""The end of a test that hangs."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
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
    (path := tmp_path / "test_hangs.py").write_text(HANGS)
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "--rootdir", str(tmp_path)]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", "--timeout", "1", str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "TimedOutError: Timeout (>1.0s)" in done.stdout
    assert "1 failed" in done.stdout
