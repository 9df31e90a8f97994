"""The cost of 2,000 partitions with three replicas on three brokers: `python -m benchmarks.scale`.

The program prints, and writes to `benchmarks/scale.json`: CPU at rest, the failover of all
partitions that a killed broker led, its return, and a complete restart.
"""

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.protocol.messages.metadata import MetadataResponsePartition
from benchmarks import three_brokers
from benchmarks.clusters import BarnabasTrio
from benchmarks.systems import cpu_seconds, resident_bytes, settled

RESULTS = Path(__file__).parent / "scale.json"
PER_TOPIC = 100
REST_S = 20.0
WITHIN_S = 300.0
Ready = Callable[[MetadataResponsePartition], bool]


def measure(partitions: int, directory: Path) -> dict[str, float]:
    """Return each figure by its name, in seconds, shares of a core, or megabytes."""
    found: dict[str, float] = {"partitions": partitions}
    system = BarnabasTrio(directory)
    system.up()
    try:
        three_brokers.ready(system)
        began = time.perf_counter()
        asyncio.run(_create(system, partitions))
        found["created_s"] = time.perf_counter() - began
        found["idle_cpu"] = _idle(system)
        found["resident_mb"] = max(map(resident_bytes, system.pids)) / 1e6
        began = time.perf_counter()
        system.kill(2)
        asyncio.run(_until(system, partitions, lambda each: each.leader_id not in (-1, 2)))
        found["failover_s"] = time.perf_counter() - began
        began = time.perf_counter()
        system.start(2)
        asyncio.run(_until(system, partitions, lambda each: len(each.isr_nodes) == 3))
        found["return_s"] = time.perf_counter() - began
        began = time.perf_counter()
        system.terminate(3)
        found["stop_s"] = time.perf_counter() - began
        asyncio.run(_until(system, partitions, lambda each: 3 not in each.isr_nodes))
        began = time.perf_counter()
        system.start(3)
        asyncio.run(_until(system, partitions, lambda each: len(each.isr_nodes) == 3))
        found["restart_s"] = time.perf_counter() - began
    finally:
        system.down()
    return found


def _idle(system: BarnabasTrio) -> float:
    """Return the CPU share of the busiest idle broker."""
    for pid in system.pids:
        settled(pid)
    before = [cpu_seconds(pid) for pid in system.pids]
    time.sleep(REST_S)
    after = [cpu_seconds(pid) for pid in system.pids]
    return max(b - a for a, b in zip(before, after, strict=True)) / REST_S


async def _create(system: BarnabasTrio, partitions: int) -> None:
    async with Cluster(system.bootstrap_servers, timeout=WITHIN_S) as cluster:
        for number in range(partitions // PER_TOPIC):
            await Admin(cluster).create_topic(
                f"t{number}", partitions=PER_TOPIC, replication_factor=3
            )
    await _until(system, partitions, lambda each: len(each.isr_nodes) == 3)


async def _until(system: BarnabasTrio, partitions: int, ready: Ready) -> None:
    end = time.monotonic() + WITHIN_S
    while time.monotonic() < end:
        async with Cluster(system.bootstrap_servers) as cluster:
            topics = (await cluster.refresh()).topics
        rows = [each for topic in topics for each in topic.partitions if not topic.is_internal]
        if len(rows) == partitions and all(map(ready, rows)):
            return
        await asyncio.sleep(0.2)
    raise TimeoutError(f"not within {WITHIN_S:g} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=2000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="scale-") as directory:
        found = measure(args.partitions, Path(directory))
    print(json.dumps(found, indent=1))
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
