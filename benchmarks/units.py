"""The cost of many partitions, connections and transactional ids: `python -m benchmarks.units`.

One broker with a limit of open files gets them in stages. The program prints for each stage the
descriptors, the resident memory, the CPU at rest, and the CPU of one Produce request; then the
seconds of a clean restart and of a start after a kill -9.
"""

import argparse
import asyncio
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import repeat
from pathlib import Path

from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from benchmarks import raw
from benchmarks.measures import Cost, resident_bytes
from benchmarks.whole_clients import init_request
from tests.support.brokers.process import BrokerProcess

LIMIT = 20_000
PER_TOPIC = 500
SETTLE_S, REST_S = 30.0, 30.0
REQUESTS, WINDOW = 10_000, 16
HEADER = f"{'':30}{'descriptors':>12}{'MB':>8}{'at rest, %':>12}{'us a Produce':>14}"


class Stages:
    """A broker that gets more and more of everything."""

    def __init__(self, directory: Path) -> None:
        under = ("sh", "-c", f'ulimit -n {LIMIT} && exec "$@"', "sh")
        self.broker = BrokerProcess(directory / "data", defaults={}, prefix=under)
        self.partitions = self.ids = 0
        self.connections: list[socket.socket] = []

    def partitions_to(self, count: int) -> None:
        asyncio.run(self._create(count))

    async def _create(self, count: int) -> None:
        async with Cluster(self.broker.bootstrap_servers, timeout=300) as cluster:
            while self.partitions < count:
                name = f"many-{self.partitions // PER_TOPIC}"
                await Admin(cluster).create_topic(name, partitions=PER_TOPIC)
                self.partitions += PER_TOPIC

    def write_to_all(self) -> None:
        """Append one record to each partition."""
        places = ((number // PER_TOPIC, number % PER_TOPIC) for number in range(self.partitions))
        records = (
            raw.keyed_request(f"many-{topic}", [0], b"v" * 100, partition=index)
            for topic, index in places
        )
        with raw.connect(self.broker.port) as client:
            client.stream(records, WINDOW)

    def connections_to(self, count: int) -> None:
        while len(self.connections) < count:
            address = ("127.0.0.1", self.broker.port)
            self.connections.append(socket.create_connection(address))

    def ids_to(self, count: int) -> None:
        with raw.connect(self.broker.port) as client:
            # The first one creates the topic of the coordinators.
            raw.initialised(client, "unit-0")
            ids = (f"unit-{number}" for number in range(self.ids, count))
            client.stream(map(init_request, ids), window=64)
        self.ids = count

    def row(self, name: str) -> str:
        """Measure the broker as it is."""
        pid = self.broker.pid
        used = self._produce()
        time.sleep(SETTLE_S)
        with Cost(pid) as cost:
            time.sleep(REST_S)
        rest, megabytes = cost.cpu / REST_S * 100, resident_bytes(pid) / 1e6
        return f"{name:30}{self._descriptors():12}{megabytes:8.1f}{rest:12.2f}{used:14.1f}"

    def _produce(self) -> float:
        """Return the microseconds of CPU that one request of one record costs."""
        request = raw.produce_request("load", records=1, record_bytes=100)
        with raw.connect(self.broker.port) as client:
            raw.create_topic(client, "load")
            raw.acknowledged(client, request)
            client.stream(repeat(request, REQUESTS // 4), WINDOW)
            with Cost(self.broker.pid) as cost:
                client.stream(repeat(request, REQUESTS), WINDOW)
            return cost.of(REQUESTS)["cpu_us"]

    def _descriptors(self) -> int:
        return len(list(Path(f"/proc/{self.broker.pid}/fd").iterdir()))

    def restarted(self, name: str, stop: Callable[[], object]) -> str:
        """Stop the broker, and measure its next start."""
        for each in self.connections:
            each.close()
        self.connections.clear()
        stop()
        with Cost() as cost:
            self.broker.launch()
            raw.connect(self.broker.port).close()
        return f"{name:30}{self._descriptors():12}{cost.seconds:8.1f} s"


def measure(stages: Stages, partitions: int, connections: int, ids: int) -> Iterator[str]:
    """Yield a line for each stage."""
    yield HEADER
    stages.ids_to(1)
    yield stages.row("empty")
    for part in (partitions // 4, partitions):
        stages.partitions_to(part)
        yield stages.row(f"{part} partitions")
    stages.write_to_all()
    yield stages.row("all of them written to")
    for part in (connections // 4, connections):
        stages.connections_to(part)
        yield stages.row(f"and {part} connections")
    for part in (ids // 4, ids):
        stages.ids_to(part)
        yield stages.row(f"and {part} transactional ids")
    yield f"{'':30}{'descriptors':>12}{'start':>10}"
    yield stages.restarted("clean restart", stages.broker.terminate)
    yield stages.restarted("start after kill -9", stages.broker.kill)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("partitions", 10_000), ("connections", 5_000), ("ids", 100_000)):
        parser.add_argument(f"--{name}", type=int, default=default)
    sizes = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="units-") as directory:
        stages = Stages(Path(directory))
        stages.broker.launch()
        raw.connect(stages.broker.port).close()
        try:
            for line in measure(stages, **vars(sizes)):
                print(line, flush=True)
        finally:
            stages.broker.terminate()


if __name__ == "__main__":
    main()
