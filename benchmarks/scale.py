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
from contextlib import ExitStack
from pathlib import Path

from benchmarks.measures import HERE, Cost, Figures, resident_bytes, settled
from benchmarks.three_brokers import BarnabasTrio, Ready, all_in_sync, create, ready, until

RESULTS = HERE / "scale.json"
PER_TOPIC = 100
REST_S = 20.0


def measure(partitions: int, directory: Path) -> Figures:
    """Return each figure by its name, in seconds, shares of a core, or megabytes."""
    found: Figures = {"partitions": partitions}
    system = BarnabasTrio(directory)

    def timed(name: str, work: Callable[[], object], then: Ready | None = None) -> None:
        with Cost() as cost:
            work()
            if then is not None:
                asyncio.run(until(system, then, partitions=partitions))
        found[name] = cost.seconds

    system.up()
    try:
        ready(system)
        topics = [f"t{number}" for number in range(partitions // PER_TOPIC)]
        timed("created_s", lambda: asyncio.run(create(system, topics, PER_TOPIC)), all_in_sync)
        found["idle_cpu"] = _idle(system)
        found["resident_mb"] = max(map(resident_bytes, system.pids)) / 1e6
        timed("failover_s", lambda: system.kill(2), lambda each: each.leader_id not in (-1, 2))
        timed("return_s", lambda: system.start(2), all_in_sync)
        timed("stop_s", system.cluster.brokers[3].terminate)
        left = until(system, lambda each: 3 not in each.isr_nodes, partitions=partitions)
        asyncio.run(left)
        timed("restart_s", lambda: system.start(3), all_in_sync)
    finally:
        system.down()
    return found


def _idle(system: BarnabasTrio) -> float:
    """Return the CPU share of the busiest idle broker."""
    for pid in system.pids:
        settled(pid)
    with ExitStack() as stack:
        costs = [stack.enter_context(Cost(pid)) for pid in system.pids]
        time.sleep(REST_S)
    return max(each.cpu for each in costs) / REST_S


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=2000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="scale-") as directory:
        found = measure(args.partitions, Path(directory))
    text = json.dumps(found, indent=1) + "\n"
    print(text, end="")
    RESULTS.write_text(text)


if __name__ == "__main__":
    main()
