"""Pipes between a parent and its children, read in the turns of the loop."""

import asyncio
import os
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
