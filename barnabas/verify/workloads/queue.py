"""W1: transactions of one to eight batches in random partitions, a tenth of them aborted."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from barnabas.verify.context import Context
from barnabas.verify.workloads.producer_loop import ProducerLoop, by_chance
from barnabas.verify.workloads.workload import Stage, Topic, read_continuously

TOPIC = "queue"


class Queue:
    """Producers, and readers of three kinds."""

    topics: Sequence[Topic] = (Topic(TOPIC),)
    stages: Sequence[Stage] = ()

    def parts(self, context: Context) -> Sequence[Callable[[], Awaitable[None]]]:
        partitions = context.partitions(TOPIC)
        choose = by_chance(context, partitions)
        producers = [
            ProducerLoop(context, f"w{number}", f"w{number}", number, choose)
            for number in range(context.options.producers)
        ]
        return [
            *(producer.run for producer in producers),
            partial(read_continuously, context, "committed", partitions, committed=True),
            partial(read_continuously, context, "uncommitted", partitions, committed=False),
            partial(
                read_continuously, context, "restless", partitions, committed=True, restless=True
            ),
        ]

    async def finish(self, context: Context) -> None:
        """Do nothing."""
