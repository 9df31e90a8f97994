"""How much a broker takes before others feel it: `python -m benchmarks.limits`.

A client that sends one record at a time, 500 in a second, measures what the others feel: its p99 in
windows with and without a disturbance, in turns, and the median of their ratios. Memory is the
kernel's accounting of the broker over what it held when idle. Writes `docs/LIMITS.md`.
"""

import argparse
import os
import platform
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from barnabas.protocol.messages import (
    create_topics,
    describe_log_dirs,
    find_coordinator,
    offset_commit,
    offset_fetch,
)
from barnabas.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from benchmarks import raw
from tests.integration.adversary.process import BrokerProcess
from tests.integration.adversary.resident import resident_mb

PAGE = Path(__file__).parents[1] / "docs" / "LIMITS.md"
NOTES = Path(__file__).with_name("limits_notes.md")
READY_WITHIN_S = 60.0
EVERY_S = 0.002
MAX_RATIO = 1.2
MAX_GROWTH_MB = 300


class Scale(NamedTuple):
    """How much of everything; the defaults are the full run."""

    connections: int = 1_000
    partitions: int = 2_000
    members: int = 100
    slow_consumers: int = 1
    large_mb: int = 50
    offsets: int = 100_000
    rounds: int = 5
    window_s: float = 1.0


class Felt(NamedTuple):
    """What the others felt of a disturbance; latencies in ms."""

    calm_p99: float
    disturbed_p99: float
    ratio: float


class Load:
    """A load of `limits_loads` in its own process."""

    def __init__(self, name: str, port: int, count: int) -> None:
        self._name = name
        command = [sys.executable, "-m", "benchmarks.limits_loads", name, str(port), str(count)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], READY_WITHIN_S)
        if not ready or not self._process.stdout.readline():
            self.end()
            raise RuntimeError(f"the load {name} did not come about")

    def __enter__(self) -> "Load":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def check(self) -> None:
        """Raises where the load has given up: nothing was measured then."""
        if self._process.poll() is not None:
            raise RuntimeError(f"the load {self._name} ended by itself")

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


class Probe:
    """Sends one record at a time to a topic of its own."""

    def __init__(self, port: int, topic: str = "probe") -> None:
        self._client = raw.connect(port)
        self._request = raw.produce_request(topic, records=1, record_bytes=100)
        raw.acknowledged(self._client, self._request)

    def p99_ms(self, seconds: float) -> float:
        """Of the requests of so many seconds, in milliseconds."""
        clock, taken = time.perf_counter, []
        due = clock()
        end = due + seconds
        while due < end:
            began = clock()
            self._client.exchange(self._request)
            taken.append(clock() - began)
            due = max(due + EVERY_S, clock())
            time.sleep(max(0.0, due - clock()))
        taken.sort()
        return taken[len(taken) * 99 // 100] * 1000


def alternating(
    probe: Probe, scale: Scale, disturbed: Callable[[], AbstractContextManager[Any]]
) -> Felt:
    """Windows without and with a disturbance, in turns; the order changes each round."""
    calm, felt = [], []
    for number in range(scale.rounds):
        for on in (False, True) if number % 2 else (True, False):
            with disturbed() if on else nullcontext():
                probe.p99_ms(scale.window_s / 5)
                (felt if on else calm).append(probe.p99_ms(scale.window_s))
    ratios = [d / c for d, c in zip(felt, calm, strict=True)]
    return Felt(median(calm), median(felt), median(ratios))


def create_topic(client: raw.Client, name: str, partitions: int = 1, **configs: str) -> None:
    """Creates a topic; configs with underscores for Kafka's dots."""
    rows = [
        CreatableTopicConfig(name=key.replace("_", "."), value=value)
        for key, value in configs.items()
    ]
    topic = CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=rows
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=60_000)
    answer = client.call(create_topics.API, 5, request)
    if answer.topics[0].error_code:
        raise RuntimeError(f"topic {name}: error {answer.topics[0].error_code}")


def crowds(directory: Path, scale: Scale) -> dict[str, Felt | float]:
    """1,000 connections, 2,000 partitions, 100 members, a slow consumer: one by one, and all."""
    found: dict[str, Felt | float] = {}
    with BrokerProcess(directory) as broker:
        with raw.connect(broker.port) as client:
            create_topic(client, "probe")
            probe = Probe(broker.port)
            probe.p99_ms(scale.window_s)
            idle = resident_mb(broker.pid)
            found["idle memory, MB"] = idle
            create_topic(client, "large")
            filling = raw.produce_request("large", records=100, record_bytes=10_000)
            client.stream([filling] * scale.large_mb, 5)
            create_topic(client, "many", scale.partitions)
        found[f"memory with {scale.partitions} partitions, MB over idle"] = (
            resident_mb(broker.pid) - idle
        )
        loads = {
            f"{scale.connections} connections": ("crowd", scale.connections),
            f"a group of {scale.members} members": ("group", scale.members),
            f"slow consumers that ask for 50 MB: {scale.slow_consumers}": (
                "slow",
                scale.slow_consumers,
            ),
        }
        for title, (name, count) in loads.items():
            found[title] = alternating(probe, scale, partial(Load, name, broker.port, count))
        held = [Load(name, broker.port, count) for name, count in loads.values()]
        probe.p99_ms(scale.window_s)
        for load in held:
            load.check()
        found["memory with all of it, MB over idle"] = resident_mb(broker.pid) - idle
        for load in held:
            load.end()
    return found


def compaction(directory: Path, scale: Scale) -> dict[str, Felt | float]:
    """The cleaner at work against the cleaner stopped, under the same writes."""
    keys = {
        "log_cleaner_backoff_ms": "50",
        "log_cleaner_min_cleanable_ratio": "0.01",
        # Only what a checkpoint knows to be durable is compacted.
        "log_flush_offset_checkpoint_interval_ms": "500",
    }
    with BrokerProcess(directory, **keys) as broker, raw.connect(broker.port) as client:
        create_topic(client, "probe")
        create_topic(client, "keyed", cleanup_policy="compact", segment_bytes="1048576")
        with Load("keys", broker.port, 2_000) as load:
            cleaner = _child_of(broker.pid)
            os.kill(cleaner, signal.SIGSTOP)

            @contextmanager
            def cleaning() -> Iterator[None]:
                os.kill(cleaner, signal.SIGCONT)
                yield
                os.kill(cleaner, signal.SIGSTOP)

            before = _cpu_ticks(cleaner)
            found = alternating(Probe(broker.port), scale, cleaning)
            load.check()
            spent = (_cpu_ticks(cleaner) - before) / 100
            os.kill(cleaner, signal.SIGCONT)
    return {"compaction": found, "CPU seconds of the cleaner meanwhile": spent}


def slow_disk(directory: Path, scale: Scale) -> dict[str, Felt | float]:
    """fsync slowed on one directory, every record flushed, against the same without delay."""
    directory.mkdir()
    delay = directory / "delay"
    delay.write_text("0")
    found: dict[str, Felt | float] = {}
    keys = {"log_flush_interval_messages": "1"}
    with (
        BrokerProcess(directory, program="slow_broker", **keys) as broker,
        raw.connect(broker.port) as client,
    ):
        create_topic(client, "disks", 6)
        slow, fast = _partitions_of(client, "disks", directory)
        create_topic(client, "probe")
        names = iter(f"probe{number}" for number in range(10))
        topic = "probe"
        while _partitions_of(client, topic, directory)[0]:
            topic = next(names)
            create_topic(client, topic)
        assert fast
        with Load("flushes", broker.port, slow[0]) as load:
            probe = Probe(broker.port, topic)
            for seconds in (0.005, 0.5):

                @contextmanager
                def slowed(seconds: float = seconds) -> Iterator[None]:
                    delay.write_text(str(seconds))
                    yield
                    delay.write_text("0")

                title = f"fsync slowed by {seconds * 1000:g} ms on another directory"
                found[title] = alternating(probe, scale, slowed)
            load.check()
    return found


def coordinator_load(directory: Path, scale: Scale) -> dict[str, Felt | float]:
    """The first moments of a broker that reads its offsets, against one that has none."""
    full = BrokerProcess(directory / "full", offsets_topic_num_partitions="1")
    empty = BrokerProcess(directory / "empty", offsets_topic_num_partitions="1")
    for broker, offsets in ((full, scale.offsets), (empty, 1)):
        with broker, raw.connect(broker.port) as client:
            create_topic(client, "probe")
            create_topic(client, "many", 1_000)
            # The first to ask for a coordinator has the offsets topic made.
            client.call(find_coordinator.API, 1, FindCoordinatorRequest(key="group-0"))
            for number in range(0, offsets, 1_000):
                _commit(client, f"group-{number}", min(1_000, offsets))
    calm, felt, loads = [], [], []
    for _ in range(scale.rounds):
        for broker, p99s in ((empty, calm), (full, felt)):
            with broker, raw.connect(broker.port) as client:
                began = time.perf_counter()
                probe = Probe(broker.port)
                p99s.append(probe.p99_ms(scale.window_s))
                _wait_until_loaded(client, "group-0")
                if broker is full:
                    loads.append(time.perf_counter() - began)
    ratio = median(d / c for d, c in zip(felt, calm, strict=True))
    return {
        f"a coordinator loads {scale.offsets} offsets": Felt(median(calm), median(felt), ratio),
        "seconds until it answers, at most": max(loads),
    }


def _commit(client: raw.Client, group: str, partitions: int) -> None:
    rows = [
        OffsetCommitRequestPartition(
            partition_index=index, committed_offset=index, committed_metadata=""
        )
        for index in range(partitions)
    ]
    request = OffsetCommitRequest(
        group_id=group,
        member_id="",
        topics=[OffsetCommitRequestTopic(name="many", partitions=rows)],
    )
    _until(lambda: client.call(offset_commit.API, 7, request).topics[0].partitions[0].error_code)


def _wait_until_loaded(client: raw.Client, group: str) -> None:
    request = offset_fetch.OffsetFetchRequest(group_id=group, topics=None)
    _until(lambda: client.call(offset_fetch.API, 5, request).error_code)


def _until(error: Callable[[], int]) -> None:
    end = time.monotonic() + READY_WITHIN_S
    while code := error():
        if time.monotonic() > end:
            raise TimeoutError(f"still error {code}")
        time.sleep(0.01)


def _partitions_of(client: raw.Client, topic: str, directory: Path) -> tuple[list[int], list[int]]:
    """Which partitions of a topic lie in the slow directory, and which in the fast one."""
    answer = client.call(
        describe_log_dirs.API, 1, describe_log_dirs.DescribeLogDirsRequest(topics=None)
    )
    found: dict[str, list[int]] = {"slow": [], "fast": []}
    for row in answer.results:
        for each in row.topics:
            if each.name == topic:
                name = Path(row.log_dir).relative_to(directory).name
                found[name] += [p.partition_index for p in each.partitions]
    return found["slow"], found["fast"]


def _child_of(pid: int) -> int:
    """The broker's worker, once it is there."""
    end = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < end:
        for task in Path(f"/proc/{pid}/task").iterdir():
            if children := (task / "children").read_text().split():
                return int(children[0])
        time.sleep(0.01)
    raise TimeoutError("the cleaner has not started")


def _cpu_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


CASES: Mapping[str, Callable[[Path, Scale], dict[str, Felt | float]]] = {
    "crowds": crowds,
    "compaction": compaction,
    "coordinator": coordinator_load,
    "disk": slow_disk,
}


def page(found: Mapping[str, Felt | float], scale: Scale) -> str:
    """docs/LIMITS.md."""
    lines = [
        "# Limits",
        "",
        "What a broker holds, and what others feel of it. One client sends a record at a time, 500",
        "a second; the table has its p99 without and with a disturbance, medians of "
        f"{scale.rounds} windows of {scale.window_s} s in turns, and the median of the ratios.",
        "",
        f"- machine: {os.cpu_count()} cores shared with the load, {platform.platform()}, "
        f"Python {platform.python_version()}",
        f"- date: {time.strftime('%Y-%m-%d', time.gmtime())}",
        "- command: `python -m benchmarks.limits` (writes this page)",
        "",
        "| disturbance | p99 without, ms | p99 with, ms | ratio | at most 1.2 |",
        "|---|--:|--:|--:|---|",
    ]
    for title, figure in found.items():
        if isinstance(figure, Felt):
            met = "yes" if figure.ratio <= MAX_RATIO else "**no**"
            p99s = f"{figure.calm_p99:.2f} | {figure.disturbed_p99:.2f}"
            lines.append(f"| {title} | {p99s} | {figure.ratio:.2f} | {met} |")
    lines += ["", "| figure | |", "|---|--:|"]
    lines += [
        f"| {title} | {figure:.3g} |"
        for title, figure in found.items()
        if not isinstance(figure, Felt)
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", choices=[*CASES, []], help="all of them, unless named")
    cases = parser.parse_args().cases or list(CASES)
    found: dict[str, Felt | float] = {}
    for name in cases:
        with tempfile.TemporaryDirectory(prefix="limits-") as directory:
            found |= CASES[name](Path(directory) / name, Scale())
        print(page(found, Scale()), flush=True)
    if len(cases) == len(CASES):
        PAGE.write_text(page(found, Scale()) + "\n" + NOTES.read_text())


if __name__ == "__main__":
    main()
