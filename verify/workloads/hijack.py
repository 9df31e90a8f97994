"""W6: two producers with one transactional id; each takes over from the other, again and again."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from barnabas.verify.context import Context
from barnabas.verify.workloads.producing import Producing, by_chance
from barnabas.verify.workloads.workload import Stage, Topic, read_on

TOPIC = "hijack"
REST = 0.05
"""Until a producer that was replaced takes over again, at least, in s."""
NAP = 1.0
"""How long a producer sleeps now and then, in s: what is forgotten meanwhile must not come back."""


class _Rival(Producing):
    """Lets the other one work for a while."""

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
    """Pairs of rivals."""

    topics: Sequence[Topic] = (Topic(TOPIC),)
    stages: Sequence[Stage] = ()

    def parts(self, context: Context) -> Sequence[Callable[[], Awaitable[None]]]:
        places = context.places(TOPIC)
        choose = by_chance(context, places, most=4)
        rivals = [
            _Rival(context, f"w{number}{side}", f"w{number}", number, choose, late=0.0)
            for number in range(max(1, context.options.producers // 2))
            for side in "ab"
        ]
        return [
            *(rival.run for rival in rivals),
            partial(read_on, context, "committed", places, committed=True),
            partial(read_on, context, "uncommitted", places, committed=False),
        ]

    async def finish(self, context: Context) -> None:
        """Nothing remains to be done."""
