"""A parent and its children: their pipes, read in the turns of the loop, and their end."""

import asyncio
import os
import subprocess
import threading
from contextlib import suppress
from typing import IO

_CHUNK = 65_536


def read_pipe(descriptor: int) -> asyncio.StreamReader:
    """What comes out of the reading end of a pipe; `close_pipe` before it is closed.

    This is not the loop's `connect_read_pipe`: uvloop's closes the descriptor twice, and with it
    whatever another thread has opened in between.
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
    """Close the reading end; whoever reads from it hears no more."""
    if pipe is not None and not pipe.closed:
        asyncio.get_running_loop().remove_reader(pipe.fileno())
        pipe.close()


def take_output() -> int:
    """The descriptor behind standard output, for this process alone.

    What is printed goes to standard error from now on, and children do not inherit the pipe: its
    end is this process's end.
    """
    own = os.dup(1)
    os.dup2(2, 1)
    return own


def end_of(process: "subprocess.Popen[bytes]") -> "asyncio.Future[int]":
    """The exit code of a process, once it has one.

    A thread of its own waits for each process: those of the loop's pool are fewer than brokers may
    be, and whoever waits for one would stand behind all that run.
    """
    loop = asyncio.get_running_loop()
    end: asyncio.Future[int] = loop.create_future()

    def wait() -> None:
        code = process.wait()
        # The loop may have gone before.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(end.set_result, code)

    threading.Thread(target=wait, name=f"end-of-{process.pid}", daemon=True).start()
    return end
