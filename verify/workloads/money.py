"""W3: every transaction moves an amount; whenever nobody is at work, the sum is zero."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from random import Random

from barnabas.client.cluster import Cluster
from barnabas.client.connection import BrokerUnreachable
from barnabas.protocol.errors import KafkaError
from barnabas.verify.context import Context
from barnabas.verify.history import OK, Place
from barnabas.verify.wire.batches import Sent
from barnabas.verify.wire.inspection import ends
from barnabas.verify.wire.reader import Reader
from barnabas.verify.workloads.producing import Choose, Producing
from barnabas.verify.workloads.workload import Stage, Topic, read_on

TOPIC = "money"
ROUND = 0.5
"""How long money moves between two looks at it, in s."""


class Money:
    """Producers in rounds, and an accountant between them."""

    topics: Sequence[Topic] = (Topic(TOPIC),)
    stages: Sequence[Stage] = ()

    def parts(self, context: Context) -> Sequence[Callable[[], Awaitable[None]]]:
        places = context.places(TOPIC)
        return [
            partial(_rounds, context, places),
            partial(read_on, context, "restless", places, committed=True, restless=True),
        ]

    async def finish(self, context: Context) -> None:
        """Nothing remains to be done."""


def _transfers(context: Context, places: Sequence[Place]) -> Choose:
    def choose(chance: Random, proc: str) -> list[tuple[Place, list[Sent]]]:
        amount = chance.randint(1, 1000)
        giver, taker = chance.choice(places), chance.choice(places)
        return [
            (giver, [Sent(context.value(proc), "giver", -amount)]),
            (taker, [Sent(context.value(proc), "taker", amount)]),
        ]

    return choose


async def _rounds(context: Context, places: Sequence[Place]) -> None:
    choose = _transfers(context, places)
    producers = [
        Producing(context, f"w{number}", f"w{number}", number, choose)
        for number in range(context.options.producers)
    ]
    cluster = context.cluster()
    accountant = Reader(context.history, cluster, "accountant", committed=True)
    accountant.assign(dict.fromkeys(places, 0))
    while not context.stopping.is_set():
        await asyncio.gather(*(_one_round(context, producer) for producer in producers))
        try:
            if await _read_to_the_end(context, cluster, accountant, places):
                context.history.note("run", "snapshot", OK, {"reader": accountant.name})
        except (KafkaError, BrokerUnreachable, TimeoutError) as error:
            context.problem(f"accountant: {error}")


async def _one_round(context: Context, producer: Producing) -> None:
    loop = asyncio.get_running_loop()
    end = loop.time() + ROUND
    while loop.time() < end and not context.stopping.is_set():
        await producer.step()
    await producer.rest()


async def _read_to_the_end(
    context: Context, cluster: Cluster, reader: Reader, places: Sequence[Place]
) -> bool:
    """Whether it came to the end; a transaction that hangs is told of when the run ends."""
    while not context.stopping.is_set():
        limits = await ends(cluster, places)
        await reader.poll()
        if all(reader.positions[at] >= limit.high_watermark for at, limit in limits.items()):
            return True
    return False
