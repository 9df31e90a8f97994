"""A small blocking client that sends exactly what a scenario says, also where it is wrong."""

import socket
import struct
from collections import deque
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from barnabas.protocol.codec import decode, encode
from barnabas.protocol.header import decode_response_header, encode_request_header
from barnabas.protocol.schema import Api, api

SERVED = (
    *(0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 19, 20, 21, 22, 23),
    *(24, 25, 26, 27, 28, 32, 33, 34, 35, 37, 42, 43, 44, 45, 46, 47, 57, 60, 61, 65, 66, 74, 75),
)
"""The API keys that Barnabas serves; the others of Kafka come with later releases."""

APIS: dict[type, Api] = {api(key).request: api(key) for key in SERVED}


class Closed(Exception):
    """The broker closed the connection instead of answering."""


class Connection:
    """One connection; requests may be pipelined, answers come in their order."""

    def __init__(self, host: str, port: int, client_id: str, timeout_s: float = 5) -> None:
        self._socket = socket.create_connection((host, port), timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._input = self._socket.makefile("rb")
        self._client_id = client_id
        self._correlation_id = 0
        self._expected: deque[tuple[Api, int, int]] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._input.close()
        self._socket.close()

    def post(self, request: Any, version: int, *, answered: bool = True) -> None:
        """Sends a request; `take` gives its answer, if it has one."""
        api = APIS[type(request)]
        self.post_bytes(api, version, encode(request, version), answered=answered)

    def post_bytes(
        self,
        api: Api,
        version: int,
        body: bytes,
        *,
        answered: bool = True,
        answer_version: int | None = None,
    ) -> None:
        """Sends a request whose body is already encoded, rightly or wrongly."""
        self._correlation_id += 1
        header = encode_request_header(api.key, version, self._correlation_id, self._client_id)
        if answered:
            answers_in = version if answer_version is None else answer_version
            self._expected.append((api, answers_in, self._correlation_id))
        # Where the broker has hung up already, `take` says so.
        with suppress(BrokenPipeError, ConnectionResetError):
            self._socket.sendall(struct.pack(">i", len(header) + len(body)) + header + body)

    def post_frame(self, api: Api, version: int, frame: bytes, size: int | None = None) -> None:
        """Sends header and body as they are, behind their size or a wrong one.

        The answer is expected to be of `api` and `version`.
        """
        correlation_id = int.from_bytes(frame[4:8], signed=True)
        self._expected.append((api, version, correlation_id))
        with suppress(BrokenPipeError, ConnectionResetError):
            self._socket.sendall(struct.pack(">i", len(frame) if size is None else size) + frame)

    def take(self) -> Any:
        """The answer to the oldest unanswered request; Closed when the broker hung up."""
        api, version, correlation_id = self._expected.popleft()
        frame = self._frame()
        answered, offset = decode_response_header(api.key, version, frame)
        assert answered == correlation_id, f"answer to {answered} instead of {correlation_id}"
        return decode(api.response, version, frame, offset)

    def _frame(self) -> bytes:
        (length,) = struct.unpack(">i", self._read(4))
        return self._read(length)

    def _read(self, size: int) -> bytes:
        try:
            data = self._input.read(size)
        except ConnectionResetError as error:
            raise Closed from error
        if len(data) < size:
            raise Closed
        return data
