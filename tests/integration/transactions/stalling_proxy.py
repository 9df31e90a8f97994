"""A proxy before a broker that holds one request back, even if its sender disconnects."""

import asyncio
import contextlib
import threading

from tests.support.proxy import Proxy, read_frame


class StallingProxy(Proxy):
    """Forwards everything but the next request of `api` after `hold`, until `release`.

    If a client disconnects, its connection to the broker stays.
    """

    def __init__(self, api: int) -> None:
        super().__init__()
        self.held = threading.Event()
        """Set while a request is being held."""
        self.answered = threading.Event()
        """Set when the broker has answered on the connection of the held request."""
        self._api = api
        self._holds = False
        self._stalled: tuple[bytes, asyncio.StreamWriter] | None = None

    def hold(self) -> None:
        self._holds = True

    def release(self) -> None:
        """Forward the held request; return when it is answered."""
        self._loop.call_soon_threadsafe(self._hand_on)
        assert self.answered.wait(10)

    def _hand_on(self) -> None:
        assert self._stalled is not None
        request, writer = self._stalled
        writer.write(request)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_broker, to_broker = await asyncio.open_connection(*self.to)
        answers = asyncio.create_task(self._answers(from_broker, to_broker, writer))
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                request = await read_frame(reader)
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
                answer = await read_frame(reader)
                if self._stalled is not None and self._stalled[1] is of:
                    self.answered.set()
                if not writer.is_closing():
                    writer.write(answer)
        writer.close()
