"""The parts that both compilers share (`compile_decode`, `compile_encode`).

The compilers turn (message, version) into straight-line Python when it is first needed.

Each generated decoder or encoder is one function for the whole message, nested structs and arrays
included. Adjacent fixed-size fields travel through one `Struct`, together with the length that
follows them, so a typical struct costs one call.

There are three forms, of one source:

- PLAIN: a function, for anything that is small because of its bytes, and for clients.
- SMALL: the same, but it raises TooManyElements if an array is longer than `FEW`.
- SLICED: a generator that yields None every `STRIDE` elements. Its decoder counts the elements of
  the whole message, and refuses too many before it reads them.

Reading past the end needs no separate test: a slice comes out short, but the position advances by
the claimed length, so either the next read fails or the final position is not the end. An array's
count allocates nothing either: each element is read before the next one is made, and a count of
numbers, which are unpacked in one call, is tested against the bytes that remain.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from functools import cache
from struct import Struct
from typing import Any

from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.schema import Field, Message, Schema, WireType, fields_of

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
"""Kinds of fixed size, with their `struct` format characters (big-endian)."""

MAX_STRING = 0x7FFF
MAX_ELEMENTS = 1 << 20
"""Longest array that is accepted: elements take far more memory than their bytes on the wire."""

MAX_TAGS = 64
"""Longest section of tagged fields that is accepted. Kafka's largest has six."""


class Form(Enum):
    """The form of a compiled codec."""

    PLAIN = 0
    SMALL = 1
    SLICED = 2


FEW = (32, 120, 8)
"""Longest arrays of a small message, by depth, so that coding it takes a few milliseconds at most;
deeper ones have the last bound, arrays of numbers the largest. A one-byte varint holds each."""
STRIDE = 64
"""Elements from one interruption of a sliced codec to the next; a power of two."""

_TWO_BYTES = Struct("2B").pack
_THREE_BYTES = Struct("3B").pack

SMALL = 16
"""Arrays of fewer numbers than this have a separate `Struct`."""


def read_uvarint(buf: Any, position: int) -> tuple[int, int]:
    """Return the unsigned varint (at most five bytes) at `position`, and the position after it."""
    # Lengths of records take two to four bytes in every Produce and Fetch, so the loop is unrolled.
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
    """Return a number of at most 32 bits as an unsigned varint."""
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
    """Return a compact string's length field (size plus one, 0 for null) and the next position."""
    length, position = read_uvarint(buf, position)
    if length > MAX_STRING + 1:
        raise ProtocolError(f"a string of {length - 1} bytes is longer than {MAX_STRING}")
    return length, position


def read_count(buf: Any, position: int) -> tuple[int, int]:
    """Return a compact array's count field (count plus one, 0 for null) and the next position."""
    count, position = read_uvarint(buf, position)
    if count > MAX_ELEMENTS + 1:
        raise ProtocolError(f"an array of {count - 1} elements is longer than {MAX_ELEMENTS}")
    return count, position


def write_string_length(length: int) -> bytes:
    """Return the length field of a compact string; the inverse of `read_string_length`."""
    if length > MAX_STRING + 1:
        raise ProtocolError(f"a string of {length - 1} bytes is longer than {MAX_STRING}")
    return write_uvarint(length)


def skip_tags(buf: Any, position: int) -> int:
    """Return the position after a section of tagged fields, none of which this version knows."""
    if not buf[position]:
        return position + 1
    count, position = read_tag_count(buf, position)
    for _ in range(count):
        _, position = read_uvarint(buf, position)
        size, position = read_uvarint(buf, position)
        position += size
    return position


def read_tag_count(buf: Any, position: int) -> tuple[int, int]:
    """Return the number of tagged fields in a section, and the position of the first."""
    count, position = read_uvarint(buf, position)
    if count > MAX_TAGS:
        raise ProtocolError(f"{count} tagged fields; at most {MAX_TAGS} are accepted")
    return count, position


def schema_of(cls: type[Any]) -> Schema:
    """Return a message's schema; raise TypeError for a struct that is part of other messages."""
    schema: Schema | None = cls._schema
    if schema is None:
        raise TypeError(f"{cls.__name__} is part of another message and has no versions of its own")
    return schema


class FunctionSource:
    """The source of one generated function: lines, names, and the pending run of fixed fields."""

    def __init__(self, schema: Schema, version: int, form: Form) -> None:
        if version not in schema.versions:
            raise ProtocolError(f"{schema.cls.__name__} has no version {version}")
        self.schema = schema
        self.version = version
        self.form = form
        self.compact = schema.is_flexible(version)
        self.names: dict[str, Any] = {}
        self.run: list[tuple[str, str]] = []
        self._lines: list[str] = []
        self._indent = 1
        self._count = 0
        self._depth = 0

    def emit(self, line: str) -> None:
        self._lines.append("    " * self._indent + line)

    def local(self, prefix: str) -> str:
        """Return a fresh name for a local variable."""
        self._count += 1
        return f"{prefix}{self._count}"

    def constant(self, value: Any, hint: str) -> str:
        """Return the name under which the generated function sees `value`."""
        for name, known in self.names.items():
            if known is value:
                return name
        name = self.local(hint)
        self.names[name] = value
        return name

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Open an indented block; the pending run is emitted before the block and at its end."""
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

    def interrupt(self) -> None:
        """Emit an interruption of a sliced codec."""
        self.emit("yield")

    @contextmanager
    def loop(self, head: str) -> Iterator[None]:
        """Open the loop over an array, with an interruption every `STRIDE` elements if sliced."""
        self._depth += 1
        with self.block(head):
            if self.form is Form.SLICED:
                self.emit("steps += 1")
                with self.block(f"if not steps & {STRIDE - 1}:"):
                    self.interrupt()
            yield
        self._depth -= 1

    def few(self, item: WireType) -> int:
        """Return the longest array of `item` that a small message may have at this depth."""
        return max(FEW) if item.kind in FORMATS else FEW[min(self._depth, len(FEW) - 1)]

    def inline(self, cls: type[Message]) -> list[Field]:
        """Return the untagged fields of this version."""
        return [f for f in fields_of(cls) if f.exists(self.version) and f.spec.tag is None]

    def tags(self, cls: type[Message]) -> list[Field]:
        """Return the tagged fields of this version, ordered by tag."""
        known = [f for f in fields_of(cls) if f.exists(self.version) and f.spec.tag is not None]
        return sorted(known, key=lambda f: f.spec.tag or 0)

    def compiled(self, head: str) -> Callable[..., Any]:
        """Compile the source and return its function; `head` is the `def` line."""
        text = "\n".join([head, *self._lines])
        cls = self.schema.cls
        exec(compile(text, f"<{cls.__name__} v{self.version}>", "exec"), self.names)
        return self.names["compiled"]  # type: ignore[no-any-return]


@cache
def struct_for(fmt: str) -> Struct:
    """Return the big-endian `Struct` of a run of fixed fields."""
    return Struct(">" + fmt)


@cache
def small_unpackers(fmt: str) -> tuple[Callable[..., Any], ...]:
    """Return unpackers of 0, 1, 2... numbers of one format."""
    return tuple(struct_for(fmt * n).unpack_from for n in range(SMALL))


@cache
def small_packers(fmt: str) -> tuple[Callable[..., Any], ...]:
    """Return packers of 0, 1, 2... numbers of one format."""
    return tuple(struct_for(fmt * n).pack for n in range(SMALL))
