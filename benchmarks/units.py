"""The cost of many partitions, connections and transactional ids."""

import socket
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import repeat
from pathlib import Path

from benchmarks import raw
from benchmarks.measures import Cost, Figures, descriptors, resident_bytes
from benchmarks.systems import create_topics
from tests.support.brokers.process import BrokerProcess

LIMIT = 20_000
PER_TOPIC = 500
SETTLE_S, REST_S = 30.0, 30.0
REQUESTS, WINDOW = 10_000, 16


def measure(options: Namespace, directory: Path) -> Iterator[Figures]:
    """Give one broker with a limit of open files more and more of everything."""
    under = ("sh", "-c", f'ulimit -n {LIMIT} && exec "$@"', "sh")
    with (
        BrokerProcess(directory / "data", defaults={}, prefix=under) as broker,
        ExitStack() as connections,
    ):
        add_ids(broker, 0, 1)
        yield row(broker, "empty")
        for start, end in halves(options.partitions // PER_TOPIC):
            topics = (f"many-{number}" for number in range(start, end))
            create_topics(broker.bootstrap_servers, dict.fromkeys(topics, PER_TOPIC))
            yield row(broker, f"{end * PER_TOPIC} partitions")
        write_to_all(broker, options.partitions // PER_TOPIC)
        yield row(broker, "all of them written to")
        for start, end in halves(options.connections):
            for _ in range(start, end):
                address = ("127.0.0.1", broker.port)
                connections.enter_context(socket.create_connection(address))
            yield row(broker, f"and {end} connections")
        for start, end in halves(options.ids):
            add_ids(broker, start, end)
            yield row(broker, f"and {end} transactional ids")
        connections.close()
        for name, stop in {"a clean stop": broker.terminate, "kill -9": broker.kill}.items():
            stop()
            with Cost() as cost:
                broker.start(SETTLE_S * 10)
            yield {
                f"start after {name}: s": cost.seconds,
                f"start after {name}: descriptors": descriptors(broker.pid),
            }


def halves(count: int) -> list[tuple[int, int]]:
    """Return the first quarter and the rest, each from and up to a number."""
    return [(0, count // 4), (count // 4, count)]


def row(broker: BrokerProcess, stage: str) -> Figures:
    """Measure the broker as it is."""
    used = cpu_us_of_produce(broker)
    time.sleep(SETTLE_S)
    with Cost(broker.pid) as cost:
        time.sleep(REST_S)
    return {
        f"{stage}: descriptors": descriptors(broker.pid),
        f"{stage}: MB": resident_bytes(broker.pid) / 1e6,
        f"{stage}: at rest, % of a core": cost.cpu / REST_S * 100,
        f"{stage}: CPU us of a Produce": used,
    }


def cpu_us_of_produce(broker: BrokerProcess) -> float:
    """Return the CPU time that one request of one record takes."""
    request = raw.produce_request("load", records=1, record_bytes=100)
    with raw.connect(broker.port) as client:
        raw.create_topic(client, "load")
        raw.accepted(client, request)
        client.stream(repeat(request, REQUESTS // 4), WINDOW)
        with Cost(broker.pid) as cost:
            client.stream(repeat(request, REQUESTS), WINDOW)
        return cost.of(REQUESTS)["cpu_us"]


def write_to_all(broker: BrokerProcess, topics: int) -> None:
    """Append one record to each partition."""
    records = (
        raw.keyed_request(f"many-{topic}", [0], b"v" * 100, partition=index)
        for topic in range(topics)
        for index in range(PER_TOPIC)
    )
    with raw.connect(broker.port) as client:
        client.stream(records, WINDOW)


def add_ids(broker: BrokerProcess, start: int, end: int) -> None:
    """Let transactional ids be given producer ids."""
    with raw.connect(broker.port) as client:
        # The first one creates the topic of the coordinators.
        raw.initialised(client, "unit-0")
        client.stream(
            (raw.init_request(f"unit-{number}") for number in range(start, end)), window=64
        )
