"""A proxy before a broker that holds one request back, whatever becomes of who sent it."""

import asyncio
import contextlib
import threading
from types import TracebackType
from typing import Self


class StallingProxy:
    """Hands on everything but the next request of `api` once `hold` was called, until `release`.

    It has its port before it knows the broker's, since the broker advertises the proxy. Where a
    client hangs up, its connection to the broker stays.
    """

    def __init__(self, api: int) -> None:
        self.port = 0
        self.to: tuple[str, int] = ("", 0)
        """The broker's own address."""
        self.held = threading.Event()
        """A request is being held."""
        self.answered = threading.Event()
        """The broker has answered on the connection of the request that was held."""
        self._api = api
        self._holds = False
        self._stalled: tuple[bytes, asyncio.StreamWriter] | None = None
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

    def hold(self) -> None:
        self._holds = True

    def release(self) -> None:
        """Hand the request on that was held; returns when it is answered."""
        self._loop.call_soon_threadsafe(self._hand_on)
        assert self.answered.wait(10)

    def _hand_on(self) -> None:
        assert self._stalled is not None
        request, writer = self._stalled
        writer.write(request)

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

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_broker, to_broker = await asyncio.open_connection(*self.to)
        answers = asyncio.create_task(self._answers(from_broker, to_broker, writer))
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                request = await _frame(reader)
                if self._holds and int.from_bytes(request[4:6]) == self._api:
                    self._holds = False
                    self._stalled = request, to_broker
                    self.held.set()
                else:
                    to_broker.write(request)
        if self._stalled is None or self._stalled[1] is not to_broker:
            to_broker.close()
        await answers

    async def _answers(
        self,
        reader: asyncio.StreamReader,
        of: asyncio.StreamWriter,
        writer: asyncio.StreamWriter,
    ) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                answer = await _frame(reader)
                if self._stalled is not None and self._stalled[1] is of:
                    self.answered.set()
                if not writer.is_closing():
                    writer.write(answer)
        writer.close()


async def _frame(reader: asyncio.StreamReader) -> bytes:
    size = await reader.readexactly(4)
    return size + await reader.readexactly(int.from_bytes(size))
