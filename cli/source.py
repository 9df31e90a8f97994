"""Input as a stream of pieces: bounded memory, and no line of a person is kept waiting."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import BinaryIO

READ_SIZE = 256 * 1024
_READ_AHEAD = 4


async def read_chunks(file: BinaryIO) -> AsyncIterator[bytes]:
    """What a file, a pipe or a terminal gives, as it comes; OSError where it cannot be read.

    A thread reads ahead a little, so that the event loop works meanwhile. It is a daemon, because
    nothing wakes it from a terminal where nobody types.
    """
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[bytes | OSError] = asyncio.Queue()
    room = threading.Semaphore(_READ_AHEAD)

    def read_one() -> bytes | OSError:
        try:
            # Not `file.read`: its lock would be held for ever when the process ends.
            return os.read(file.fileno(), READ_SIZE)
        except OSError as error:
            return error

    def read() -> None:
        # The loop may be closed while a read goes on: then nobody wants it any more.
        with suppress(RuntimeError):
            while room.acquire():
                chunk = read_one()
                loop.call_soon_threadsafe(chunks.put_nowait, chunk)
                if not chunk or isinstance(chunk, OSError):
                    return

    threading.Thread(target=read, name="input", daemon=True).start()
    while chunk := await chunks.get():
        if isinstance(chunk, OSError):
            raise chunk
        yield chunk
        room.release()


async def split_records(chunks: AsyncIterator[bytes], end: bytes) -> AsyncIterator[bytes]:
    """The pieces between delimiters; an unfinished last one counts, an empty one does not."""
    rest = bytearray()
    async for chunk in chunks:
        # A delimiter may lie across two chunks; what was searched before is not searched again.
        start = max(0, len(rest) - len(end) + 1)
        rest += chunk
        if rest.find(end, start) < 0:
            continue
        *whole, last = bytes(rest).split(end)
        rest = bytearray(last)
        for record in whole:
            yield record
    if rest:
        yield bytes(rest)
