"""The floor of a broker in Python: a bare protocol on uvloop that does what `floor.c` does.

python benchmarks/uvloop_floor.py PORT FILE LOG ANSWERS
"""

import asyncio
import os
import sys
from pathlib import Path
from struct import Struct, unpack_from
from typing import NamedTuple, cast

import uvloop

_SIZE = Struct(">i")
_BUFFER = 4 << 20


class Answer(NamedTuple):
    """The appends and the answer of a request of one API; see `floors.Answer`."""

    skip: int
    tail: int
    appends: list[bytes]
    stored: int
    answer: bytes


def answers(path: Path) -> dict[int, Answer]:
    """Read the file of answers."""
    data, at, found = path.read_bytes(), 4, {}
    for _ in range(unpack_from("=i", data)[0]):
        key, skip, tail, appends = unpack_from("=4i", data, at)
        sizes = unpack_from(f"={appends}i", data, at + 16)
        at += 16 + 4 * appends
        stored, size = unpack_from("=2i", data, at)
        found[key] = Answer(
            skip, tail, list(map(bytes, sizes)), stored, data[at + 8 : at + 8 + size]
        )
        at += 8 + size
    return found


class Floor:
    """The files, and the answers by API."""

    def __init__(self, file: str, log: str, path: Path) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
        self.file, self.log = os.open(file, flags, 0o600), os.open(log, flags, 0o600)
        self.answers = answers(path)
        self.position = 0

    def serve(self, frame: memoryview) -> bytes:
        """Do the appends of a request and return its answer."""
        skip, tail, appends, stored, answer = self.answers[frame[5]]
        if skip >= 0:
            os.write(self.file, frame[skip : len(frame) - tail])
        for each in appends:
            os.write(self.log, each)
        answer = b"".join((answer[:4], frame[8:12], answer[8:]))
        if stored:
            answer += os.pread(self.file, stored, self.position)
            self.position += stored
        return answer


class Connection(asyncio.BufferedProtocol):
    """One connection with a buffer of its own."""

    def __init__(self, floor: Floor) -> None:
        self._floor = floor
        self._view = memoryview(bytearray(_BUFFER))
        self._filled = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have asyncio's methods, but not its classes.
        self._transport = cast(asyncio.WriteTransport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        return self._view[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        filled, at, view, out = self._filled + nbytes, 0, self._view, []
        while filled - at >= 4 and (end := at + 4 + _SIZE.unpack_from(view, at)[0]) <= filled:
            out.append(self._floor.serve(view[at:end]))
            at = end
        if at and filled > at:
            view[: filled - at] = bytes(view[at:filled])
        self._filled = filled - at
        if out:
            self._transport.write(b"".join(out) if len(out) > 1 else out[0])


async def main() -> None:
    port, file, log, path = sys.argv[1:]
    floor = Floor(file, log, Path(path))
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(floor), "127.0.0.1", int(port))
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
