"""A proxy before a broker that holds requests of an API back, whatever becomes of who sent them, or
lets all of them travel for a while."""

import asyncio
import contextlib
import random
import time
from typing import NamedTuple

from tests.support.proxy import Proxy, read_frame


class _Order(NamedTuple):
    api: int
    every: int
    seconds: float


class _Request(NamedTuple):
    due: float
    frame: bytes


class HoldingProxy(Proxy):
    """Holds requests of one API for a while; nothing overtakes them on their connections.

    Where a client hangs up meanwhile, what it sent reaches the broker all the same.
    """

    def __init__(self) -> None:
        super().__init__()
        self.held = 0
        self.released = 0
        self.delayed = 0
        self._order: _Order | None = None
        self._seen = 0
        self._travel = (0.0, 0.0)
        self._chance = random.Random(0)

    def hold(self, api: int, *, every: int, seconds: float) -> None:
        self._order = _Order(api, every, seconds)

    def let_go(self) -> None:
        """Hold no more of them; those that are held stay so for their time."""
        self._order = None

    def delay(self, least: float, most: float) -> None:
        """Every request is so many seconds on its way, by chance; others set out meanwhile."""
        self._travel = least, most

    def _due(self) -> float:
        self.delayed += self._travel[1] > 0
        return time.monotonic() + self._chance.uniform(*self._travel)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            from_broker, to_broker = await asyncio.open_connection(*self.to)
        except OSError:
            writer.close()
            return
        answers = asyncio.create_task(_answers(from_broker, writer))
        requests: asyncio.Queue[_Request | None] = asyncio.Queue()
        carrying = asyncio.create_task(self._carry(requests, to_broker))
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                frame = await read_frame(reader)
                requests.put_nowait(_Request(self._due(), frame))
        requests.put_nowait(None)
        await carrying
        to_broker.close()
        await answers

    async def _carry(
        self, requests: "asyncio.Queue[_Request | None]", to_broker: asyncio.StreamWriter
    ) -> None:
        while (arriving := await requests.get()) is not None:
            due, request = arriving
            if (left := due - time.monotonic()) > 0:
                await asyncio.sleep(left)
            order = self._order
            if order is not None and int.from_bytes(request[4:6]) == order.api:
                self._seen += 1
                if self._seen % order.every == 0:
                    self.held += 1
                    await asyncio.sleep(order.seconds)
                    self.released += 1
            to_broker.write(request)
            with contextlib.suppress(ConnectionError):
                await to_broker.drain()


async def _answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            answer = await read_frame(reader)
            if not writer.is_closing():
                writer.write(answer)
    writer.close()
