"""The guard against pauses of the process: afterwards the broker checks that it is registered.

During a pause the cluster may have elected other leaders. The broker detects the pause by its
monotonic clock, which advanced while the event loop did not run.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

from barnabas.broker.observability.events import PROCESS_PAUSED, EventLog
from barnabas.broker.observability.logging import get_logger
from barnabas.coordinator.ports import Clock

_TICKS = 4
"""The checks of the clock within the allowed pause."""
_log = get_logger(__name__)


class HeldConnection(Protocol):
    """A connection with requests to serve."""

    def released(self) -> None:
        """Serve the received requests."""
        ...


class NoPauseGuard:
    """The guard of a broker that is not in a cluster: a pause has no consequences."""

    until = math.inf
    """Requests that arrive later, by the monotonic clock, must not be served: call `hold`."""

    def hold(self, held: HeldConnection) -> None:
        """Call `held.released` when requests may be served again."""


NO_PAUSE_GUARD = NoPauseGuard()


class PauseGuard(NoPauseGuard):
    """The guard of a broker in a cluster; it detects pauses between `start` and `stop`."""

    def __init__(
        self,
        clock: Clock,
        *,
        allowed: float,
        events: EventLog,
        recheck: Callable[[], Awaitable[None]],
        soon: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        """A pause of up to `allowed` seconds is ignored. `recheck` returns when requests may be
        served again; `soon` starts a background task."""
        self._monotonic = clock.monotonic
        self._allowed = allowed
        self._events = events
        self._recheck = recheck
        self._soon = soon
        self._held: dict[HeldConnection, None] = {}
        self._checking = False
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        if self._allowed < math.inf:
            self.until = self._monotonic() + self._allowed
            self._tick()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def hold(self, held: HeldConnection) -> None:
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
            self._events.add(_log, PROCESS_PAUSED, seconds=round(seconds, 3))
            self.until = -math.inf
            self._soon(self._until_certain())

    async def _until_certain(self) -> None:
        await self._recheck()
        self._checking = False
        self.until = self._monotonic() + self._allowed
        _log.info("registration confirmed, requests are served again")
        held, self._held = self._held, {}
        for each in held:
            each.released()
