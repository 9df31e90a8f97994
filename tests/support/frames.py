"""A small blocking client of frames of bytes, and the frames of messages."""

import select
import socket
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping
from heapq import heappop, heappush
from itertools import repeat
from struct import Struct
from typing import Any, Final, Self

from barnabas.protocol.codec import decode, encode
from barnabas.protocol.header import decode_response_header, encode_request_header
from barnabas.protocol.schema import Api, WireType, fields_of

_SIZE: Final = Struct(">i")
_ANSWERED_WITHIN_S: Final = 180.0


class Closed(ConnectionError):
    """The broker closed the connection instead of answering."""


def message(kind: Any, data: Any) -> Any:
    """Return a message from plain data, with a dict for each struct."""
    if not isinstance(data, Mapping):
        return data
    types = {each.name: each.type for each in fields_of(kind)}
    return kind(**{name: _field(types[name], value) for name, value in data.items()})


def _field(kind: WireType, value: Any) -> Any:
    if kind.item is not None and value is not None:
        return [_field(kind.item, each) for each in value]
    return value if kind.struct is None else message(kind.struct, value)


def frame(api: Api, version: int, request: Any) -> bytes:
    """Return a complete request as bytes; `request` is a message, or the data of one."""
    header = encode_request_header(api.key, version, 1, "benchmark")
    body = encode(message(api.request, request), version)
    return _SIZE.pack(len(header) + len(body)) + header + body


def response(api: Api, version: int, answer: bytes) -> Any:
    """Decode the response to a request."""
    _, body = decode_response_header(api.key, version, answer)
    return decode(api.response, version, answer, body)


class Client:
    """One connection. Responses arrive in the order of the requests."""

    def __init__(
        self,
        port: int,
        secured: Callable[[socket.socket], socket.socket] = lambda plain: plain,
        host: str = "127.0.0.1",
        timeout_s: float = 30,
    ) -> None:
        plain = socket.create_connection((host, port), timeout_s)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = secured(plain)
        self.port = port
        self._answers = self._socket.makefile("rb", 1024 * 1024)
        self.last_answer = b""
        """The last response of a stream."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._answers.close()
        self._socket.close()

    def fileno(self) -> int:
        """Return the descriptor of the socket."""
        return self._socket.fileno()

    def send(self, request: bytes | bytearray) -> None:
        """Send one request; `receive` returns its response."""
        self._socket.sendall(request)

    def receive(self) -> bytes:
        """Return the response of the oldest request that has none yet. Raises Closed if the broker
        disconnects."""
        size: int = _SIZE.unpack(self._read(_SIZE.size))[0]
        return self._read(size)

    def exchange(self, request: bytes | bytearray) -> bytes:
        """Send one request and return its response."""
        self._socket.sendall(request)
        return self.receive()

    def call(self, api: Api, version: int, request: Any) -> Any:
        """Send and decode a message that is not worth preparing; `request` is as in `frame`."""
        return response(api, version, self.exchange(frame(api, version, request)))

    def stream(self, requests: Iterable[bytes | bytearray], window: int) -> list[float]:
        """Send request after request, with up to `window` of them in flight.

        Return the seconds from each request to its response, ascending.
        """
        clock, flying = time.perf_counter, deque[float]()
        taken = []
        for request in requests:
            if len(flying) == window:
                self.last_answer = self.receive()
                taken.append(clock() - flying.popleft())
            flying.append(clock())
            self._socket.sendall(request)
        for began in flying:
            self.last_answer = self.receive()
            taken.append(clock() - began)
        return sorted(taken)

    def latencies(self, request: bytes, count: int) -> list[float]:
        """Return the seconds of `count` requests that are sent one at a time, ascending."""
        return self.stream(repeat(request, count), window=1)

    def _read(self, size: int) -> bytes:
        try:
            data: bytes = self._answers.read(size)
        except ConnectionResetError as error:
            raise Closed from error
        if len(data) < size:
            raise Closed("the broker closed the connection")
        return data


Talk = Generator[tuple[Client, bytes] | float, Any, None]
"""Requests of a client, one after the other. It yields a connection and a request, and gets the
answer; or a time of the monotonic clock, at which it goes on."""


def converse(talks: Iterable[Talk]) -> None:
    """Let talks take place at the same time, in this thread."""
    waiting = [(0.0, number, talk) for number, talk in enumerate(talks)]
    flying: dict[int, tuple[Client, int, Talk]] = {}
    known: set[int] = set()
    with select.epoll() as poll:

        def go_on(number: int, talk: Talk, answer: bytes | None) -> None:
            try:
                wanted = talk.send(answer)
            except StopIteration:
                return
            if isinstance(wanted, float):
                heappush(waiting, (wanted, number, talk))
                return
            client, request = wanted
            if client.fileno() not in known:
                known.add(client.fileno())
                poll.register(client.fileno(), select.EPOLLIN)
            flying[client.fileno()] = client, number, talk
            client.send(request)

        while waiting or flying:
            wait = waiting[0][0] - time.monotonic() if waiting else _ANSWERED_WITHIN_S
            for fileno, _ in poll.poll(max(wait, 0.0)):
                client, number, talk = flying.pop(fileno)
                go_on(number, talk, client.receive())
            while waiting and waiting[0][0] <= time.monotonic():
                _, number, talk = heappop(waiting)
                go_on(number, talk, None)
