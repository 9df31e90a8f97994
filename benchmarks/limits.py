"""The load that one broker carries, and its effect on other clients: `python -m benchmarks.limits`.

A client that sends one record at a time, 500 in a second, measures the latency of other clients,
and the broker how long its event loop was held (`limits_measures`). Memory is the resident memory
of the broker, less its memory when idle. The results are written to `docs/LIMITS.md`.
"""

import argparse
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from barnabas.protocol.messages import (
    create_topics,
    describe_log_dirs,
    find_coordinator,
    incremental_alter_configs,
    offset_commit,
    offset_fetch,
)
from barnabas.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from benchmarks import raw
from benchmarks.limits_measures import READY_WITHIN_S, Felt, Load, Probe, alternating, felt
from benchmarks.limits_page import NOTES, PAGE, page
from benchmarks.systems import cpu_seconds
from tests.support.brokers.loop_hold import held_since_last
from tests.support.brokers.memory import resident_mb
from tests.support.brokers.process import BrokerProcess

MAX_GROWTH_MB = 300
KEYED, KEYS, VALUE = 8, 20_000, bytes(100)
"""Compacted partitions, the keys in each, and the value of each record."""


class Scale(NamedTuple):
    """The sizes of the loads; the defaults are those of the full run."""

    connections: int = 1_000
    partitions: int = 2_000
    members: int = 100
    slow_consumers: int = 1
    large_mb: int = 50
    offsets: int = 100_000
    keyed_records: int = 150_000
    """Records in each compacted partition, 17 MB of them."""
    rounds: int = 7
    window_s: float = 1.0
    load_window_s: float = 0.6
    """Seconds after the start of a broker, while it loads its offsets."""


def timed_broker(directory: Path, **keys: str) -> BrokerProcess:
    """Return a broker in its own process that measures how long its loop was blocked."""
    return BrokerProcess(directory, program="tests.support.brokers.timed", **keys)


def probe_of(broker: BrokerProcess, topic: str = "probe") -> Probe:
    """Return a measuring client of a broker that times its loop."""
    return Probe(broker.port, lambda: held_since_last(broker.pid, broker.directory), topic)


def create_topic(client: raw.Client, name: str, partitions: int = 1, **configs: str) -> None:
    """Create a topic; configs have underscores for Kafka's dots."""
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
    """Measure 1,000 connections, 2,000 partitions, 100 members, a slow consumer: alone and
    together."""
    found: dict[str, Felt | float] = {}
    with timed_broker(directory) as broker:
        with raw.connect(broker.port) as client:
            create_topic(client, "probe")
            probe = probe_of(broker)
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
            load = partial(Load, name, broker.port, count)
            found[title] = alternating(probe, scale.rounds, scale.window_s, load)
        held = [Load(name, broker.port, count) for name, count in loads.values()]
        probe.p99_ms(scale.window_s)
        for each in held:
            each.check()
        found["memory with all of it, MB over idle"] = resident_mb(broker.pid) - idle
        for each in held:
            each.end()
    return found


def compaction(directory: Path, scale: Scale) -> dict[str, Felt | float]:
    """Compare a running cleaner that has a backlog with a stopped one."""
    keys = {
        "log_cleaner_backoff_ms": "50",
        # Only records that a checkpoint has marked as durable are compacted.
        "log_flush_offset_checkpoint_interval_ms": "500",
    }
    with timed_broker(directory, **keys) as broker, raw.connect(broker.port) as client:
        create_topic(client, "probe")
        create_topic(client, "keyed", KEYED, segment_bytes=str(1 << 20))
        for partition in range(KEYED):
            starts = range(0, scale.keyed_records, 1_000)
            client.stream(
                (
                    raw.keyed_request(
                        "keyed", [at % KEYS + n for n in range(1_000)], VALUE, partition=partition
                    )
                    for at in starts
                ),
                5,
            )
        _compact(client, "keyed")
        cleaner = _child_of(broker.pid)
        os.kill(cleaner, signal.SIGSTOP)
        with Load("keys", broker.port, KEYED) as load:

            @contextmanager
            def cleaning() -> Iterator[None]:
                os.kill(cleaner, signal.SIGCONT)
                yield
                os.kill(cleaner, signal.SIGSTOP)

            before = cpu_seconds(cleaner)
            found = alternating(probe_of(broker), scale.rounds, scale.window_s, cleaning)
            load.check()
            spent = cpu_seconds(cleaner) - before
            os.kill(cleaner, signal.SIGCONT)
    return {"compaction": found, "CPU seconds of the cleaner meanwhile": spent}


def _compact(client: raw.Client, topic: str) -> None:
    config = AlterableConfig(name="cleanup.policy", config_operation=0, value="compact")
    resource = AlterConfigsResource(resource_type=2, resource_name=topic, configs=[config])
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    answer = client.call(incremental_alter_configs.API, 1, request)
    if code := answer.responses[0].error_code:
        raise RuntimeError(f"{topic} is not compacted: error {code}")


def slow_disk(directory: Path, scale: Scale) -> dict[str, Felt | float]:
    """Compare a slow fsync in one directory, with every record flushed, to the same without
    delay."""
    directory.mkdir()
    delay = directory / "delay"
    delay.write_text("0")
    found: dict[str, Felt | float] = {}
    keys = {"log_flush_interval_messages": "1"}
    with (
        BrokerProcess(directory, program="tests.support.brokers.slow", **keys) as broker,
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
            probe = probe_of(broker, topic)
            for seconds in (0.005, 0.5):

                @contextmanager
                def slowed(seconds: float = seconds) -> Iterator[None]:
                    delay.write_text(str(seconds))
                    yield
                    delay.write_text("0")

                title = f"fsync slowed by {seconds * 1000:g} ms on another directory"
                found[title] = alternating(probe, scale.rounds, scale.window_s, slowed)
            load.check()
    return found


def coordinator_load(directory: Path, scale: Scale) -> dict[str, Felt | float]:
    """Compare the first moments of a broker that loads many offsets to one that has none."""
    full = timed_broker(directory / "full", offsets_topic_num_partitions="1")
    empty = timed_broker(directory / "empty", offsets_topic_num_partitions="1")
    for broker, offsets in ((full, scale.offsets), (empty, 1)):
        with broker, raw.connect(broker.port) as client:
            create_topic(client, "probe")
            create_topic(client, "many", 1_000)
            # The first FindCoordinator creates the offsets topic.
            client.call(find_coordinator.API, 1, FindCoordinatorRequest(key="group-0"))
            for number in range(0, offsets, 1_000):
                _commit(client, f"group-{number}", min(1_000, offsets))
    windows, loads = [], []
    for _ in range(scale.rounds):
        for broker in (empty, full, empty):
            with broker, raw.connect(broker.port) as client:
                began = time.perf_counter()
                windows.append(probe_of(broker).window(scale.load_window_s))
                _wait_until_loaded(client, "group-0")
                if broker is full:
                    loads.append(time.perf_counter() - began)
    return {
        f"a coordinator loads {scale.offsets} offsets": felt(windows),
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
    """Return the partitions of a topic in the slow directory, and those in the fast one."""
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
    """Return the process id of the broker's worker; wait until it exists."""
    end = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < end:
        for task in Path(f"/proc/{pid}/task").iterdir():
            if children := (task / "children").read_text().split():
                return int(children[0])
        time.sleep(0.01)
    raise TimeoutError("the cleaner has not started")


CASES: Mapping[str, Callable[[Path, Scale], dict[str, Felt | float]]] = {
    "crowds": crowds,
    "compaction": compaction,
    "coordinator": coordinator_load,
    "disk": slow_disk,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", choices=[*CASES, []], help="default: all of them")
    cases = parser.parse_args().cases or list(CASES)
    scale = Scale()
    found: dict[str, Felt | float] = {}
    for name in cases:
        with tempfile.TemporaryDirectory(prefix="limits-") as directory:
            found |= CASES[name](Path(directory) / name, scale)
        print(page(found, scale.rounds, scale.window_s), flush=True)
    if len(cases) == len(CASES):
        text = page(found, scale.rounds, scale.window_s)
        PAGE.write_text(f"{text}\n{NOTES.read_text()}")


if __name__ == "__main__":
    main()
