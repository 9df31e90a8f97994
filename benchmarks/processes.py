"""One broker compared with several on one host: `python -m benchmarks.processes [ROUNDS]`.

One client for each broker sends small requests to its own partition: first all to one process, then
each to its own process, in turns, so that both have the same machine.
"""

import multiprocessing
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count, repeat
from pathlib import Path
from typing import NamedTuple

from barnabas.protocol.messages import metadata
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from benchmarks import raw
from benchmarks.systems import cpu_seconds

BROKERS = 2
REQUESTS = 60_000
"""Requests of each client, with ten records of 100 bytes."""
WINDOW = 16
METADATA_VERSION = 9
ROUNDS = 5


class Figures(NamedTuple):
    """The results of one run."""

    requests_per_s: float
    broker_us_per_request: float
    broker_cores: float


@contextmanager
def serving(processes: int, directory: Path) -> Iterator[tuple[list[int], int]]:
    """Start the brokers; yield their ports, and the id of their process or supervisor."""
    command = [
        *(sys.executable, "-m", "barnabas", "serve", "--log-level", "error"),
        *("--listen", "127.0.0.1:0", "--data", str(directory)),
        *(("--processes", str(processes)) if processes > 1 else ()),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        greeting = parent.stdout.readline().decode()
        try:
            yield [int(port) for port in re.findall(r"127\.0\.0\.1:(\d+)", greeting)], parent.pid
        finally:
            parent.terminate()


def load(port: int, topic: str) -> None:
    """Send the requests of one client."""
    request = raw.produce_request(topic, records=10, record_bytes=100)
    with raw.connect(port) as client:
        client.stream(repeat(request, REQUESTS), WINDOW)


def place_loads(ports: list[int]) -> list[tuple[int, str]]:
    """Return ports and topics for the clients, with the same number on each broker."""
    led: dict[int, list[str]] = {port: [] for port in ports}
    each = BROKERS // len(ports)
    with raw.connect(ports[0]) as client:
        for number in count():
            topic = f"load-{number}"
            raw.create_topic(client, topic)
            led[leader_port(client, topic)].append(topic)
            if all(len(topics) >= each for topics in led.values()):
                break
    return [(port, topic) for port, topics in led.items() for topic in topics[:each]]


def leader_port(client: raw.Client, topic: str) -> int:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    found = client.call(metadata.API, METADATA_VERSION, request)
    leader = found.topics[0].partitions[0].leader_id
    return next(node.port for node in found.brokers if node.node_id == leader)


def run(processes: int) -> Figures:
    with (
        tempfile.TemporaryDirectory() as directory,
        serving(processes, Path(directory)) as (ports, pid),
    ):
        loads = [multiprocessing.Process(target=load, args=place) for place in place_loads(ports)]
        cpu, began = cpu_seconds(pid), time.monotonic()
        for each in loads:
            each.start()
        for each in loads:
            each.join()
        seconds, used = time.monotonic() - began, cpu_seconds(pid) - cpu
        total = len(loads) * REQUESTS
        return Figures(total / seconds, used / total * 1e6, used / seconds)


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    found: dict[int, list[Figures]] = {1: [], BROKERS: []}
    for _ in range(rounds):
        for processes, figures in found.items():
            figures.append(run(processes))
    for processes, figures in found.items():
        middle = Figures(*(statistics.median(column) for column in zip(*figures, strict=True)))
        print(
            f"{processes} process(es): {middle.requests_per_s:8.0f} requests/s, "
            f"{middle.broker_us_per_request:5.1f} us of broker CPU each, "
            f"{middle.broker_cores:4.2f} cores"
        )


if __name__ == "__main__":
    main()
