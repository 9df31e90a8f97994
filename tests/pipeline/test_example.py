"""`barnabas pipeline example` as a reader runs it: kills by the page, and the verdict."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from barnabas.pipeline.example.orders import BROKEN_TOPIC, START, SUMS_TOPIC, Kind, Orders
from tests.support.command_line import environment

pytestmark = [pytest.mark.xdist_group("spark-example"), pytest.mark.timeout(600)]

SEED, RATE = 5, 50
PHASE_SECONDS = 180.0
"""Enough for a JVM's start on a busy machine."""


class Running:
    """A run of the example: its page, and its output."""

    def __init__(self, process: "subprocess.Popen[str]", marker: str, output: Path) -> None:
        self.process = process
        self._marker = marker
        self._output = output

    @property
    def text(self) -> str:
        return self._output.read_text()

    def found(self, pattern: str) -> str:
        """Wait for a text on standard output and return its group."""
        return str(self.until(lambda: re.search(pattern, self.text))[1])

    def until(self, see: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + PHASE_SECONDS
        while not (seen := see()):
            assert time.monotonic() < deadline, self.text
            assert self.process.poll() is None, self.text
            time.sleep(0.1)
        return seen

    def get(self, path: str) -> Any:
        page = self.found(r"the page is (\S+)")
        with urllib.request.urlopen(f"{page}/{path}", timeout=30) as answer:
            body = answer.read()
        return json.loads(body) if answer.headers["Content-Type"] == "application/json" else body

    def kill(self, name: str, **headers: str) -> int:
        """Press a button of the page and return the status."""
        page = self.found(r"the page is (\S+)")
        request = urllib.request.Request(f"{page}/kill/{name}", method="POST", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    def left(self) -> list[int]:
        """Return the processes that still run: they have inherited the marker."""
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                if self._marker.encode() in path.read_bytes():
                    found.append(int(path.parent.name))
            except OSError:
                # The process has ended meanwhile.
                continue
        return found


@contextmanager
def example(directory: Path, *options: str) -> Iterator[Running]:
    marker = f"EXAMPLE={uuid.uuid4()}"
    output = directory / "output"
    ports = ("--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
    with output.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "barnabas", "pipeline", "example", *ports, *options],
            cwd=directory,
            env=environment(**dict([marker.split("=")]), PYTHONUNBUFFERED="1"),
            stdout=file,
            stderr=subprocess.STDOUT,
            text=True,
        )
    running = Running(process, marker, output)
    try:
        yield running
    finally:
        process.kill()
        process.wait()
        deadline = time.monotonic() + 60
        while left := running.left():
            if time.monotonic() > deadline:
                for pid in left:
                    os.kill(pid, signal.SIGKILL)
                raise AssertionError(f"processes were left: {left}")
            time.sleep(0.1)


class Reader:
    """A read_committed consumer of another family, on all output."""

    def __init__(self, servers: str) -> None:
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "reader",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        topics = (SUMS_TOPIC, BROKEN_TOPIC)
        self._consumer.assign(
            [confluent_kafka.TopicPartition(each, n, 0) for each in topics for n in range(3)]
        )
        self.sums: list[dict[str, Any]] = []
        self.broken: list[bytes] = []

    def read(self) -> None:
        for message in self._consumer.consume(500, 0.2):
            if message.error():
                continue
            if message.topic() == SUMS_TOPIC:
                self.sums.append(json.loads(message.value()))
            else:
                self.broken.append(message.key())

    def close(self) -> None:
        self._consumer.close()


def test_kills_by_the_page_leave_every_sum_exact(tmp_path):
    with example(tmp_path, "--seed", str(SEED), "--rate", str(RATE)) as running:
        reader = Reader(running.found(r"three brokers serve (\S+)"))

        def seen() -> Any:
            reader.read()
            return running.get("state")

        running.until(lambda: seen()["sums"] and seen()["driver"]["ready"])
        assert running.kill("broker-2") == 403
        broker = seen()["brokers"][1]["pid"]
        assert running.kill("broker-2", **{"X-Barnabas": "1"}) == 200
        assert running.kill("broker-3", **{"X-Barnabas": "1"}) == 409
        running.until(lambda: (b := seen()["brokers"][1])["ready"] and b["pid"] != broker)
        driver, sums = seen()["driver"]["pid"], seen()["sums"]
        assert running.kill("driver", **{"X-Barnabas": "1"}) == 200
        running.until(lambda: (s := seen())["sums"] > sums and s["driver"]["pid"] != driver)
        state = seen()
        assert state["brokers"][1]["kills"] == state["driver"]["kills"] == 1
        assert b"<script>" in running.get("")
        assert b'barnabas_pipeline_state{pipeline="order-sums"' in running.get("metrics")

        running.process.send_signal(signal.SIGINT)
        while running.process.poll() is None:
            reader.read()
        reader.close()
        assert running.process.returncode == 0, running.text
        assert running.text.endswith("no fault found\n")
        assert running.left() == []
        (sent,) = re.findall(r"([\d,]+) orders sent; ", running.text)
    check_output(reader, int(sent.replace(",", "")))


def test_second_ctrl_c_ends_all_processes_without_a_verdict(tmp_path):
    with example(tmp_path) as running:
        running.until(lambda: running.get("state")["driver"]["pid"])
        running.process.send_signal(signal.SIGINT)
        running.found("orders sent; .*(the job writes)")
        running.process.send_signal(signal.SIGINT)
        assert running.process.wait(60) == 130, running.text
        assert "Traceback" not in running.text
        assert running.left() == []


def test_all_processes_end_if_the_example_is_killed(tmp_path):
    with example(tmp_path) as running:
        running.until(lambda: running.get("state")["driver"]["pid"])
        running.process.kill()
    # The end of the block waits until the others have ended.


def check_output(reader: Reader, sent: int) -> None:
    """Compare the output with the sums of the orders that were sent."""
    orders = Orders(SEED, RATE)
    # Late orders are in a minute of the day before, if they came with the first batch.
    rows = [row for row in reader.sums if datetime.fromisoformat(row["minute"]) >= START]
    found = {
        (datetime.fromisoformat(row["minute"]).astimezone(UTC), row["category"]): (
            row["orders"],
            row["cents"],
        )
        for row in rows
    }
    assert len(rows) == len(found)
    assert found == orders.sums(sent)
    assert len(reader.broken) == len(set(reader.broken)) == orders.count(sent)[Kind.BROKEN]
