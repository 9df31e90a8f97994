"""The load that one broker carries, and its effect on other clients: docs/LIMITS.md.

A client that sends one record at a time, 500 in a second, measures the latency of other clients,
and the broker how long its event loop was held. A round has three windows: calm, disturbed, calm.
The ratio is the disturbed one over the mean of its neighbours. The two calm windows differ by
noise: a ratio below that shows nothing. Memory is the resident memory of the broker, less its
memory when idle.
"""

import os
import signal
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.group_admin import GroupAdmin
from barnabas.protocol.config_resources import ConfigOperation, ConfigResourceType
from barnabas.protocol.messages import offset_fetch
from barnabas.protocol.topic_partition import TopicPartition
from benchmarks import raw
from benchmarks.limits_loads import KEYED, VALUE, load
from benchmarks.measures import Cost, Faulty, children
from benchmarks.systems import administer, create_topics
from tests.support.brokers.loop_hold import Held, held_since_last
from tests.support.brokers.memory import resident_mb
from tests.support.brokers.process import BrokerProcess
from tests.support.neighbour import TOPIC as NEIGHBOUR
from tests.support.neighbour import Neighbour

MAX_RATIO = 1.2
KEYS = 20_000
"""The keys in each compacted partition."""
SETTLE_SHARE = 0.2
"""Seconds to wait before a window, so that the cost of the change itself is not measured."""


# -- windows ---------------------------------------------------------------------------------------


class Window(NamedTuple):
    """The measurements of one window, in ms."""

    p99: float
    held: Held


class Felt(NamedTuple):
    """The effect of a disturbance on other clients, in ms; medians over the rounds."""

    calm_p99: float
    disturbed_p99: float
    ratio: float
    noise: float
    """The ratio of two calm windows of a round: the greater p99 over the smaller."""
    calm: Held
    disturbed: Held
    """The longest of all windows, not their median."""

    @property
    def verdict(self) -> str:
        """Whether other clients were disturbed, as far as the noise allows."""
        if self.ratio <= MAX_RATIO:
            return "yes"
        return "**no**" if self.ratio > self.noise else "within the noise"

    @property
    def p99s(self) -> list[str]:
        """The cells of the page that compare other clients' times."""
        return [*(f"{cell:.2f}" for cell in self[:4]), self.verdict]

    @property
    def held(self) -> list[str]:
        """The cells of the page that compare the event loop's times."""
        return [f"{c:.1f} / {d:.1f}" for c, d in zip(self.calm, self.disturbed, strict=True)]

    def __str__(self) -> str:
        p99s = f"p99 {self.calm_p99:.2f} calm, {self.disturbed_p99:.2f} ms disturbed"
        return f"{p99s}, ratio {self.ratio:.2f}, noise {self.noise:.2f}: {self.verdict}"


Found = dict[str, Felt | float]


def window(broker: BrokerProcess, other: Neighbour, seconds: float) -> Window:
    """Measure another client, and the event loop, for that many seconds. Raises Faulty."""
    held_since_last(broker.pid, broker.directory)
    p99 = other.p99_ms_of_next(seconds)
    if other.errors:
        raise Faulty(f"another client was refused: {other.errors[0]}")
    return Window(p99, held_since_last(broker.pid, broker.directory))


def alternating(
    broker: BrokerProcess,
    disturbed: Callable[[], AbstractContextManager[Any]],
    rounds: int,
    window_s: float,
    topic: str = NEIGHBOUR,
) -> Felt:
    """Run rounds of a window without, with and without a disturbance."""
    windows = []
    with Neighbour(broker.port, topic=topic) as other:
        for number in range(rounds * 3):
            with disturbed() if number % 3 == 1 else nullcontext():
                time.sleep(window_s * SETTLE_SHARE)
                windows.append(window(broker, other, window_s))
    return felt(windows)


def felt(windows: Sequence[Window]) -> Felt:
    """Return the effect, from windows in rounds of three."""
    before, during, after = windows[0::3], windows[1::3], windows[2::3]
    triples = [(b.p99, d.p99, a.p99) for b, d, a in zip(before, during, after, strict=True)]
    calm = [*before, *after]
    return Felt(
        median(window.p99 for window in calm),
        median(window.p99 for window in during),
        median(2 * d / (b + a) for b, d, a in triples),
        median(max(b, a) / min(b, a) for b, _, a in triples),
        _held(calm),
        _held(during),
    )


def _held(windows: Sequence[Window]) -> Held:
    return Held(
        median(window.held.p99 for window in windows),
        max(window.held.longest for window in windows),
        max(window.held.longest_work for window in windows),
    )


# -- brokers ---------------------------------------------------------------------------------------


def timed_broker(directory: Path, **keys: str) -> BrokerProcess:
    """Return a broker in its own process that measures how long its loop was blocked."""
    return BrokerProcess(directory, program="tests.support.brokers.timed", **keys)


def _loaded(client: raw.Client) -> bool:
    request = {"group_id": "group-0", "topics": None}
    return not client.call(offset_fetch.API, 5, request).error_code


def _partitions_in(broker: BrokerProcess, directory: str, topic: str) -> list[int]:
    """Return the partitions of a topic in one of the log directories."""
    found = administer(
        broker.bootstrap_servers, lambda cluster: Admin(cluster).describe_log_dirs(0)
    )
    return [
        partition.partition_index
        for each in found
        for row in each.topics
        for partition in row.partitions
        if row.name == topic and Path(each.log_dir).name == directory
    ]


# -- cases -----------------------------------------------------------------------------------------


def crowds(directory: Path, scale: Namespace) -> Found:
    """Measure 1,000 connections, 2,000 partitions, 100 members, a slow consumer: alone and
    together."""
    found: Found = {}
    with timed_broker(directory) as broker, ExitStack() as stack:
        create_topics(broker.bootstrap_servers, {NEIGHBOUR: 1})
        with Neighbour(broker.port) as other:
            window(broker, other, scale.window_s)
        found["idle memory, MB"] = idle = resident_mb(broker.pid)
        create_topics(broker.bootstrap_servers, {"large": 1, "many": scale.partitions})
        with raw.connect(broker.port) as client:
            filling = raw.produce_request("large", records=100, record_bytes=10_000)
            raw.accepted(client, filling)
            client.stream([filling] * scale.large_mb, 5)
        more = resident_mb(broker.pid) - idle
        found[f"memory with {scale.partitions} partitions, MB over idle"] = more
        slow = f"slow consumers that ask for 50 MB: {scale.slow_consumers}"
        loads = {
            f"{scale.connections} connections": ("crowd", scale.connections),
            f"a group of {scale.members} members": ("group", scale.members),
            slow: ("slow", scale.slow_consumers),
        }
        for title, (name, count) in loads.items():
            applied = partial(load, name, broker.port, count)
            found[title] = alternating(broker, applied, scale.rounds, scale.window_s)
        for name, count in loads.values():
            stack.enter_context(load(name, broker.port, count))
        with Neighbour(broker.port) as other:
            window(broker, other, scale.window_s)
        found["memory with all of it, MB over idle"] = resident_mb(broker.pid) - idle
    return found


def compact(servers: str, topic: str) -> None:
    """Let a topic be compacted from now on."""
    change = [("cleanup.policy", ConfigOperation.SET, "compact")]
    administer(
        servers,
        lambda cluster: Admin(cluster).alter_configs(ConfigResourceType.TOPIC, topic, change),
    )


def compaction(directory: Path, scale: Namespace) -> Found:
    """Compare a running cleaner that has a backlog with a stopped one."""
    keys = {
        "log_cleaner_backoff_ms": "50",
        # Only records that a checkpoint has marked as durable are compacted.
        "log_flush_offset_checkpoint_interval_ms": "500",
    }
    with timed_broker(directory, **keys) as broker, raw.connect(broker.port) as client:
        create_topics(broker.bootstrap_servers, {NEIGHBOUR: 1})
        segments = {"segment.bytes": str(1 << 20)}
        create_topics(broker.bootstrap_servers, {"keyed": KEYED}, segments)
        for partition in range(KEYED):
            batches = (
                [at % KEYS + n for n in range(1_000)] for at in range(0, scale.keyed_records, 1_000)
            )
            one = partial(raw.keyed_request, "keyed", value=VALUE, partition=partition)
            client.stream((one(keys) for keys in batches), 5)
        compact(broker.bootstrap_servers, "keyed")
        cleaner = raw.until(lambda: children(broker.pid))[0]
        os.kill(cleaner, signal.SIGSTOP)

        @contextmanager
        def cleaning() -> Iterator[None]:
            os.kill(cleaner, signal.SIGCONT)
            yield
            os.kill(cleaner, signal.SIGSTOP)

        with load("keys", broker.port, KEYED), Cost(cleaner) as cost:
            found = alternating(broker, cleaning, scale.rounds, scale.window_s)
        os.kill(cleaner, signal.SIGCONT)
    return {"compaction": found, "CPU seconds of the cleaner meanwhile": cost.cpu}


def slow_disk(directory: Path, scale: Namespace) -> Found:
    """Compare a slow fsync in one directory, with every record flushed, to the same without
    delay."""
    directory.mkdir()
    delay = directory / "delay"
    delay.write_text("0")

    @contextmanager
    def slowed(seconds: float) -> Iterator[None]:
        delay.write_text(str(seconds))
        yield
        delay.write_text("0")

    found: Found = {}
    keys = {"log_flush_interval_messages": "1"}
    with BrokerProcess(directory, program="tests.support.brokers.slow", **keys) as broker:
        topics = [f"{NEIGHBOUR}-{number}" for number in range(10)]
        create_topics(broker.bootstrap_servers, {"disks": 6} | dict.fromkeys(topics, 1))
        slow, *_ = _partitions_in(broker, "slow", "disks")
        topic = next(each for each in topics if _partitions_in(broker, "fast", each))
        with load("flushes", broker.port, slow):
            for seconds in (0.005, 0.5):
                title = f"fsync slowed by {seconds * 1000:g} ms on another directory"
                disturbed = partial(slowed, seconds)
                found[title] = alternating(broker, disturbed, scale.rounds, scale.window_s, topic)
    return found


def coordinator_load(directory: Path, scale: Namespace) -> Found:
    """Compare the first moments of a broker that loads many offsets to one that has none."""
    full = timed_broker(directory / "full", offsets_topic_num_partitions="1")
    empty = timed_broker(directory / "empty", offsets_topic_num_partitions="1")
    for broker, offsets in ((full, scale.offsets), (empty, 1)):
        with broker:
            create_topics(broker.bootstrap_servers, {NEIGHBOUR: 1, "many": 1_000})
            administer(broker.bootstrap_servers, partial(_commit, offsets))
    windows, loads = [], []
    for _ in range(scale.rounds):
        for broker in (empty, full, empty):
            with broker, raw.connect(broker.port) as client:
                began = time.perf_counter()
                with Neighbour(broker.port) as other:
                    windows.append(window(broker, other, scale.load_window_s))
                raw.until(partial(_loaded, client))
                if broker is full:
                    loads.append(time.perf_counter() - began)
    return {
        f"a coordinator loads {scale.offsets} offsets": felt(windows),
        "seconds until it answers, at most": max(loads),
    }


async def _commit(offsets: int, cluster: Cluster) -> None:
    """Commit so many offsets, 1,000 of each group."""
    for number in range(0, offsets, 1_000):
        partitions = [TopicPartition("many", each) for each in range(min(1_000, offsets))]
        await GroupAdmin(cluster).set_offsets(f"group-{number}", dict.fromkeys(partitions, 0))


CASES: Mapping[str, Callable[[Path, Namespace], Found]] = {
    "crowds": crowds,
    "compaction": compaction,
    "coordinator": coordinator_load,
    "disk": slow_disk,
}


def measure(options: Namespace, directory: Path) -> Iterator[Found]:
    """Measure the load that one broker carries."""
    for name, case in CASES.items():
        if options.only in ("", name):
            yield case(directory / name, options)
