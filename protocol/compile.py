"""What both compilers share (`compile_decode`, `compile_encode`).

They turn (message, version) into straight-line Python, once, when it is first needed.

The generated decoder and encoder are one function each for the whole message, nested structs and
arrays included. Adjacent fixed-size fields travel through one `Struct`, together with the length
that follows them, so that a typical struct costs one call.

Reading past the end needs no test of its own: a slice comes out short, but the position moves on
by the claimed length, and either the next read fails or the final position is not the end. Nor
does an array's count allocate anything: each element is read before the next one is made, and a
count of numbers, which are unpacked in one go, is tested against the bytes that remain.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from struct import Struct
from typing import Any

from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.schema import Field, Message, Schema, fields_of

FORMATS = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
"""Kinds of fixed size, as `struct` writes them (big-endian)."""

MAX_STRING = 0x7FFF
MAX_ELEMENTS = 1 << 20
"""Longest array: its elements take far more memory than their bytes on the wire."""

_TWO_BYTES = Struct("2B").pack
_THREE_BYTES = Struct("3B").pack

SMALL = 16
"""Arrays of numbers shorter than this have a `Struct` of their own."""


def read_uvarint(buf: Any, position: int) -> tuple[int, int]:
    """An unsigned varint of at most five bytes and the position behind it."""
    # Lengths of records take two to four bytes in every Produce and Fetch, hence unrolled.
    value = buf[position]
    if value < 0x80:
        return value, position + 1
    byte = buf[position + 1]
    value += (byte << 7) - 0x80
    if byte < 0x80:
        return value, position + 2
    byte = buf[position + 2]
    value += (byte << 14) - 0x4000
    if byte < 0x80:
        return value, position + 3
    byte = buf[position + 3]
    value += (byte << 21) - 0x200000
    if byte < 0x80:
        return value, position + 4
    byte = buf[position + 4]
    value += (byte << 28) - 0x10000000
    if byte < 0x10:
        return value, position + 5
    raise ProtocolError("a varint does not fit 32 bits")


def write_uvarint(value: int) -> bytes:
    """A number of at most 32 bits as an unsigned varint."""
    if 0x7F < value < 0x4000:
        return _TWO_BYTES(value & 0x7F | 0x80, value >> 7)
    if 0x3FFF < value < 0x200000:
        return _THREE_BYTES(value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_string_length(buf: Any, position: int) -> tuple[int, int]:
    """A compact string's length as it travels: one more than its bytes, 0 for null."""
    length, position = read_uvarint(buf, position)
    if length > MAX_STRING + 1:
        raise ProtocolError(f"a string of {length - 1} bytes is longer than {MAX_STRING}")
    return length, position


def read_count(buf: Any, position: int) -> tuple[int, int]:
    """A compact array's count as it travels: one more than its elements, 0 for null."""
    count, position = read_uvarint(buf, position)
    if count > MAX_ELEMENTS + 1:
        raise ProtocolError(f"an array of {count - 1} elements is longer than {MAX_ELEMENTS}")
    return count, position


def write_string_length(length: int) -> bytes:
    """The inverse of `read_string_length`."""
    if length > MAX_STRING + 1:
        raise ProtocolError(f"a string of {length - 1} bytes is longer than {MAX_STRING}")
    return write_uvarint(length)


def skip_tags(buf: Any, position: int) -> int:
    """Step over a section of tagged fields none of which this version knows."""
    if not buf[position]:
        return position + 1
    count, position = read_uvarint(buf, position)
    for _ in range(count):
        _, position = read_uvarint(buf, position)
        size, position = read_uvarint(buf, position)
        position += size
    return position


def schema_of(cls: type[Any]) -> Schema:
    """The schema that was declared for a message; TypeError for one that only lives inside."""
    schema: Schema | None = cls._schema
    if schema is None:
        raise TypeError(f"{cls.__name__} is part of another message and has no versions of its own")
    return schema


class Source:
    """Lines of a function in the making, the names it uses, and the run of fixed fields."""

    def __init__(self, schema: Schema, version: int) -> None:
        if version not in schema.versions:
            raise ProtocolError(f"{schema.cls.__name__} has no version {version}")
        self.schema = schema
        self.version = version
        self.compact = schema.is_flexible(version)
        self.names: dict[str, Any] = {}
        self.run: list[tuple[str, str]] = []
        self._lines: list[str] = []
        self._indent = 1
        self._count = 0

    def emit(self, line: str) -> None:
        self._lines.append("    " * self._indent + line)

    def local(self, prefix: str) -> str:
        """A fresh name of a local variable."""
        self._count += 1
        return f"{prefix}{self._count}"

    def constant(self, value: Any, hint: str) -> str:
        """The name under which the function sees `value`."""
        for name, known in self.names.items():
            if known is value:
                return name
        name = self.local(hint)
        self.names[name] = value
        return name

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """An indented block; runs of fixed fields end at its borders."""
        self.flush()
        self.emit(head)
        self._indent += 1
        lines = len(self._lines)
        yield
        self.flush()
        if len(self._lines) == lines:
            self.emit("pass")
        self._indent -= 1

    def flush(self) -> None:
        """Emit the pending run of fixed fields."""
        raise NotImplementedError

    def inline(self, cls: type[Message]) -> list[Field]:
        """The untagged fields of this version."""
        return [f for f in fields_of(cls) if f.exists(self.version) and f.spec.tag is None]

    def tags(self, cls: type[Message]) -> list[Field]:
        """The tagged fields of this version by rising tag."""
        known = [f for f in fields_of(cls) if f.exists(self.version) and f.spec.tag is not None]
        return sorted(known, key=lambda f: f.spec.tag or 0)

    def compiled(self, head: str) -> Callable[..., Any]:
        """The function of this source; `head` is its `def` line."""
        text = "\n".join([head, *self._lines])
        cls = self.schema.cls
        exec(compile(text, f"<{cls.__name__} v{self.version}>", "exec"), self.names)
        return self.names["compiled"]  # type: ignore[no-any-return]


@cache
def struct_for(fmt: str) -> Struct:
    """The big-endian `Struct` of a run of fixed fields."""
    return Struct(">" + fmt)


@cache
def small_unpackers(fmt: str) -> tuple[Callable[..., Any], ...]:
    """Unpackers of 0, 1, 2... equal numbers."""
    return tuple(struct_for(fmt * n).unpack_from for n in range(SMALL))


@cache
def small_packers(fmt: str) -> tuple[Callable[..., Any], ...]:
    """Packers of 0, 1, 2... equal numbers."""
    return tuple(struct_for(fmt * n).pack for n in range(SMALL))
