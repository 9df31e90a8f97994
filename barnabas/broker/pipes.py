"""The pipes between a parent process and its children, and the exit of a child."""

import asyncio
import os
import subprocess
import threading
from contextlib import suppress
from typing import IO

_CHUNK = 65_536


def read_pipe(descriptor: int) -> asyncio.StreamReader:
    """Call back with the data of a pipe's reading end; call `close_pipe` before it is closed.

    uvloop's `connect_read_pipe` is not used: it closes the descriptor twice, and the second time
    possibly one that another thread has opened meanwhile.
    """
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
    os.set_blocking(descriptor, False)

    def readable() -> None:
        try:
            data = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return
        if data:
            reader.feed_data(data)
        else:
            loop.remove_reader(descriptor)
            reader.feed_eof()

    loop.add_reader(descriptor, readable)
    return reader


def close_pipe(pipe: IO[bytes] | None) -> None:
    """Stop reading and close the reading end."""
    if pipe is not None and not pipe.closed:
        asyncio.get_running_loop().remove_reader(pipe.fileno())
        pipe.close()


def take_output() -> int:
    """Return the descriptor behind standard output, for this process only.

    From then on prints go to standard error. Children do not inherit the pipe, so its end shows the
    end of this process.
    """
    own = os.dup(1)
    os.dup2(2, 1)
    return own


def end_of(process: "subprocess.Popen[bytes]") -> "asyncio.Future[int]":
    """Return the exit code of a process when it has ended.

    Each process has a thread that waits for it. The loop's pool has fewer threads than there may be
    brokers, so a wait in the pool could be delayed by the others.
    """
    loop = asyncio.get_running_loop()
    end: asyncio.Future[int] = loop.create_future()

    def wait() -> None:
        code = process.wait()
        # The loop may have been closed already.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(end.set_result, code)

    threading.Thread(target=wait, name=f"end-of-{process.pid}", daemon=True).start()
    return end
