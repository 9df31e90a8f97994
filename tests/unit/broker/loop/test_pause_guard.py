"""After a pause of the process no request is answered before the registration is checked."""

import asyncio
import math
from collections.abc import Coroutine
from typing import Any

from barnabas.broker.loop.clock import SystemClock
from barnabas.broker.loop.pause_guard import NO_PAUSE_GUARD, PauseGuard
from barnabas.broker.observability.events import EventLog
from barnabas.broker.server.context import RequestContext
from barnabas.protocol.messages import heartbeat
from tests.unit.broker.server.wire import Peer, heartbeat_request, turn


class Clock:
    """A clock that the test advances while the event loop does not run."""

    def __init__(self) -> None:
        self.now = 100.0

    def now_ms(self) -> int:
        return int(self.now * 1000)

    def monotonic(self) -> float:
        return self.now


class Rig:
    def __init__(self, *, allowed: float = 1.0) -> None:
        self.clock = Clock()
        self.certain = asyncio.Event()
        self.checks = 0
        self.tasks: list[asyncio.Task[None]] = []
        self.guard = PauseGuard(
            self.clock,
            allowed=allowed,
            events=EventLog(1, SystemClock()),
            recheck=self.recheck,
            soon=self.soon,
        )
        self.begun = 0
        self.peer = Peer(self.handle, clock=self.clock, guard=self.guard)
        self.guard.start()

    async def recheck(self) -> None:
        self.checks += 1
        await self.certain.wait()

    def soon(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(work))

    def handle(self, _request: Any, _context: RequestContext) -> heartbeat.HeartbeatResponse:
        self.begun += 1
        return heartbeat.HeartbeatResponse()

    def send(self) -> int:
        return self.peer.send(heartbeat.API, 4, heartbeat_request())


async def test_short_pause_is_ignored() -> None:
    rig = Rig()
    rig.clock.now += 1.0
    number = rig.send()
    assert rig.peer.answered() == [number]
    assert rig.checks == 0
    rig.guard.stop()


async def test_requests_after_pause_wait_for_registration_check() -> None:
    rig = Rig()
    rig.clock.now += 1.01
    numbers = [rig.send()]
    await turn()
    assert (rig.begun, rig.checks, rig.peer.transport.reading) == (0, 1, False)
    rig.clock.now += 50.0
    rig.certain.set()
    await turn()
    await turn()
    assert rig.peer.answered() == numbers
    assert rig.peer.transport.reading
    numbers.append(rig.send())
    assert rig.peer.answered() == numbers
    assert rig.checks == 1
    rig.guard.stop()


async def test_pause_is_detected_without_requests() -> None:
    rig = Rig(allowed=0.02)
    rig.clock.now += 5.0
    async with asyncio.timeout(5):
        while not rig.checks:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    rig.send()
    assert rig.begun == 0
    rig.certain.set()
    await turn()
    await turn()
    assert (rig.begun, rig.checks) == (1, 1)
    rig.guard.stop()


async def test_connection_closed_during_check_is_not_served() -> None:
    rig = Rig()
    rig.clock.now += 2.0
    rig.send()
    rig.peer.connection.connection_lost(None)
    rig.certain.set()
    await turn()
    await turn()
    assert rig.begun == 0
    rig.guard.stop()


async def test_time_while_loop_runs_is_no_pause() -> None:
    rig = Rig(allowed=0.04)
    for _ in range(20):
        rig.clock.now += 0.03
        before = rig.guard.until
        async with asyncio.timeout(5):
            while rig.guard.until == before:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
    assert rig.checks == 0
    rig.guard.stop()


async def test_broker_without_cluster_ignores_pauses() -> None:
    rig = Rig(allowed=math.inf)
    rig.clock.now += 1e9
    number = rig.send()
    assert rig.peer.answered() == [number]
    assert NO_PAUSE_GUARD.until == rig.guard.until == math.inf
