"""A console of a large cluster: its first pages, its memory, and what other clients feel of it."""

import json
import subprocess
import sys
import time
import urllib.request
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from prometheus_client.parser import text_string_to_metric_families

from barnabas.client.cluster import Cluster
from barnabas.client.groups.offsets import commit_offsets
from barnabas.protocol.topic_partition import TopicPartition
from benchmarks import raw
from benchmarks.limits import Felt, alternating, timed_broker
from benchmarks.limits_loads import TABS, load
from benchmarks.measures import Cost, Faulty, Figures, peak_bytes
from benchmarks.systems import administer, create_topics
from tests.support.brokers.process import BrokerProcess
from tests.support.neighbour import TOPIC as NEIGHBOUR
from tests.support.ports import free_port

PER_TOPIC: Final = 20
ORDINARY: Final = 200
"""The partitions of an ordinary cluster, in which other clients must not feel the tabs either."""
FIRST_S, MEMORY_MB, RATIO = 1.0, 150.0, 1.1
"""The bounds: seconds until the first page, memory of the console, and the ratio of p99s."""
MEMORY: Final = "largest memory of the console, MB"
ROUNDS, WINDOW_S = 7, 10.0
_WINDOW: Final = 16


class ConsoleProcess(NamedTuple):
    """The process of a console, and its port."""

    pid: int
    port: int

    def seconds_of(self, path: str) -> float:
        """Ask for a page as a browser does, and return the time that it takes."""
        began = time.perf_counter()
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=60) as answer:
            answer.read()
        return time.perf_counter() - began


@contextmanager
def running(servers: str) -> Iterator[ConsoleProcess]:
    """Run a console that nothing was asked of yet."""
    command = ["-m", "barnabas", "console", "-b", servers, "--port", "0", "--json"]
    with subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            url = json.loads(process.stdout.readline())["url"]
            yield ConsoleProcess(process.pid, urlsplit(url).port or 0)
        finally:
            process.terminate()


def console(options: Namespace, directory: Path) -> Iterator[Figures]:
    """Show many partitions, and half as many groups, to ten tabs; and those of a small cluster."""
    metrics = f"127.0.0.1:{free_port()}"
    with timed_broker(directory / "data", metrics_listener=metrics) as broker:
        fill(broker, options.partitions)
        first = {}
        for path in TABS:
            with running(broker.bootstrap_servers) as cold:
                first[f"seconds until the first page, {path}"] = cold.seconds_of(path)
        yield first
        with running(broker.bootstrap_servers) as warm:
            tabs = load("tabs", warm.port, len(TABS))
            with tabs, Cost(warm.pid) as used, Cost(broker.pid) as caused:
                before = requests_for_metadata(metrics)
                time.sleep(2 * WINDOW_S)
                asked = requests_for_metadata(metrics) - before
            many = felt(broker, warm)
            figures = {
                "Metadata requests a second": asked / used.seconds,
                "CPU of the console, share of a core": used.cpu / used.seconds,
                "CPU of the broker, share of a core": caused.cpu / caused.seconds,
                MEMORY: peak_bytes(warm.pid) / 1e6,
                **rows(many, options.partitions),
            }
        yield figures
    with timed_broker(directory / "small", metrics_listener=metrics) as broker:
        fill(broker, ORDINARY)
        with running(broker.bootstrap_servers) as warm:
            few = felt(broker, warm)
    yield rows(few, ORDINARY)
    require(max(first.values()) <= FIRST_S, "a first page took too long")
    # One request may have begun just before.
    require(asked <= used.seconds + 1, "the console asks for metadata too often")
    require(figures[MEMORY] <= MEMORY_MB, "the console takes too much memory")
    for each in (many, few):
        require(each.ratio <= max(RATIO, each.noise), "other clients feel the tabs")


def felt(broker: BrokerProcess, shown: ConsoleProcess) -> Felt:
    """Return what a client of the broker feels of ten tabs."""
    tabs = partial(load, "tabs", shown.port, len(TABS))
    return alternating(broker, tabs, ROUNDS, WINDOW_S)


def rows(found: Felt, partitions: int) -> Figures:
    """Name what a client felt in a cluster of so many partitions."""
    here = f", {partitions:,} partitions"
    return {
        f"Produce of one record without tabs, p99, ms{here}": found.calm_p99,
        f"Produce of one record with tabs, p99, ms{here}": found.disturbed_p99,
        f"with tabs over without{here}": found.ratio,
        f"the same of two windows without{here}": found.noise,
        f"longest CPU time of the broker's loop without tabs, ms{here}": found.calm.longest_work,
        f"longest CPU time of the broker's loop with tabs, ms{here}": found.disturbed.longest_work,
    }


def require(kept: bool, fault: str) -> None:
    """Raise Faulty unless a bound is kept."""
    if not kept:
        raise Faulty(fault)


def fill(broker: BrokerProcess, partitions: int) -> None:
    """Create topics, and a group for every second partition, which reads one topic."""
    topics = [f"many-{number}" for number in range(partitions // PER_TOPIC)]
    create_topics(broker.bootstrap_servers, {NEIGHBOUR: 1} | dict.fromkeys(topics, PER_TOPIC))
    with raw.connect(broker.port) as client:
        client.stream([raw.produce_request("many-0", records=10, record_bytes=100)] * 100, _WINDOW)

    async def commit(cluster: Cluster) -> None:
        for number in range(partitions // 2):
            topic = topics[number % len(topics)]
            offsets = {TopicPartition(topic, index): 0 for index in range(PER_TOPIC)}
            await commit_offsets(cluster, f"group-{number}", offsets)

    administer(broker.bootstrap_servers, commit)


def requests_for_metadata(address: str) -> int:
    """Return the number of requests for metadata that a broker has answered."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
        families = text_string_to_metric_families(answer.read().decode())
        samples = [each for family in families for each in family.samples]
    name = "kafka_network_requestmetrics_requests_total"
    return sum(
        int(each.value)
        for each in samples
        if each.name == name and each.labels["request"] == "Metadata"
    )
