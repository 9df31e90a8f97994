"""A proxy that loses responses: the request reaches the broker, the connection breaks."""

import asyncio
import contextlib

from tests.support.proxy import Proxy, read_frame

PRODUCE = 0


class CuttingProxy(Proxy):
    """Breaks the connection instead of forwarding every third Produce response."""

    def __init__(self) -> None:
        super().__init__()
        self.cuts = 0
        self._produces = 0

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_broker, to_broker = await asyncio.open_connection(*self.to)
        produces: set[bytes] = set()
        requests = asyncio.create_task(_requests(reader, to_broker, produces))
        # If one side closes, the other is closed too.
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                answer = await read_frame(from_broker)
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
    """Forward requests and record the correlation ids of Produce requests."""
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            request = await read_frame(reader)
            if int.from_bytes(request[4:6]) == PRODUCE:
                produces.add(request[8:12])
            writer.write(request)
    writer.close()
