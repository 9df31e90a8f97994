"""The parent of several brokers: what it hears of them, and how it stops."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from barnabas.cli import supervisor
from barnabas.cli.supervisor import Child, Orders, Supervisor
from tests.waiting import eventually

SERVES = """read orders; echo '{"serves": "here"}'; exec cat"""
"""A broker, as far as its parent sees one."""


@pytest.fixture
def spawned(monkeypatch: pytest.MonkeyPatch) -> Iterator[list["subprocess.Popen[bytes]"]]:
    """The processes that stand for brokers, in the order in which they were started."""
    processes: list[subprocess.Popen[bytes]] = []

    def spawn() -> "subprocess.Popen[bytes]":
        process = subprocess.Popen(
            ["/bin/sh", "-c", SERVES],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        processes.append(process)
        return process

    monkeypatch.setattr(supervisor, "_spawn", spawn)
    monkeypatch.setattr(supervisor, "FIRST_PAUSE", 0.0)
    yield processes
    for process in processes:
        process.kill()
        process.wait()
        assert process.stdin is not None
        process.stdin.close()


def test_more_brokers_than_the_loop_has_threads_are_watched_and_stopped(
    spawned: list["subprocess.Popen[bytes]"], capsys: pytest.CaptureFixture[str]
) -> None:
    count = min(32, (os.cpu_count() or 1) + 4) + 1
    orders = Orders({}, strict=True, log_level="warn", cluster_id="")

    async def run() -> None:
        several = Supervisor([Child(broker, orders) for broker in range(count)])
        await several.start()
        running = asyncio.create_task(several.run(asyncio.Event()))
        try:
            spawned[count - 1].kill()
            await eventually(lambda: "serves here again" in capsys.readouterr().err)
            signal.raise_signal(signal.SIGINT)
            async with asyncio.timeout(supervisor.STOP_SECONDS / 2):
                await running
        finally:
            # A wait that is left over would keep the loop from closing.
            for process in spawned:
                process.kill()

    asyncio.run(run())
    assert len(spawned) == count + 1
    assert all(process.poll() is not None for process in spawned)
