"""A proxy before a broker that loses answers: the request arrives, the connection breaks."""

import asyncio
import contextlib
import threading
from types import TracebackType
from typing import Self

PRODUCE = 0


class CuttingProxy:
    """Breaks the connection in place of every third answer to a Produce.

    It has its port before it knows the broker's, since the broker advertises the proxy.
    """

    def __init__(self) -> None:
        self.port = 0
        self.cuts = 0
        self.to: tuple[str, int] = ("", 0)
        """The broker's own address."""
        self._produces = 0
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

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_broker, to_broker = await asyncio.open_connection(*self.to)
        produces: set[bytes] = set()
        requests = asyncio.create_task(_requests(reader, to_broker, produces))
        # Where one side is gone, so goes the other.
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                answer = await _frame(from_broker)
                if answer[4:8] in produces and self._is_cut():
                    break
                writer.write(answer)
        requests.cancel()
        writer.close()
        to_broker.close()

    def _is_cut(self) -> bool:
        self._produces += 1
        cut = self._produces % 3 == 0
        self.cuts += cut
        return cut


async def _requests(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, produces: set[bytes]
) -> None:
    """Hands requests on and notes the correlation ids of those that write."""
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            request = await _frame(reader)
            if int.from_bytes(request[4:6]) == PRODUCE:
                produces.add(request[8:12])
            writer.write(request)
    writer.close()


async def _frame(reader: asyncio.StreamReader) -> bytes:
    size = await reader.readexactly(4)
    return size + await reader.readexactly(int.from_bytes(size))
