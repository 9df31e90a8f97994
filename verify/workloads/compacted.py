"""W5: transactions over few keys of a compacted topic, a third aborted, then compaction."""

import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from barnabas.verify.context import Context
from barnabas.verify.history import Place
from barnabas.verify.wire.batches import Sent
from barnabas.verify.wire.idempotent import Idempotent
from barnabas.verify.wire.reader import Reader
from barnabas.verify.workloads.producing import Producing, by_chance
from barnabas.verify.workloads.workload import Stage, Topic, read_on

TOPIC = "compacted"
KEYS: Final = 12
PATIENCE: Final = 40.0
"""How long compaction is waited for, in s: a broker looks every 15 s by default."""

_CONFIGS: Final = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.ms": "500",
    "delete.retention.ms": "100",
}


class Compacted:
    """As W1, with keys that repeat."""

    topics: Sequence[Topic] = (Topic(TOPIC, _CONFIGS),)
    stages: Sequence[Stage] = ()

    def parts(self, context: Context) -> Sequence[Callable[[], Awaitable[None]]]:
        places = context.places(TOPIC)
        choose = by_chance(context, places, keys=KEYS, most=4)
        producers = [
            Producing(context, f"w{number}", f"w{number}", number, choose, aborts=0.35, late=0.0)
            for number in range(context.options.producers)
        ]
        return [
            *(producer.run for producer in producers),
            partial(read_on, context, "committed", places, committed=True),
            partial(read_on, context, "uncommitted", places, committed=False),
        ]

    async def finish(self, context: Context) -> None:
        """Rolls the last segments, and waits until the log has become shorter."""
        places = context.places(TOPIC)
        cluster = context.cluster()
        fillers = {
            at: Idempotent(context.history, cluster, f"filler{at[1]}", at, 0) for at in places
        }
        for filler in fillers.values():
            await filler.init()
        waiting = set(places)
        before = {at: await _count(context, at) for at in places}
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


async def _count(context: Context, at: Place) -> int:
    """How many records a partition holds now."""
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
