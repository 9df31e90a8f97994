"""W4: producers without transactions, five batches in flight."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from barnabas.verify.context import Context
from barnabas.verify.history import Place
from barnabas.verify.wire.batches import Sent
from barnabas.verify.wire.idempotent import IN_FLIGHT, Idempotent
from barnabas.verify.wire.recorder import NotDone
from barnabas.verify.workloads.workload import Stage, Topic, read_on

TOPIC = "idempotent"


class IdempotentOnly:
    """One producer for each partition, and two readers."""

    topics: Sequence[Topic] = (Topic(TOPIC),)
    stages: Sequence[Stage] = ()

    def parts(self, context: Context) -> Sequence[Callable[[], Awaitable[None]]]:
        places = context.places(TOPIC)
        return [
            *(partial(_produce, context, at) for at in places),
            partial(read_on, context, "committed", places, committed=True),
            partial(read_on, context, "restless", places, committed=False, restless=True),
        ]

    async def finish(self, context: Context) -> None:
        """Nothing remains to be done."""


async def _produce(context: Context, at: Place) -> None:
    name = f"w{at[1]}"
    chance = context.random(name)
    producer = Idempotent(context.history, context.cluster(), name, at, context.options.value_size)
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
        except NotDone:
            must_init = True
        # Now and then a pause in which a broker may forget what it must not.
        await context.pause(1.5 if chance.random() < 0.02 else 0.01 * chance.random())
