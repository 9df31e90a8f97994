"""Tests that fail and are run again."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
TWO_RUNS = """
import pytest

@pytest.fixture(scope="session")
def runs():
    return []

@pytest.fixture(scope="module")
def topics():
    return set()

def test_creates(runs, topics):
    assert "orders" not in topics, "TOPIC_ALREADY_EXISTS"
    topics.add("orders")
    runs.append(len(runs))
    assert len(runs) == 2, "slow machine"

def test_after(topics):
    assert topics == {"orders"}
"""


def run(tmp_path: Path) -> str:
    (path := tmp_path / "test_two_runs.py").write_text(TWO_RUNS)
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "--rootdir", str(tmp_path)]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", "--reruns", "1", str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout


def test_second_run_does_not_meet_the_topics_of_the_first(tmp_path: Path) -> None:
    """A job that failed once could only fail then: its module's broker had the topics."""
    assert "2 passed, 1 rerun" in run(tmp_path)


def test_summary_shows_what_the_first_run_said(tmp_path: Path) -> None:
    """A run in CI told of a second failure alone, which followed from the first."""
    found = run(tmp_path)
    assert "first run of test_two_runs.py::test_creates" in found
    assert "AssertionError: slow machine" in found
