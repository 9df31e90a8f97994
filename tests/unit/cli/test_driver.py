"""The driver of a job as a child process: restart, stop, and jobs that cannot run."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from barnabas.cli.processes import driver
from barnabas.cli.processes.driver import Driver
from barnabas.pipeline.monitor.events import read_event
from barnabas.pipeline.monitor.progress import RUNNING, Monitor
from tests.support.waiting import eventually

EVENT = '{"batchId": 4, "timestamp": "2026-01-01T00:00:00.000Z", "durationMs": {}, "sources": []}'
MakeDriver = Callable[[str], Driver]


def progress_line() -> str:
    monitor = Monitor("job", "sink", 0.0)
    monitor.state = RUNNING
    monitor.add(read_event(EVENT, ", ".join))
    return monitor.progress(1.0).to_json().decode()


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeDriver:
    """Return a function that makes a driver whose process runs a shell script."""
    monkeypatch.setattr(driver, "RESTART_SECONDS", 0.0)
    (tmp_path / "progress").write_text(progress_line() + "\n")

    def make(script: str) -> Driver:
        path = tmp_path / "python"
        path.write_text(f"#!/bin/sh\ncd {tmp_path}\n{script}\n")
        path.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(path))
        told: list[str] = []
        made = Driver(Path("job.yaml"), "here:1", tmp_path / "log", told.append)
        made.told = told  # type: ignore[attr-defined]
        return made

    return make


async def end(running: "asyncio.Task[None]", made: Driver) -> None:
    await made.stop()
    await running


def test_killed_driver_is_started_again_with_its_whole_group(make: MakeDriver) -> None:
    made = make("cat progress; sleep 1000 & echo $! >> children; wait")

    async def run() -> None:
        running = asyncio.create_task(made.run())
        await eventually(lambda: made.runs)
        first = made.kill()
        assert not made.runs
        await eventually(lambda: made.runs and made.pid != first)
        await end(running, made)

    asyncio.run(run())
    assert made.kills == 1
    assert made.progress is not None
    assert made.pid is None
    told = made.told  # type: ignore[attr-defined]
    assert told == [
        "driver runs",
        "driver has done batch 4",
        "driver ended (SIGKILL); restart in 0 s",
        "driver runs",
        "driver has done batch 4",
    ]


def test_children_of_a_killed_driver_end_with_it(make: MakeDriver, tmp_path: Path) -> None:
    made = make("sleep 1000 & echo $! > child.new; mv child.new child; cat progress; wait")

    async def run() -> None:
        running = asyncio.create_task(made.run())
        await eventually(lambda: made.runs)
        child = int((tmp_path / "child").read_text())
        made.kill()
        await eventually(lambda: _has_ended(child))
        await end(running, made)

    asyncio.run(run())


def _has_ended(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    except OSError:
        return True
    return state == "Z"


def test_job_that_fails_at_its_first_start_is_given_up_with_its_error(make: MakeDriver) -> None:
    made = make("echo warning >&2; echo 'barnabas: job.yaml:3:1: no such key' >&2; exit 1")
    with pytest.raises(click.ClickException) as failure:
        asyncio.run(made.run())
    assert failure.value.message == "job.yaml:3:1: no such key"


def test_job_that_has_run_may_fail_twice_in_a_row(make: MakeDriver) -> None:
    made = make(
        "echo >> starts; [ $(wc -l < starts) = 1 ] && exec cat progress\necho broken >&2; exit 1"
    )
    with pytest.raises(click.ClickException, match="broken"):
        asyncio.run(made.run())
    assert made._log.parent.joinpath("starts").read_text().count("\n") == 1 + driver.MOST_FAILURES


def test_process_ends_when_its_parent_is_gone() -> None:
    """The child gets the end of its standard input as the only sign."""
    code = (
        "import signal, sys, threading\n"
        "from barnabas.cli.processes.driver import _stop_with_parent\n"
        "threading.Thread(target=_stop_with_parent, daemon=True).start()\n"
        "print('ready', flush=True)\n"
        "signal.pause()\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == b"ready\n"
    process.stdin.close()
    assert process.wait(30) == -15
    process.stdout.close()
