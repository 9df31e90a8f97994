"""Tests that fail and are run again, and those for which there is no time."""

import time
from pathlib import Path

import pytest

from tests.support.inner_pytest import printed
from tests.support.time_left import GRACE_S, UNTIL, allowed_s

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


def test_second_run_does_not_meet_the_topics_of_the_first(tmp_path: Path) -> None:
    """A job that failed once could only fail then: its module's broker had the topics."""
    assert "2 passed, 1 rerun" in printed(tmp_path, TWO_RUNS, "--reruns", "1")


def test_summary_shows_what_the_first_run_said(tmp_path: Path) -> None:
    """A run in CI told of a second failure alone, which followed from the first."""
    found = printed(tmp_path, TWO_RUNS, "--reruns", "1")
    assert "first run of test_inner.py::test_creates" in found
    assert "AssertionError: slow machine" in found


def test_no_test_begins_when_the_time_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine at a third of the speed the run was cut off, and its failures were not seen."""
    test = "def test_fails():\n    assert False\n"
    monkeypatch.setenv("BARNABAS_TESTS_UNTIL", "0")
    found = printed(tmp_path, test)
    assert "1 skipped" in found
    assert "1 tests did not run: the time of this run is over" in found
    monkeypatch.setenv("BARNABAS_TESTS_UNTIL", "1e12")
    assert "1 failed" in printed(tmp_path, test)


def test_failure_is_told_when_the_time_is_over_before_its_second_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    test = """
import os

def test_fails():
    os.environ["BARNABAS_TESTS_UNTIL"] = "0"
    assert False
"""
    monkeypatch.setenv("BARNABAS_TESTS_UNTIL", "1e12")
    assert "1 error, 1 rerun" in printed(tmp_path, test, "--reruns", "1")


def test_second_run_has_a_timer_too(tmp_path: Path) -> None:
    """A submission was refused because a second run waited until the time of CI was over."""
    test = "import time\n\ndef test_hangs():\n    time.sleep(40)\n"
    found = printed(tmp_path, test, "--timeout", "1", "--reruns", "1")
    assert "1 failed, 1 rerun" in found


def test_fixture_that_hangs_after_its_test_is_ended_too(tmp_path: Path) -> None:
    test = """
import time
import pytest

@pytest.fixture
def broker():
    yield
    time.sleep(40)

def test_hangs(broker):
    time.sleep(40)
"""
    assert "1 failed, 1 error" in printed(tmp_path, test, "--timeout", "1")


def test_test_that_began_in_time_ends_soon_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert allowed_s(120) == 120
    monkeypatch.setenv(UNTIL, str(time.time() - GRACE_S + 60))
    assert 50 < allowed_s(120) <= 60
    assert allowed_s(30) == 30
