"""What a vector is, and the words to write one down."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.header import encode_request_header
from barnabas.protocol.schema import Api, Message, fields_of


class Reaction(Enum):
    """What the broker does where it does not answer."""

    CLOSES = "closes the connection"
    WAITS = "waits for the rest"


CLOSES, WAITS = Reaction.CLOSES, Reaction.WAITS


@dataclass(frozen=True, slots=True)
class Vector:
    """Bytes to send on a connection of their own, and what must come of them."""

    name: str
    data: bytes
    expected: Reaction | ErrorCode
    """The error that the answer carries; NONE for an answer without any."""
    api: Api | None = None
    version: int = 0
    """Of the answer, where there is one."""


def frame(body: bytes) -> bytes:
    """A frame whose size is right."""
    return struct.pack(">i", len(body)) + body


def request(api: Api, version: int, body: bytes) -> bytes:
    """A request whose size and header are right."""
    return frame(encode_request_header(api.key, version, 7, "adversary") + body)


def string(text: bytes) -> bytes:
    """The string of a version that is not flexible."""
    return struct.pack(">h", len(text)) + text


def error_in(answer: Any) -> ErrorCode:
    """The first error anywhere in an answer."""
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
