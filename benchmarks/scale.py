"""The cost of many partitions with three replicas on three brokers."""

import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from benchmarks.measures import Cost, Figures, resident_bytes, settled
from benchmarks.systems import BarnabasTrio, Trio, create_topics
from benchmarks.three_brokers import Ready, all_in_sync, ready, until

PER_TOPIC = 100
REST_S = 20.0


def measure(options: Namespace, directory: Path) -> Iterator[Figures]:
    """Measure three brokers at rest, the failover of all partitions that a killed one led, its
    return, and a complete restart."""
    with BarnabasTrio(directory) as system:

        def timed(work: Callable[[], object], then: Ready | None = None) -> float:
            with Cost() as cost:
                work()
                if then is not None:
                    until(system, then, partitions=options.partitions)
            return cost.seconds

        ready(system)
        topics = {f"t{number}": PER_TOPIC for number in range(options.partitions // PER_TOPIC)}
        created = timed(lambda: create_topics(system.servers, topics), all_in_sync)
        yield {"s until all are created": created, **_idle(system)}
        yield {
            "s of failover": timed(
                lambda: system.kill(2), lambda each: each.leader_id not in (-1, 2)
            ),
            "s of return": timed(lambda: system.start(2), all_in_sync),
            "s of SIGTERM": timed(system.nodes[3].terminate),
        }
        until(system, lambda each: 3 not in each.isr_nodes, partitions=options.partitions)
        yield {"s of restart": timed(lambda: system.start(3), all_in_sync)}


def _idle(system: Trio) -> Figures:
    """Return the CPU share of the busiest idle broker, and the memory of the largest."""
    settled(*system.pids)
    with ExitStack() as stack:
        costs = [stack.enter_context(Cost(pid)) for pid in system.pids]
        time.sleep(REST_S)
    return {
        "share of a core at rest": max(each.cpu for each in costs) / REST_S,
        "MB": max(map(resident_bytes, system.pids)) / 1e6,
    }
