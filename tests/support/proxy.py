"""A proxy between clients and a broker; subclasses decide what happens to requests."""

import asyncio
import threading
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Proxy(ABC):
    """Listens on its own loop in its own thread.

    It has its port before it knows the broker's, since the broker advertises the proxy.
    """

    def __init__(self) -> None:
        self.port = 0
        self.to: tuple[str, int] = ("", 0)
        """The broker's own address."""
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()

    @abstractmethod
    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one client's connection until it ends."""


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """Return one request or response with its size. Raises IncompleteReadError if the peer
    disconnects."""
    size = await reader.readexactly(4)
    return size + await reader.readexactly(int.from_bytes(size))
