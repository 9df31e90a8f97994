"""The lags of groups over an hour: a sample a minute of each group that was shown lately."""

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, NamedTuple

from barnabas.operations.answers.groups import DescribedGroup

PERIOD_S: Final = 60.0
KEPT: Final = 60
"""The samples of a group."""
MOST_GROUPS: Final = 100
"""The groups with samples: the last that were shown."""
_FORGOTTEN_S: Final = KEPT * PERIOD_S
"""The time after which a group is not sampled any more, unless it is shown again."""
_AT_ONCE: Final = 8
_ANSWER_S: Final = 10.0


class Sample(NamedTuple):
    """The three lags of a group at a time; None for one that is unknown."""

    at: float
    lag: int | None
    to_read: int | None
    held_back: int | None


class _Shown:
    """A group that was shown, and its samples."""

    def __init__(self) -> None:
        self.last = 0.0
        self.samples: deque[Sample] = deque(maxlen=KEPT)


class Lags:
    """The samples of all groups; `describe` asks for one, and its errors leave a gap."""

    def __init__(
        self,
        describe: Callable[[str], Awaitable[DescribedGroup]],
        errors: tuple[type[Exception], ...],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._describe = describe
        self._errors = errors
        self._now = now
        self._groups: OrderedDict[str, _Shown] = OrderedDict()

    def shown(self, described: DescribedGroup) -> list[Sample]:
        """Note that a group is shown; return its samples of the last hour, oldest first."""
        group = self._groups.setdefault(described.group, _Shown())
        self._groups.move_to_end(described.group)
        while len(self._groups) > MOST_GROUPS:
            self._groups.popitem(last=False)
        group.last = self._now()
        self._take(group, described)
        return [each for each in group.samples if each.at > group.last - _FORGOTTEN_S]

    def _take(self, group: _Shown, described: DescribedGroup) -> None:
        now = self._now()
        if not group.samples or now - group.samples[-1].at >= PERIOD_S:
            values = described.lag, described.to_read, described.held_back
            group.samples.append(Sample(now, *values))

    async def run(self) -> None:
        """Take samples for ever."""
        while True:
            await asyncio.sleep(PERIOD_S)
            await self.sample()

    async def sample(self) -> None:
        """Take a sample of each group that was shown lately, and forget the others."""
        turns = asyncio.Semaphore(_AT_ONCE)

        async def one(name: str, group: _Shown) -> None:
            async with turns:
                with suppress(*self._errors):
                    async with asyncio.timeout(_ANSWER_S):
                        self._take(group, await self._describe(name))

        oldest = self._now() - _FORGOTTEN_S
        for name in [name for name, group in self._groups.items() if group.last <= oldest]:
            del self._groups[name]
        await asyncio.gather(*(one(*each) for each in self._groups.items()))
