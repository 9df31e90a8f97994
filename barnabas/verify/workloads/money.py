"""W3: every transaction moves an amount; between the rounds the sum of all amounts is zero."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from random import Random

from barnabas.client.cluster import Cluster
from barnabas.client.connection import BrokerUnreachable
from barnabas.protocol.errors import KafkaError
from barnabas.verify.context import Context
from barnabas.verify.history import OK, Partition
from barnabas.verify.wire.batches import Sent
from barnabas.verify.wire.inspection import ends
from barnabas.verify.wire.reader import Reader
from barnabas.verify.workloads.producer_loop import Choose, ProducerLoop
from barnabas.verify.workloads.workload import Stage, Topic, read_continuously

TOPIC = "money"
ROUND = 0.5
"""Seconds of a round; after each round the amounts are read."""


class Money:
    """Producers that work in rounds, and a reader that sums up the amounts between them."""

    topics: Sequence[Topic] = (Topic(TOPIC),)
    stages: Sequence[Stage] = ()

    def parts(self, context: Context) -> Sequence[Callable[[], Awaitable[None]]]:
        partitions = context.partitions(TOPIC)
        return [
            partial(_rounds, context, partitions),
            partial(
                read_continuously, context, "restless", partitions, committed=True, restless=True
            ),
        ]

    async def finish(self, context: Context) -> None:
        """Do nothing."""


def _transfers(context: Context, partitions: Sequence[Partition]) -> Choose:
    def choose(chance: Random, proc: str) -> list[tuple[Partition, list[Sent]]]:
        amount = chance.randint(1, 1000)
        giver, taker = chance.choice(partitions), chance.choice(partitions)
        return [
            (giver, [Sent(context.value(proc), "giver", -amount)]),
            (taker, [Sent(context.value(proc), "taker", amount)]),
        ]

    return choose


async def _rounds(context: Context, partitions: Sequence[Partition]) -> None:
    choose = _transfers(context, partitions)
    producers = [
        ProducerLoop(context, f"w{number}", f"w{number}", number, choose)
        for number in range(context.options.producers)
    ]
    cluster = context.cluster()
    accountant = Reader(context.history, cluster, "accountant", committed=True)
    accountant.assign(dict.fromkeys(partitions, 0))
    while not context.stopping.is_set():
        await asyncio.gather(*(_one_round(context, producer) for producer in producers))
        try:
            if await _read_to_the_end(context, cluster, accountant, partitions):
                context.history.note("run", "snapshot", OK, {"reader": accountant.name})
        except (KafkaError, BrokerUnreachable, TimeoutError) as error:
            context.problem(f"accountant: {error}")


async def _one_round(context: Context, producer: ProducerLoop) -> None:
    loop = asyncio.get_running_loop()
    end = loop.time() + ROUND
    while loop.time() < end and not context.stopping.is_set():
        await producer.step()
    await producer.rest()


async def _read_to_the_end(
    context: Context, cluster: Cluster, reader: Reader, partitions: Sequence[Partition]
) -> bool:
    """Read to the end; return False if the run stops first (a check reports a hanging LSO)."""
    while not context.stopping.is_set():
        limits = await ends(cluster, partitions)
        await reader.poll()
        if all(reader.positions[at] >= limit.high_watermark for at, limit in limits.items()):
            return True
    return False
