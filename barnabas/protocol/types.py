"""The protocol's wire types as annotated Python types.

`Int16` is an `int` to a type checker and an `int16` to the codec. Uuids stay 16 raw bytes: they are
compared and hashed on the hot path and converted to text only for humans (`uuid_text`).
"""

import base64
from typing import Annotated, NamedTuple, Protocol, TypeVar

T = TypeVar("T")


class Wire(NamedTuple):
    """The wire type of a field: the protocol's name, or `array` or `struct` around another type."""

    kind: str
    nullable: bool = False


class RecordsSource(Protocol):
    """Record batches that are not in memory: a range of a log that the socket drains later."""

    def __len__(self) -> int:
        """Return the number of bytes this source yields; it is written as the field's length."""
        ...


Bool = Annotated[bool, Wire("bool")]
Int8 = Annotated[int, Wire("int8")]
Int16 = Annotated[int, Wire("int16")]
Uint16 = Annotated[int, Wire("uint16")]
Int32 = Annotated[int, Wire("int32")]
Uint32 = Annotated[int, Wire("uint32")]
Int64 = Annotated[int, Wire("int64")]
Float64 = Annotated[float, Wire("float64")]
Uuid = Annotated[bytes, Wire("uuid")]
String = Annotated[str, Wire("string")]
NullableString = Annotated[str | None, Wire("string", nullable=True)]
Bytes = Annotated[bytes, Wire("bytes")]
NullableBytes = Annotated[bytes | None, Wire("bytes", nullable=True)]
Records = Annotated[bytes | memoryview | RecordsSource | None, Wire("records", nullable=True)]
Array = Annotated[list[T], Wire("array")]
NullableArray = Annotated[list[T] | None, Wire("array", nullable=True)]
Nullable = Annotated[T | None, Wire("struct", nullable=True)]

ZERO_UUID = bytes(16)
"""Kafka's "no id", sent if a topic id is unknown or absent."""


def uuid_text(value: bytes) -> str:
    """Return a uuid as Kafka's tools print it: 22 characters of unpadded URL-safe base64."""
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def uuid_from_text(text: str) -> bytes:
    """Parse the text of `uuid_text`; raise ValueError if it is not 16 bytes."""
    value = base64.urlsafe_b64decode(text + "==")
    if len(value) != 16:
        raise ValueError(f"not a uuid: {text!r}")
    return value
