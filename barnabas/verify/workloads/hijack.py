"""W6: two producers with the same transactional id, which fence each other again and again."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from barnabas.verify.context import Context
from barnabas.verify.workloads.producer_loop import ProducerLoop, by_chance
from barnabas.verify.workloads.workload import Stage, Topic, read_continuously

TOPIC = "hijack"
REST = 0.05
"""The minimum seconds until a fenced producer takes over again."""
NAP = 1.0
"""Seconds of an occasional pause: state that the broker drops meanwhile must not come back."""


class _Rival(ProducerLoop):
    """A producer that lets the other one work for a while before it takes over."""

    async def take_over(self) -> None:
        if await self._context.pause(REST * (1 + 3 * self._chance.random())):
            await super().take_over()
            if self._chance.random() < 0.1:
                await self._context.pause(NAP)

    async def step(self) -> None:
        if self._chance.random() < 0.01:
            await self._context.pause(NAP)
        await super().step()


class Hijack:
    """Pairs of producers with the same transactional id."""

    topics: Sequence[Topic] = (Topic(TOPIC),)
    stages: Sequence[Stage] = ()

    def parts(self, context: Context) -> Sequence[Callable[[], Awaitable[None]]]:
        partitions = context.partitions(TOPIC)
        choose = by_chance(context, partitions, most=4)
        rivals = [
            _Rival(context, f"w{number}{side}", f"w{number}", number, choose, late=0.0)
            for number in range(max(1, context.options.producers // 2))
            for side in "ab"
        ]
        return [
            *(rival.run for rival in rivals),
            partial(read_continuously, context, "committed", partitions, committed=True),
            partial(read_continuously, context, "uncommitted", partitions, committed=False),
        ]

    async def finish(self, context: Context) -> None:
        """Do nothing."""
