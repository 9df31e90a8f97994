"""The frame around a value: a zero byte, the schema's id in four bytes, and the encoded value.

In Protobuf the value begins with the indexes of its message in the schema: their number and each
of them as zigzag varints, or a single 0 for the first message.
"""

from collections.abc import Sequence
from typing import Final

from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.records.varint import VARINTS, read_varint
from barnabas.registry.errors import BadRecord

_HEADER: Final = 5
_DEEPEST: Final = 64
"""Nested messages at most; protoc refuses deeper ones."""
_NO_INDEXES: Final = "value does not begin with the indexes of a Protobuf message"


def frame(number: int, payload: bytes) -> bytes:
    """Return the value of a record whose schema has an id."""
    return b"\0" + number.to_bytes(4, "big") + payload


def unframe(value: bytes) -> tuple[int, bytes]:
    """Return the id of the schema and the encoded value; raises BadRecord."""
    if len(value) < _HEADER or value[0] != 0:
        raise BadRecord("value does not begin with the magic byte 0 and a schema id")
    return int.from_bytes(value[1:_HEADER], "big"), value[_HEADER:]


def write_indexes(indexes: Sequence[int]) -> bytes:
    """Return the indexes of a Protobuf message."""
    if list(indexes) == [0]:
        return b"\0"
    return b"".join(VARINTS[each] for each in (len(indexes), *indexes))


def read_indexes(payload: bytes) -> tuple[list[int], bytes]:
    """Return the indexes of a Protobuf message, and its bytes; raises BadRecord."""
    indexes = []
    try:
        count, at = read_varint(payload, 0)
        if count == 0:
            return [0], payload[at:]
        if not 0 < count <= _DEEPEST:
            raise BadRecord(_NO_INDEXES)
        for _ in range(count):
            index, at = read_varint(payload, at)
            indexes.append(index)
    except ProtocolError:
        raise BadRecord(_NO_INDEXES) from None
    return indexes, payload[at:]
