"""The commit of a sink's batch on three brokers, in the part `pipeline` of `beside_kafka`."""

import asyncio
import os
import time

from barnabas.client.cluster import Cluster
from barnabas.client.transactional_producer import TransactionalProducer
from barnabas.pipeline.sink.cluster_port import ClusterPort
from barnabas.pipeline.sink.port import Identity, Place
from barnabas.pipeline.sink.protocol import Batch, SinkSettings, Winner, commit
from barnabas.testing import Cluster as Brokers
from benchmarks.measures import Cost, Figures, children
from benchmarks.systems import create_topics

SINK, OUTPUT, PARTITIONS = "sink", "output", 16
_AT_ONCE = 50
_COMPLETION_S = 0.7


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


def batches(transactions: int, rounds: int) -> list[Figures]:
    """Return time and CPU of each commit in ms, on brokers in processes of their own."""
    with Brokers({"transaction.two.phase.commit.enable": "true"}, processes=True) as brokers:
        create_topics(brokers.bootstrap_servers, {OUTPUT: PARTITIONS})
        return asyncio.run(_batches(brokers.bootstrap_servers, transactions, rounds))


async def _batches(servers: str, transactions: int, rounds: int) -> list[Figures]:
    found, brokers = [], children(os.getpid())
    async with Cluster(servers) as cluster:
        for number in range(rounds):
            winners: list[Winner] = []
            for first in range(0, transactions, _AT_ONCE):
                some = range(first, min(first + _AT_ONCE, transactions))
                winners += await asyncio.gather(*(_task(cluster, each) for each in some))
            port, batch = ClusterPort(cluster, SINK, like=OUTPUT), Batch("q", number, None)
            own = time.process_time()
            with Cost(*brokers) as cost:
                await commit(port, SinkSettings(SINK, 60_000), batch, winners)
            own = time.process_time() - own
            seconds = {"commit": cost.seconds, "cpu_driver": own, "cpu_brokers": cost.cpu}
            found.append({name: 1000 * each for name, each in seconds.items()})
            # Markers and completions follow the answers.
            await asyncio.sleep(_COMPLETION_S)
    return found
