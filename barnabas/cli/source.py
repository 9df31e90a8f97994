"""The input of `barnabas produce` as a stream of records.

Memory is bounded, and a line that is typed at a terminal is delivered before the next one.
"""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import BinaryIO

READ_SIZE = 256 * 1024
_READ_AHEAD = 4


async def read_chunks(
    file: BinaryIO, before: Callable[[], None] = lambda: None
) -> AsyncIterator[bytes]:
    """Yield the data of a file, a pipe or a terminal as it arrives; OSError if reading fails.

    `before` is called before each read. A thread reads up to _READ_AHEAD chunks ahead, so that the
    event loop is not blocked. It is a daemon thread, because a read from an idle terminal cannot be
    interrupted.
    """
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[bytes | OSError] = asyncio.Queue()
    credits = threading.Semaphore(_READ_AHEAD)

    def read_one() -> bytes | OSError:
        before()
        try:
            # Not `file.read`: at exit the blocked thread would still hold the lock of the file.
            return os.read(file.fileno(), READ_SIZE)
        except OSError as error:
            return error

    def read() -> None:
        # The loop or the file was closed during a read: the data is no longer needed.
        with suppress(RuntimeError, ValueError):
            while credits.acquire():
                chunk = read_one()
                loop.call_soon_threadsafe(chunks.put_nowait, chunk)
                if not chunk or isinstance(chunk, OSError):
                    return

    threading.Thread(target=read, name="input", daemon=True).start()
    while chunk := await chunks.get():
        if isinstance(chunk, OSError):
            raise chunk
        yield chunk
        credits.release()


async def split_records(chunks: AsyncIterator[bytes], end: bytes) -> AsyncIterator[list[bytes]]:
    """Yield the records between the delimiters `end`, all of a chunk together.

    Data after the last delimiter is a record, unless it is empty.
    """
    rest = bytearray()
    async for chunk in chunks:
        # A delimiter may be split across two chunks. Data that was searched is not searched again.
        start = max(0, len(rest) - len(end) + 1)
        rest += chunk
        if rest.find(end, start) < 0:
            continue
        *whole, last = bytes(rest).split(end)
        rest = bytearray(last)
        yield whole
    if rest:
        yield [bytes(rest)]
