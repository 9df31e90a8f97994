"""A vector of the malformed-frames test, and functions that build its bytes."""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.header import encode_request_header
from barnabas.protocol.schema import Api, Message, fields_of


class Reaction(Enum):
    """The reaction of a broker that sends no response."""

    CLOSES = "closes the connection"
    WAITS = "waits for the rest"


CLOSES, WAITS = Reaction.CLOSES, Reaction.WAITS


@dataclass(frozen=True, slots=True)
class Vector:
    """Bytes to send on a connection of their own, and the required reaction."""

    name: str
    content: bytes | Callable[[], bytes]
    """The bytes, or a function that makes them if that is slow: collection stays fast."""
    expected: Reaction | ErrorCode
    """The error code of the response; NONE for a response without errors."""
    api: Api | None = None
    version: int = 0
    """The version of the response, if there is one."""

    @property
    def data(self) -> bytes:
        return self.content if isinstance(self.content, bytes) else self.content()


def frame(body: bytes) -> bytes:
    """Return a frame with the right size."""
    return struct.pack(">i", len(body)) + body


def request(api: Api, version: int, body: bytes) -> bytes:
    """Return a request with the right size and header."""
    return frame(encode_request_header(api.key, version, 7, "adversary") + body)


def string(text: bytes) -> bytes:
    """Return a string of a version that is not flexible."""
    return struct.pack(">h", len(text)) + text


def error_in(answer: Any) -> ErrorCode:
    """Return the first error anywhere in a response."""
    codes = (code for code in _codes(answer) if code)
    return ErrorCode.of(next(codes, 0))


def _codes(part: Any) -> Iterator[int]:
    if isinstance(part, list):
        for each in part:
            yield from _codes(each)
    elif isinstance(part, Message):
        yield getattr(part, "error_code", 0)
        for field in fields_of(type(part)):
            yield from _codes(getattr(part, field.name))
