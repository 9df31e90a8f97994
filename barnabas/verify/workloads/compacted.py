"""W5: transactions over few keys of a compacted topic, a third aborted, then compaction."""

import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from barnabas.verify.context import Context
from barnabas.verify.history import Partition
from barnabas.verify.wire.batches import Sent
from barnabas.verify.wire.idempotent import IdempotentProducer
from barnabas.verify.wire.reader import Reader
from barnabas.verify.workloads.producer_loop import ProducerLoop, by_chance
from barnabas.verify.workloads.workload import Stage, Topic, read_continuously

TOPIC = "compacted"
KEYS: Final = 12
PATIENCE: Final = 40.0
"""Seconds to wait for compaction; a broker checks every 15 s by default."""

_CONFIGS: Final = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.ms": "500",
    "delete.retention.ms": "100",
}


class CompactedTopic:
    """W1 with repeated keys, on a compacted topic."""

    topics: Sequence[Topic] = (Topic(TOPIC, _CONFIGS),)
    stages: Sequence[Stage] = ()

    def parts(self, context: Context) -> Sequence[Callable[[], Awaitable[None]]]:
        partitions = context.partitions(TOPIC)
        choose = by_chance(context, partitions, keys=KEYS, most=4)
        producers = [
            ProducerLoop(context, f"w{number}", f"w{number}", number, choose, aborts=0.35, late=0.0)
            for number in range(context.options.producers)
        ]
        return [
            *(producer.run for producer in producers),
            partial(read_continuously, context, "committed", partitions, committed=True),
            partial(read_continuously, context, "uncommitted", partitions, committed=False),
        ]

    async def finish(self, context: Context) -> None:
        """Roll the active segments and wait until compaction has removed records."""
        partitions = context.partitions(TOPIC)
        cluster = context.cluster()
        fillers = {
            at: IdempotentProducer(context.history, cluster, f"filler{at[1]}", at, 0)
            for at in partitions
        }
        for filler in fillers.values():
            await filler.init()
        waiting = set(partitions)
        before = {at: await _count(context, at) for at in partitions}
        deadline = time.monotonic() + PATIENCE
        while waiting and time.monotonic() < deadline:
            for at in sorted(waiting):
                sent = Sent(context.value(f"filler{at[1]}"), "filler")
                await fillers[at].send_many([[sent]])
                before[at] += 1
            await context.wait(1.0)
            waiting = {at for at in waiting if await _count(context, at) >= before[at]}
        if waiting:
            context.problem(f"{len(waiting)} partition(s) were not compacted in time")


async def _count(context: Context, at: Partition) -> int:
    """Return the number of records in a partition."""
    name = f"counter{at[1]}-{context.value('count')}"
    reader = Reader(context.history, context.cluster(), name, committed=False)
    reader.assign({at: 0})
    count = 0
    while True:
        position = reader.positions[at]
        found = await reader.poll(max_wait=0.0)
        count += len(found)
        if reader.positions[at] == position:
            return count
