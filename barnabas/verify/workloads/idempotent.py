"""W4: producers without transactions, five batches in flight."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from barnabas.verify.context import Context
from barnabas.verify.history import Partition
from barnabas.verify.wire.batches import Sent
from barnabas.verify.wire.idempotent import IN_FLIGHT, IdempotentProducer
from barnabas.verify.wire.recorder import OperationFailed
from barnabas.verify.workloads.workload import Stage, Topic, read_continuously

TOPIC = "idempotent"


class IdempotentProducers:
    """One producer for each partition, and two readers."""

    topics: Sequence[Topic] = (Topic(TOPIC),)
    stages: Sequence[Stage] = ()

    def parts(self, context: Context) -> Sequence[Callable[[], Awaitable[None]]]:
        partitions = context.partitions(TOPIC)
        return [
            *(partial(_produce, context, at) for at in partitions),
            partial(read_continuously, context, "committed", partitions, committed=True),
            partial(
                read_continuously, context, "restless", partitions, committed=False, restless=True
            ),
        ]

    async def finish(self, context: Context) -> None:
        """Do nothing."""


async def _produce(context: Context, at: Partition) -> None:
    name = f"w{at[1]}"
    chance = context.random(name)
    producer = IdempotentProducer(
        context.history, context.cluster(), name, at, context.options.value_size
    )
    must_init = True
    while not context.stopping.is_set():
        try:
            if must_init:
                await producer.init()
                must_init = False
            await producer.send_many(
                [
                    [Sent(context.value(name)) for _ in range(chance.randint(1, 3))]
                    for _ in range(chance.randint(1, IN_FLIGHT))
                ]
            )
        except OperationFailed:
            must_init = True
        # An occasional pause, in which a broker may drop producer state too early.
        await context.pause(1.5 if chance.random() < 0.02 else 0.01 * chance.random())
