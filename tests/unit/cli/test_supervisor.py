"""The supervisor of several broker processes: restart, stop and messages."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from barnabas.cli.processes import broker_process, supervisor
from barnabas.cli.processes.broker_process import Child, StartCommand
from barnabas.cli.processes.supervisor import Supervisor
from barnabas.cli.settings import LogOptions
from tests.support.waiting import eventually

PROGRAM = """
read orders
case "$orders" in *starts.for.ever*) ;; *) echo '{"id": 0, "is": "here"}';; esac
exec cat
"""
"""A shell script that behaves like a broker process towards its parent."""


@pytest.fixture
def spawned(monkeypatch: pytest.MonkeyPatch) -> Iterator[list["subprocess.Popen[bytes]"]]:
    """Return the stand-in processes of the brokers, in the order of their start."""
    processes: list[subprocess.Popen[bytes]] = []

    def spawn() -> "subprocess.Popen[bytes]":
        process = subprocess.Popen(
            ["/bin/sh", "-c", PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        processes.append(process)
        return process

    monkeypatch.setattr(broker_process, "_spawn", spawn)
    monkeypatch.setattr(supervisor, "FIRST_BACKOFF", 0.0)
    yield processes
    for process in processes:
        process.kill()
        process.wait()
        assert process.stdin is not None
        process.stdin.close()


def child(broker_id: int, **properties: str) -> Child:
    named = {name.replace("_", "."): value for name, value in properties.items()}
    return Child(broker_id, StartCommand(named, strict=True, log=LogOptions("warn"), cluster_id=""))


def test_supervisor_handles_more_brokers_than_loop_threads(
    spawned: list["subprocess.Popen[bytes]"], capsys: pytest.CaptureFixture[str]
) -> None:
    count = min(32, (os.cpu_count() or 1) + 4) + 1

    async def run() -> None:
        several = Supervisor([child(number) for number in range(count)])
        several.handle_signals()
        await several.start()
        running = asyncio.create_task(several.run(asyncio.Event()))
        try:
            spawned[count - 1].kill()
            await eventually(lambda: "serves here again" in capsys.readouterr().err)
            signal.raise_signal(signal.SIGINT)
            async with asyncio.timeout(broker_process.STOP_SECONDS / 2):
                await running
        finally:
            # A wait for a live process would keep the loop from closing.
            for process in spawned:
                process.kill()

    asyncio.run(run())
    assert len(spawned) == count + 1
    assert all(process.poll() is not None for process in spawned)


def test_no_greeting_if_stopped_before_brokers_serve(
    spawned: list["subprocess.Popen[bytes]"], capsys: pytest.CaptureFixture[str]
) -> None:
    async def run() -> None:
        children = [child(1), child(2, starts_for_ever="")]
        running = asyncio.create_task(supervisor._run(children, None))
        await eventually(lambda: children[0].address)
        signal.raise_signal(signal.SIGINT)
        await running

    asyncio.run(run())
    assert all(process.poll() is not None for process in spawned)
    assert capsys.readouterr().out == ""
