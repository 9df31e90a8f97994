"""Encoding and decoding of messages; `compile` generates the code behind these functions."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from barnabas.protocol.compile_decode import decoder
from barnabas.protocol.compile_encode import encoder
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.types import RecordsSource

__all__ = ["decode", "decode_prefix", "decoder", "encode", "encode_parts", "encoder"]

M = TypeVar("M")


def decode(cls: type[M], version: int, buf: bytes | bytearray | memoryview, offset: int = 0) -> M:
    """Decode the message that fills `buf` from `offset` to its end.

    Records fields are views of `buf`; everything else is copied. Raise ProtocolError if the bytes
    are not exactly one message of this version, or the message has no such version.
    """
    known: dict[int, Callable[..., M]] = cls._decoders  # type: ignore[attr-defined]
    try:
        compiled = known[version]
    except KeyError:
        compiled = decoder(cls, version)
    return compiled(buf, offset)


def decode_prefix(
    cls: type[M], version: int, buf: bytes | bytearray | memoryview, offset: int = 0
) -> M:
    """Decode the message that begins at `offset`, and skip what is behind it.

    For formats that grow at their end, of which a later version may be stored. Raise as `decode`.
    """
    found: M = decoder(cls, version)(buf, offset, False)
    return found


def encode(message: Any, version: int) -> bytes:
    """Encode a message as bytes; raise ProtocolError if this version cannot carry a field's value.

    Records that are still in a log (RecordsSource) need `encode_parts`.
    """
    try:
        compiled = message._encoders[version]
    except KeyError:
        compiled = encoder(type(message), version)
    parts = compiled(message)
    if len(parts) == 1:
        return cast(bytes, parts[0])
    try:
        return b"".join(parts)
    except TypeError as error:
        raise ProtocolError("records that are not in memory need encode_parts") from error


def encode_parts(message: Any, version: int) -> list[bytes | memoryview | RecordsSource]:
    """Encode a message as pieces in wire order; records are passed through without a copy."""
    parts: list[bytes | memoryview | RecordsSource] = encoder(type(message), version)(message)
    return parts
