"""Zig-zag variable-length integers of records (KIP-98, message format v2)."""

from typing import Final

from barnabas.protocol.errors import ProtocolError

Buffer = bytes | bytearray | memoryview

MAX_VARINT = 5
MAX_VARLONG = 10
CUT_OFF = "variable-length integer is too long or cut off"
_KEPT: Final = range(-64, 8192)
"""Lengths, deltas of neighbours: the values of one byte, and those of two that are not negative."""


def read_varint(buf: Buffer, pos: int) -> tuple[int, int]:
    """Return the signed 32-bit value at `pos`, and the position after it."""
    if pos < len(buf) and (byte := buf[pos]) < 0x80:
        # Most values take one byte: lengths of short fields, deltas of neighbours.
        return (byte >> 1) ^ -(byte & 1), pos + 1
    raw, pos = read_raw(buf, pos, MAX_VARINT)
    return unzigzag(raw), pos


def read_varlong(buf: Buffer, pos: int) -> tuple[int, int]:
    """Return the signed 64-bit value at `pos`, and the position after it."""
    if pos < len(buf) and (byte := buf[pos]) < 0x80:
        return (byte >> 1) ^ -(byte & 1), pos + 1
    raw, pos = read_raw(buf, pos, MAX_VARLONG)
    return unzigzag(raw), pos


def unzigzag(raw: int) -> int:
    """Return the signed value of a number as `read_raw` returns it."""
    return (raw >> 1) ^ -(raw & 1)


def read_raw(buf: Buffer, pos: int, max_bytes: int) -> tuple[int, int]:
    """Return the value at `pos` before its zigzag is undone, and the position after it.

    `max_bytes` is MAX_VARINT for values of 32 bits, MAX_VARLONG for those of 64.
    """
    raw = shift = 0
    for index in range(pos, min(pos + max_bytes, len(buf))):
        byte = buf[index]
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            if raw >> (32 if max_bytes == MAX_VARINT else 64):
                raise ProtocolError("variable-length integer is out of range")
            return raw, index + 1
        shift += 7
    raise ProtocolError(CUT_OFF)


class _Varints(dict[int, bytes]):
    """The encodings of signed values of up to 64 bits, of which those that come often are kept."""

    def __missing__(self, value: int) -> bytes:
        out = bytearray()
        write_varint(out, value)
        encoded = bytes(out)
        if value in _KEPT:
            self[value] = encoded
        return encoded


VARINTS: Final = _Varints()


def write_varint(out: bytearray, value: int) -> None:
    """Append a signed value of up to 64 bits; varint and varlong are encoded alike."""
    raw = (value << 1) ^ (value >> 63)
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
