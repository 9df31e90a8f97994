"""The interpreter of a process that runs a broker."""

import subprocess
import sys

import pytest

from barnabas.cli.processes.broker import SWITCH_S

PROGRAM = """
import sys
from barnabas.cli.processes import broker
from barnabas.cli.settings import LogOptions

async def served(*_):
    print(sys.getswitchinterval())

broker._serve = served
broker.run_broker(None, log=LogOptions("warn"), cluster_id="", on_started=print)
"""


def test_busy_thread_keeps_the_interpreter_from_the_event_loop_for_a_short_time() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60
    )
    assert float(done.stdout) == pytest.approx(SWITCH_S, rel=0.01)
    assert SWITCH_S < 0.001
