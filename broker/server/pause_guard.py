"""A broker that was paused answers nothing before it knows that it is still registered.

While its process stood still the cluster may have gone on without it. Its own clock shows the
pause: the monotonic clock went on, and the event loop did not.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

from barnabas.broker.clock import Clock
from barnabas.broker.observability.logging import get_logger

_TICKS = 4
"""How often the loop shows that it runs, within the time that a pause may take."""
_log = get_logger(__name__)


class Held(Protocol):
    """Whoever has requests to serve."""

    def released(self) -> None:
        """Serve what has come."""
        ...


class Unguarded:
    """Of a broker that is alone: nobody can have gone on without it."""

    until = math.inf
    """Requests that arrive later by the monotonic clock are not served: call `hold`."""

    def hold(self, held: Held) -> None:
        """Have `released` called once requests may be served again."""


UNGUARDED = Unguarded()


class PauseGuard(Unguarded):
    """Notices pauses between `start` and `stop`."""

    def __init__(
        self,
        clock: Clock,
        *,
        allowed: float,
        recheck: Callable[[], Awaitable[None]],
        soon: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        """A pause of `allowed` seconds changes nothing. `recheck` returns when requests may be
        served again; `soon` runs what nobody waits for."""
        self._monotonic = clock.monotonic
        self._allowed = allowed
        self._recheck = recheck
        self._soon = soon
        self._held: dict[Held, None] = {}
        self._checking = False
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        if self._allowed < math.inf:
            self.until = self._monotonic() + self._allowed
            self._tick()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def hold(self, held: Held) -> None:
        self._held[held] = None
        self._check()

    def _tick(self) -> None:
        now = self._monotonic()
        if now > self.until:
            self._check()
        else:
            self.until = now + self._allowed
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._allowed / _TICKS, self._tick)

    def _check(self) -> None:
        if not self._checking:
            self._checking = True
            seconds = self._monotonic() - self.until + self._allowed
            _log.warning("the process was paused", seconds=round(seconds, 3))
            self.until = -math.inf
            self._soon(self._until_certain())

    async def _until_certain(self) -> None:
        await self._recheck()
        self._checking = False
        self.until = self._monotonic() + self._allowed
        _log.info("still registered, or again: requests are served")
        held, self._held = self._held, {}
        for each in held:
            each.released()
