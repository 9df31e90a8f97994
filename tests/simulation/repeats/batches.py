"""Batches and requests of other bytes, for histories of two brokers."""

import struct
from collections.abc import Callable
from typing import Any

from barnabas.protocol.compile import write_uvarint
from barnabas.protocol.records.batch import ATTRIBUTES_AT
from barnabas.protocol.records.checksum import crc32c
from barnabas.protocol.records.record import Record, build_batch
from tests.support.virtual_loop import BIRTHDAY_MS

TIME_MS = BIRTHDAY_MS
_CRC_AT = 17
_FIELDS = {
    "base_offset": (">q", 0),
    "length": (">i", 8),
    "leader_epoch": (">i", 12),
    "magic": (">b", 16),
    "attributes": (">h", 21),
    "delta": (">i", 23),
    "base_ms": (">q", 27),
    "max_ms": (">q", 35),
    "producer_id": (">q", 43),
    "count": (">i", 57),
}
"""Format and position of the fields of a batch header."""


def batch(*values: bytes, at_ms: int = TIME_MS, key: bytes | None = None, **options: Any) -> bytes:
    """Return a batch of records with one key, or without keys."""
    values = values or (b"value",)
    return build_batch(
        [Record(at, at_ms, key, each, ()) for at, each in enumerate(values)], **options
    )


def changed(records: bytes, **fields: int) -> bytes:
    """Return a batch with other header fields, and the CRC of what it is then."""
    data = bytearray(records)
    for name, value in fields.items():
        form, position = _FIELDS[name]
        struct.pack_into(form, data, position, value)
    struct.pack_into(">I", data, _CRC_AT, crc32c(memoryview(data)[ATTRIBUTES_AT:]))
    return bytes(data)


Change = Callable[[bytes, bytes, int], bytes]


def cut(size: int) -> Change:
    return lambda whole, *_: whole[:size]


def behind(more: bytes) -> Change:
    return lambda whole, *_: whole + more


def tagged(tags: bytes) -> Change:
    return lambda whole, *_: whole[:-3] + tags


def longer(more: int) -> Change:
    """Change the length of the records; by 0 it has a byte more than it needs, if it is compact."""

    def change(whole: bytes, records: bytes, version: int) -> bytes:
        at, size = whole.index(records), len(records) + more
        if version < 9:
            return whole[: at - 4] + struct.pack(">i", size + 2 * (not more)) + whole[at:]
        field = bytearray(write_uvarint(size + 1))
        if not more:
            field[-1] |= 128
            field.append(0)
        return whole[: at - len(write_uvarint(len(records) + 1))] + bytes(field) + whole[at:]

    return change


ODD = {
    **{f"cut to {size}": cut(size) for size in (0, 1, 3, 4, 8, 30, -80, -60, -20, -4, -3, -1)},
    **{f"behind: {more!r}": behind(more) for more in (b"\0", b"\0" * 3, b"\1", b"more")},
    **{f"longer by {more}": longer(more) for more in (-70, -3, -1, 0, 1, 3, 1000)},
    **{f"tags {tags!r}": tagged(tags) for tags in (b"\0\0\1", b"\0\1\0", b"\1\0\0")},
    **{f"tags {tags!r}": tagged(tags) for tags in (b"\1\7\1x\0\0", b"\0\0\1\7\1x")},
}
"""Changes of a Produce request into other bytes: its bytes, records and version are given."""
