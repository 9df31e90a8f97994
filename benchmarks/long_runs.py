"""Long runs, and runs of large data."""

import json
import os
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import suppress
from itertools import cycle, islice
from pathlib import Path
from typing import Final

from barnabas.client.offsets import LATEST, find_offsets
from barnabas.protocol.topic_partition import TopicPartition
from benchmarks import consumer_groups, raw
from benchmarks.limits import compact
from benchmarks.limits_loads import load
from benchmarks.measures import (
    Cost,
    Faulty,
    Figures,
    children,
    cpu_seconds,
    descriptors,
    peak_bytes,
    resident_bytes,
    settled,
)
from benchmarks.systems import PROPERTIES, Barnabas, BarnabasTrio, administer, create_topics
from tests.support.brokers.memory import resident_mb
from tests.support.brokers.process import BrokerProcess
from tests.support.neighbour import TOPIC as NEIGHBOUR
from tests.support.neighbour import Neighbour

TOPIC: Final = "long"
VALUE: Final = os.urandom(1_000)
PER_BATCH: Final = 64
"""The records of a batch: 64 KB, as clients send them under load."""
WINDOW: Final = 8
PARTITIONS: Final = 16
"""The partitions of the records that are recovered: below 16 GB no segment of them is full, so all
of them are read."""
UPDATES: Final = 10
"""The records of each key in the compacted partition."""
_STILL_S: Final = 30.0
"""The seconds without work of the cleaner after which a log is taken as compacted."""
_RECOVERED_WITHIN_S: Final = 3_600.0
_CALM_S: Final = 10.0
_ROUNDS, _ROUND_S = 6, 600.0
"""The least number of runs of `verify` and their longest time: it keeps its history in memory."""
_SMALL_SEGMENTS: Final = {
    "transaction.state.log.segment.bytes": str(1 << 20),
    "offsets.topic.segment.bytes": str(1 << 20),
}
"""So that the logs of the coordinators are compacted within the run."""
_FLAT: Final = 1.15
_ROOM: Final = {"memory, MB": 10, "descriptors": 20, "files": 50, "MB of files": 100}
"""A figure leaks if it grows by more than both after the first third of the rounds: coordinators
keep ids for days, and each of their partitions has segments of 1 MB."""
_CLASSIC_PARTITIONS: Final = 100
"""At most: the classic members are clients of one process, and each knows all partitions."""
_CLASSIC_WITHIN_S: Final = 600.0


def ends(servers: str) -> int:
    """Return the sum of the end offsets of the partitions."""
    wanted = {TopicPartition(TOPIC, at): LATEST for at in range(PARTITIONS)}
    found = administer(servers, lambda cluster: find_offsets(cluster, wanted))
    return sum(each.offset for each in found.values())


def recovery(options: Namespace, directory: Path) -> Iterator[Figures]:
    """Start after kill -9."""
    keys = range(PER_BATCH)
    batches = [raw.keyed_request(TOPIC, keys, VALUE, partition=at) for at in range(PARTITIONS)]
    count = round(options.gb * 1e9 / len(batches[0]))
    broker = BrokerProcess(directory / "data", defaults=PROPERTIES)
    with broker, raw.connect(broker.port) as client:
        create_topics(broker.bootstrap_servers, {TOPIC: PARTITIONS})
        with Cost(broker.pid) as cost:
            client.stream(islice(cycle(batches), count), WINDOW)
        segments = broker.directory.glob(f"{TOPIC}-*/*.log")
        yield {
            f"GB in {PARTITIONS} partitions": sum(each.stat().st_size for each in segments) / 1e9,
            "seconds until they are acknowledged": cost.seconds,
            "CPU of the broker meanwhile": cost.cpu,
        }
        broker.kill()
        with Cost() as cost:
            broker.start(_RECOVERED_WITHIN_S)
        yield {
            "seconds from the start until it serves": cost.seconds,
            "CPU until then": cpu_seconds(broker.pid),
            "largest memory, MB": peak_bytes(broker.pid) / 1e6,
        }
        if (found := ends(broker.bootstrap_servers)) != count * PER_BATCH:
            raise Faulty(f"{count * PER_BATCH} records were acknowledged, and {found} are left")


def compaction(options: Namespace, directory: Path) -> Iterator[Figures]:
    """Compact one partition, of which each key has many records."""
    with Barnabas(directory) as system, raw.connect(system.port) as client:
        create_topics(system.servers, {NEIGHBOUR: 1})
        # Ten segments, of Kafka's size from 10 GB on: the newest is not compacted.
        segments = {"segment.bytes": str(min(1 << 30, round(options.gb * 1e8)))}
        create_topics(system.servers, {TOPIC: 1}, segments)
        keys = round(options.gb * 1e6) // UPDATES
        numbers = cycle(range(keys))
        count = keys * UPDATES // PER_BATCH
        some = (list(islice(numbers, PER_BATCH)) for _ in range(count))
        client.stream((raw.keyed_request(TOPIC, each, VALUE, partition=0) for each in some), WINDOW)
        before = gigabytes(system)
        yield {"GB before": before, "keys": keys}
        with Neighbour(system.port) as other:
            calm = other.p99_ms_of_next(_CALM_S)
            compact(system.servers, TOPIC)
            cleaner = raw.until(lambda: children(system.pid), every_s=0.1)[0]
            began = time.monotonic()
            ended, cpu = compacted(system, cleaner, before)
            disturbed = other.p99_ms(began, ended)
        if other.errors:
            raise Faulty(f"another client was refused: {other.errors[0]}")
        yield {
            "GB after": gigabytes(system),
            "seconds": ended - began,
            "CPU of the cleaner": cpu,
            "largest memory of broker and cleaner, MB": peak_bytes(system.pid) / 1e6,
            "largest memory of the cleaner, MB": peak_bytes(cleaner) / 1e6,
            "p99 of another client before, ms": calm,
            "p99 of another client meanwhile, ms": disturbed,
        }


def gigabytes(system: Barnabas) -> float:
    """Return the size of the log of the compacted topic."""
    return sum(each.stat().st_size for each in system.data.glob(f"{TOPIC}-0/*.log")) / 1e9


def compacted(system: Barnabas, cleaner: int, before: float) -> tuple[float, float]:
    """Wait until the cleaner has done its work; return the time of its end, and its CPU seconds."""
    used, since = cpu_seconds(cleaner), time.monotonic()
    while time.monotonic() - since < _STILL_S:
        time.sleep(1)
        now = cpu_seconds(cleaner)
        if now - used > 0.05 or gigabytes(system) > before / 2:
            used, since = now, time.monotonic()
    return since, used


def churn(options: Namespace, directory: Path) -> Iterator[Figures]:
    """Run transactions on three brokers, while replicas move and topics come and go."""
    seconds = options.hours * 3600
    rounds = max(_ROUNDS, round(seconds / _ROUND_S))
    with BarnabasTrio(directory, properties=_SMALL_SEGMENTS) as system:
        samples, committed = [], 0
        for number in range(rounds):
            committed += verified(system.servers, number, seconds / rounds)
            samples.append(held(system))
            print(f"round {number + 1} of {rounds}:", *map(str, samples[-1].items()), flush=True)
    third = rounds // 3
    yield {"hours": options.hours, "rounds": rounds, "transactions": committed}
    grown = []
    for name in samples[0]:
        early = max(each[name] for each in samples[:third])
        late = min(each[name] for each in samples[-third:])
        yield {f"{name}, first third": early, f"{name}, at the end": samples[-1][name]}
        grown += [name] if late > early * _FLAT + _ROOM[name] else []
    if grown:
        raise Faulty(f"not flat: {', '.join(grown)}")


def verified(servers: str, seed: int, seconds: float) -> int:
    """Run `verify eos --churn` once; return the transactions that were committed."""
    command = [sys.executable, "-m", "barnabas", "verify", "eos", "--churn", "-b", servers, "-J"]
    command += ["-d", str(seconds), "-s", str(seed), "-r", "3", "--min-insync-replicas", "2"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise Faulty(f"verify eos, seed {seed}: {done.stdout[-4000:]}{done.stderr[-4000:]}")
    return int(json.loads(done.stdout)["figures"]["committed"])


def held(system: BarnabasTrio) -> Figures:
    """Return the most that a broker of the three holds at rest."""
    settled(*system.pids)
    files = [sizes(broker.directory) for broker in system.nodes.values()]
    return {
        # Without the cleaner, which starts with its first job.
        "memory, MB": max(map(resident_mb, system.pids)),
        "descriptors": max(map(descriptors, system.pids)),
        "files": max(map(len, files)),
        "MB of files": max(map(sum, files)) / 1e6,
    }


def sizes(directory: Path) -> list[int]:
    """Return the sizes of the files of a broker; those that it deletes meanwhile do not count."""
    found = []
    for each in directory.rglob("*"):
        with suppress(FileNotFoundError):
            found += [each.stat().st_size] if each.is_file() else []
    return found


def members(options: Namespace, directory: Path) -> Iterator[Figures]:
    """Let the members of one group join."""
    count = options.members
    shapes = consumer_groups.Shape(1, count), consumer_groups.Shape(1, count, consumer_groups.PACE)
    with Barnabas(directory) as system:
        raw.connect(system.port).close()
        consumer_groups.prepare(system, shapes)
        for shape in shapes:
            for name, figures in consumer_groups.assign(system, shape).items():
                yield {f"{name}: {key}": value for key, value in figures.items()}
        beats = consumer_groups.unchanged(system, shapes[0], 10 * count)
        for name, figures in beats.items():
            yield {f"{name}: CPU, us": figures["cpu_us"], f"{name}: p99_us": figures["p99_us"]}
        create_topics(system.servers, {"many": min(count, _CLASSIC_PARTITIONS)})
        with Neighbour(system.port) as other, Cost(system.pid) as cost:
            calm = other.p99_ms_of_next(_CALM_S)
            began = time.monotonic()
            with load("group", system.port, count, _CLASSIC_WITHIN_S):
                joined = time.monotonic()
                p99 = other.p99_ms(began, joined)
                time.sleep(_CALM_S)
                rest = other.p99_ms(joined, time.monotonic())
        if other.errors:
            raise Faulty(f"another client was refused: {other.errors[0]}")
        yield {
            "classic: seconds until all have joined": joined - began,
            "classic: CPU of the broker": cost.cpu,
            "classic: Produce of one record before, p99_ms": calm,
            "classic: Produce of one record meanwhile, p99_ms": p99,
            "classic: Produce of one record afterwards, p99_ms": rest,
        }
        yield {"memory of the broker, MB": resident_bytes(system.pid) / 1e6}
