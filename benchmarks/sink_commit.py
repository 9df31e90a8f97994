"""The commit of a sink's batch on three brokers: time and CPU, by requests of its protocol.

    python -m benchmarks.sink_commit [transactions] [rounds]

Prints a line of JSON for each batch, times in ms.
"""

import asyncio
import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any

from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.transactional_producer import TransactionalProducer
from barnabas.pipeline.sink.cluster_port import ClusterPort
from barnabas.pipeline.sink.port import Identity, Place
from barnabas.pipeline.sink.protocol import Batch, SinkSettings, Winner, commit
from barnabas.testing import Cluster as Brokers
from benchmarks.measures import children, cpu_seconds

SINK, OUTPUT, PARTITIONS = "sink", "output", 16
_AT_ONCE = 50
_COMPLETION_S = 0.7


class Timed:
    """A port that adds up the time of each kind of request."""

    def __init__(self, port: ClusterPort) -> None:
        self._port = port
        self.spent: defaultdict[str, float] = defaultdict(float)

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._port, name)
        return self._timed(name, call) if asyncio.iscoroutinefunction(call) else call

    def _timed(self, name: str, call: Callable[..., Awaitable[Any]]) -> Callable[..., Any]:
        async def timed(*arguments: Any, **keys: Any) -> Any:
            began = time.perf_counter()
            try:
                return await call(*arguments, **keys)
            finally:
                self.spent[name] += 1000 * (time.perf_counter() - began)

        return timed


async def _task(cluster: Cluster, number: int) -> Winner:
    name = f"{SINK}.process.{number}"
    producer = TransactionalProducer(cluster, name)
    await producer.init_transactions()
    await producer.begin_transaction()
    delivered = await producer.send(OUTPUT, b"x" * 100, partition=number % PARTITIONS)
    await producer.flush()
    winner = Winner(name, Identity(*producer.identity), 1, Place(*delivered.result()))
    await producer.abandon()
    return winner


async def measure(servers: str, transactions: int, rounds: int) -> list[dict[str, float]]:
    """Return time and CPU of each commit, in ms; print them."""
    found = []
    async with Cluster(servers) as cluster:
        await Admin(cluster).create_topic(OUTPUT, partitions=PARTITIONS)
        for number in range(rounds):
            winners: list[Winner] = []
            for first in range(0, transactions, _AT_ONCE):
                some = range(first, min(first + _AT_ONCE, transactions))
                winners += await asyncio.gather(*(_task(cluster, each) for each in some))
            port = Timed(ClusterPort(cluster, SINK, like=OUTPUT))
            brokers, own, began = _children_cpu(), time.process_time(), time.perf_counter()
            await commit(port, SinkSettings(SINK, 60_000), Batch("q", number, None), winners)
            row = {
                "transactions": transactions,
                "commit": 1000 * (time.perf_counter() - began),
                "cpu_driver": 1000 * (time.process_time() - own),
                "cpu_brokers": _children_cpu() - brokers,
                **port.spent,
            }
            # Markers and completions follow the answers.
            await asyncio.sleep(_COMPLETION_S)
            row["cpu_brokers_in_the_end"] = _children_cpu() - brokers
            found.append({name: round(value, 1) for name, value in row.items()})
            print(json.dumps(found[-1]), flush=True)
    return found


def _children_cpu() -> float:
    """Return the CPU time of this process's children in ms."""
    return 1000 * sum(map(cpu_seconds, children(os.getpid())))


def main() -> None:
    """Measure on brokers in processes of their own."""
    transactions, rounds = (*map(int, sys.argv[1:]), *(200, 5)[len(sys.argv) - 1 :])
    with Brokers({"transaction.two.phase.commit.enable": "true"}, processes=True) as brokers:
        asyncio.run(measure(brokers.bootstrap_servers, transactions, rounds))


if __name__ == "__main__":
    main()
