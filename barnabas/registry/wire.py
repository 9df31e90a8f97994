"""The frame around a value: a zero byte, the schema's id in four bytes, and the encoded value.

Or a one, and the schema's GUID in 16 bytes. Both may be in a header of the record instead.

In Protobuf the value begins with the indexes of its message in the schema: their number and each
of them as zigzag varints, or a single 0 for the first message.
"""

from collections.abc import Sequence
from typing import Final, Literal
from uuid import UUID

from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.records.varint import VARINTS, read_varint
from barnabas.registry.errors import BadRecord

Part = Literal["key", "value"]
"""The part of a record that has a schema."""
SCHEMA_HEADERS: Final = {"key": "__key_schema_id", "value": "__value_schema_id"}
"""The headers that have the schema of a part of the record."""

_OF_ID: Final = 5
_OF_GUID: Final = 17
_DEEPEST: Final = 64
"""Nested messages at most; protoc refuses deeper ones."""
_NO_INDEXES: Final = "value does not begin with the indexes of a Protobuf message"


def frame(number: int, payload: bytes) -> bytes:
    """Return the value of a record whose schema has an id."""
    return b"\0" + number.to_bytes(4, "big") + payload


def unframe(value: bytes, header: bytes | None = None) -> tuple[int | UUID, bytes]:
    """Return id or GUID of the schema, and the encoded value; raises BadRecord.

    `header` is that of the schema. In Protobuf it has the indexes, too: they are before the value.
    """
    head = value if header is None else header
    number: int | UUID
    if len(head) >= _OF_ID and head[0] == 0:
        number, rest = int.from_bytes(head[1:_OF_ID], "big"), head[_OF_ID:]
    elif len(head) >= _OF_GUID and head[0] == 1:
        number, rest = UUID(bytes=head[1:_OF_GUID]), head[_OF_GUID:]
    else:
        where = "value" if header is None else "the header of the schema"
        text = f"{where} does not begin with a magic byte and a schema id"
        raise BadRecord(text, "no_schema_id")
    return number, rest if header is None else rest + value


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
