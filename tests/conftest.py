"""Settings of the process that every test relies on."""

import gc
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Generator
from types import FrameType
from typing import Any, Final

# Containers often forbid bytecode files. Without them every pytest process and every broker that a
# test starts compiles all modules again: half of the time that collecting takes.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402

from barnabas.cli.processes.broker import raise_file_limit  # noqa: E402
from tests.support.rest import COLLECTED, is_rest  # noqa: E402
from tests.support.time_left import UNTIL, allowed_s, until  # noqa: E402

# A shell that runs us in its background ignores SIGINT, and so would the programs that the tests
# start and then interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Brokers of the tests hold the files of many hundred partitions, and a shell allows 1024.
raise_file_limit()

# A machine that is busy with other tests takes longer than any deadline for one example.
settings.register_profile("barnabas", deadline=None)
settings.load_profile("barnabas")


NO_TIME: Final = "the time of this run is over"
TIMER: Final = pytest.StashKey[Any]()
"""The settings of pytest-timeout for a test."""


class TimedOutError(BaseException):
    """The end of a test that has run for too long.

    Not a failure: Hypothesis would look for a shorter example, and nothing would end that one.
    """


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> Generator[None, Any, Any]:
    done = yield
    item.stash[TIMER] = settings
    fail = signal.getsignal(signal.SIGALRM)

    def end(_: int, frame: Any) -> None:
        if frame.f_lineno is None:
            # The interpreter is at a jump that has no line, and pytest cannot render an exception
            # from there. This one comes from the next line.
            frame.f_trace = at_line
            sys.settrace(lambda *_: None)
        else:
            at_line(frame)

    def at_line(frame: FrameType, *_: Any) -> None:
        assert callable(fail)
        try:
            fail(signal.SIGALRM, frame)
        except pytest.fail.Exception as error:
            raise TimedOutError(error.msg) from None

    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, allowed_s(settings.timeout))
    return done


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what `tests/run` leaves out, before pytest chooses by marks."""
    for item in items:
        if is_rest(item.nodeid):
            item.add_marker("rest")
    config.stash[COLLECTED] = {
        item.nodeid: {mark.name for mark in item.iter_markers()} for item in items
    }
    if UNTIL in os.environ:
        # Long groups come before short ones, so that all workers end at the same time.
        sizes = Counter(map(group_of, items))
        items.sort(key=lambda item: -sizes[group_of(item)])


def group_of(item: pytest.Item) -> str:
    """Return the group of a test, of which all run in one worker; its id for one without others."""
    marker = item.get_closest_marker("xdist_group")
    return item.nodeid if marker is None else str(marker.args[0])


def pytest_collection_finish() -> None:
    """Leave out of every later collection of garbage what lives as long as this process."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Give a test that is run again fixtures of its own, as a test that is run alone has them.

    A broker that its module shares still holds the topics and groups of the run that failed.
    """
    is_first = getattr(item, "execution_count", 1) == 1
    if time.time() > until():
        (pytest.skip if is_first else pytest.fail)(NO_TIME)
    if is_first or not isinstance(item, pytest.Function):
        return
    restart_timer(item)
    for definitions in item._fixtureinfo.name2fixturedefs.values():
        for each in definitions:
            if each.scope != "session":
                each.finish(item._request)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    restart_timer(item)


def restart_timer(item: pytest.Item) -> None:
    """Start the timer of a test again.

    pytest-timeout has one for all runs of a test and stops it at the first failure: neither a
    fixture that hangs after a failure nor a second run would ever be ended.
    """
    if TIMER in item.stash:
        item.config.hook.pytest_timeout_set_timer(item=item, settings=item.stash[TIMER])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many tests had no time, and why a test failed that was run again: the second run
    often says something else."""
    skipped = terminalreporter.stats.get("skipped", [])
    if late := sum(NO_TIME in report.longreprtext for report in skipped):
        terminalreporter.section(f"{late} tests did not run: {NO_TIME}", "!")
    for report in terminalreporter.stats.get("rerun", []):
        terminalreporter.section(f"first run of {report.nodeid}", "_")
        terminalreporter.line(report.longreprtext)
