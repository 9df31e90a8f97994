"""W1: transactions of one to eight batches anywhere, a tenth of them aborted."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from barnabas.verify.context import Context
from barnabas.verify.workloads.producing import Producing, by_chance
from barnabas.verify.workloads.workload import Stage, Topic, read_on

TOPIC = "queue"


class Queue:
    """Producers beside readers of three kinds."""

    topics: Sequence[Topic] = (Topic(TOPIC),)
    stages: Sequence[Stage] = ()

    def parts(self, context: Context) -> Sequence[Callable[[], Awaitable[None]]]:
        places = context.places(TOPIC)
        choose = by_chance(context, places)
        producers = [
            Producing(context, f"w{number}", f"w{number}", number, choose)
            for number in range(context.options.producers)
        ]
        return [
            *(producer.run for producer in producers),
            partial(read_on, context, "committed", places, committed=True),
            partial(read_on, context, "uncommitted", places, committed=False),
            partial(read_on, context, "restless", places, committed=True, restless=True),
        ]

    async def finish(self, context: Context) -> None:
        """Nothing remains to be done."""
