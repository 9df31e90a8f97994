"""Templates: the bytes that messages share which differ in some fields only.

A template is made from one message. The fields that vary have a fixed width, so the bytes around
them say where each of them is; the last one may be records. Other bytes fit a template only if
those around the fields are equal: they are the same message with other values there.
"""

from collections.abc import Callable, Sequence
from copy import copy
from functools import lru_cache
from operator import itemgetter
from struct import Struct, calcsize
from typing import Any, Final, Generic, NamedTuple, TypeVar

from barnabas.protocol.codec import encode
from barnabas.protocol.compile import FORMATS, write_uvarint
from barnabas.protocol.schema import Api, Message, fields_of

M = TypeVar("M")
LENGTH: Final = Struct(">i")
"""The length of records before compact ones."""
COMPACT_LENGTH: Final = lru_cache(4096)(write_uvarint)
"""Returns the length field of compact records and arrays: the length is one less."""
MOST_LENGTH: Final = 5
"""The bytes of a length field at most."""
_RECORDS: Final = "records"
_LOWEST: Final = {"bool": False, _RECORDS: b"\0"}
_HIGHEST: Final = {"bool": True, "uint16": 2**16 - 1, "uint32": 2**32 - 1, _RECORDS: b"\xff"}
"""Values that differ from the lowest ones in each byte; all bits of -1 for other kinds."""


class Template(NamedTuple):
    """The bytes of a message around its varying fields."""

    constants: tuple[bytes, ...]
    """The bytes before, between and behind the fields of a fixed width, up to the length of the
    records."""
    codes: tuple[str, ...]
    """The `struct` characters of these fields."""
    end: bytes | None
    """The bytes behind the records; None without records."""

    @property
    def form(self) -> str:
        """The `struct` format of constants and fields by turns, up to the length of the records."""
        codes = (*self.codes, "")
        return "".join(f"{len(at)}s{code}" for at, code in zip(self.constants, codes, strict=True))

    def packing(self, before: str = "") -> "Packing":
        """Return how a message is packed up to the length of its records, behind fields of the
        format `before`. Raises ValueError if other bytes are between the varying fields."""
        first, *between, last = self.constants if self.codes else (*self.constants, b"")
        if any(between):
            raise ValueError("other bytes are between the varying fields")
        form = f"{len(first)}s{''.join(self.codes)}{len(last)}s"
        return Packing(_packer(f">{before}{form}"), calcsize(f">{form}"), first, last)


class Packing(NamedTuple):
    """The function that packs a message, and its arguments."""

    pack: Callable[..., bytes]
    """Is called with the fields before it, `first`, the varying fields, and `last`."""
    size: int
    """The bytes of the message."""
    first: bytes
    last: bytes


def template_of(
    message: Any, version: int, fields: Sequence[str] = (), start: bytes = b""
) -> Template:
    """Return the template of `start` and an encoded message.

    The fields are paths in the order of the wire, such as "topics.partitions.fetch_offset"; a
    number in a path selects an element, else the first one. Raises ValueError for a field that does
    not vary in place in this version.
    """
    schema = type(message)._schema
    paths = [path.split(".") for path in fields]
    kinds = [_kind(schema.cls, path) for path in paths]
    for path, kind in zip(paths, kinds, strict=True):
        message = with_value(message, path, _LOWEST.get(kind, 0))
    low, begin = encode(message, version), 0
    constants: list[bytes] = []
    for path, kind in zip(paths, kinds, strict=True):
        high = encode(with_value(message, path, _HIGHEST.get(kind, -1)), version)
        differ = int.from_bytes(low) ^ int.from_bytes(high)
        at = len(low) - (differ.bit_length() + 7) // 8
        behind = at + (1 if kind == _RECORDS else calcsize(f">{FORMATS[kind]}"))
        if not differ or len(high) != len(low) or at < begin or low[behind:] != high[behind:]:
            raise ValueError(f"{'.'.join(path)} does not vary in place in version {version}")
        if kind == _RECORDS:
            at -= 1 if schema.is_flexible(version) else LENGTH.size
        constants.append(low[begin:at])
        begin = behind
    constants.append(low[begin:])
    end = constants.pop() if _RECORDS in kinds else None
    constants[0] = start + constants[0]
    codes = tuple(FORMATS[kind] for kind in kinds if kind != _RECORDS)
    return Template(tuple(constants), codes, end)


_Unpack = Callable[..., tuple[Any, ...]]
_Shape = tuple[int, _Unpack, Callable[[Any], Any], Callable[[Any], Any] | None, dict[Any, M]]
"""The templates of the same sizes: the bytes of one, how it is unpacked, its constants and its
values (None without varying fields), and the meanings by the constants. Plain, because a NamedTuple
takes twice the time to unpack."""
_RecordsShape = tuple[int, bytes, tuple[_Unpack, ...], dict[Any, M]]
"""The templates of the same sizes that vary in records only: the bytes around the records and their
length, those behind them, how the bytes before them are unpacked, by the width of the length, and
the meanings."""


class Templates(Generic[M]):
    """Templates with a meaning each, found again by bytes."""

    __slots__ = ("_before", "_measure", "_shapes", "_with_records", "count")

    def __init__(self, before: str, *, flexible: bool = True) -> None:
        """`before` is the format of one field that no template has, or "". `flexible` says that
        records have a compact length."""
        self._before = before
        self._measure = _compact if flexible else _plain
        self._shapes: dict[Any, _Shape[M]] = {}
        self._with_records: list[_RecordsShape[M]] = []
        """The one that was found last comes first."""
        self.count = 0

    @property
    def shapes(self) -> int:
        """The number of shapes, each of which may be tried."""
        return len(self._shapes) + len(self._with_records)

    def clear(self) -> None:
        self._shapes.clear()
        self._with_records.clear()
        self.count = 0

    def put(self, template: Template, meaning: M) -> None:
        """Remember a template; it takes the place of an equal one. One with records has no other
        varying field."""
        form = f">{self._before}{template.form}"
        if template.end is None:
            shape = self._shapes.get(form)
            if shape is None:
                first = 1 if self._before else 0
                shape = *_reading(form, first, len(template.codes)), {}
                self._shapes[form] = shape
            meanings = shape[-1]
        else:
            size, end = calcsize(form) + len(template.end), template.end
            known = [each for each in self._with_records if each[:2] == (size, end)]
            if not known:
                known.append((size, end, _unpack_by_width(form), {}))
                self._with_records.insert(0, known[0])
            meanings = known[0][-1]
        constants = template.constants if template.codes else template.constants[0]
        self.count += constants not in meanings
        meanings[constants] = meaning

    def find(self, frame: memoryview) -> tuple[M, int, tuple[Any, ...]] | None:
        """Return the meaning of the template that a frame fits, the field before it, and the values
        of the others."""
        size = len(frame)
        for fixed, unpack, constants_of, values_of, meanings in self._shapes.values():
            if size == fixed:
                parts = unpack(frame)
                meaning = meanings.get(constants_of(parts))
                if meaning is not None:
                    return meaning, parts[0], values_of(parts) if values_of else ()
        return None

    def find_with_records(self, frame: memoryview) -> tuple[M, int, tuple[memoryview]] | None:
        """Return what `find` returns; the value is the records."""
        size = len(frame)
        for shape in self._with_records:
            fixed, end, unpack, meanings = shape
            rest = size - fixed
            if rest > MOST_LENGTH:
                width, records, length = self._measure(rest)
                before, constant, found = unpack[width](frame)
                meaning = meanings.get(constant)
                behind = size - len(end)
                if meaning is not None and found == length and frame[behind:] == end:
                    if shape is not self._with_records[0]:
                        self._with_records.remove(shape)
                        self._with_records.insert(0, shape)
                    return meaning, before, (frame[behind - records : behind],)
        return None

    def find_at(self, data: bytes, at: int) -> tuple[M, int, tuple[Any, ...]] | None:
        """Return the meaning of the template that the bytes from `at` on fit, the place behind
        them, and the values of the fields."""
        left = len(data) - at
        for size, unpack, constants_of, values_of, meanings in self._shapes.values():
            if size <= left:
                parts = unpack(data, at)
                meaning = meanings.get(constants_of(parts))
                if meaning is not None:
                    return meaning, at + size, values_of(parts) if values_of else ()
        return None


# Shared by all connections: a Struct takes more memory than a meaning.


@lru_cache(4096)
def _reading(
    form: str, first: int, fields: int
) -> tuple[int, _Unpack, Callable[[Any], Any], Callable[[Any], Any] | None]:
    """Return the parts of a shape whose first constant is at an index."""
    behind = first + 2 * fields + 1
    # A slice is a tuple also of one value.
    values_of = itemgetter(slice(first + 1, behind, 2)) if fields else None
    struct = Struct(form)
    return struct.size, struct.unpack_from, itemgetter(*range(first, behind, 2)), values_of


@lru_cache(1024)
def _unpack_by_width(form: str) -> tuple[_Unpack, ...]:
    return tuple(Struct(f"{form}{width}s").unpack_from for width in range(MOST_LENGTH + 1))


@lru_cache(4096)
def _compact(rest: int) -> tuple[int, int, bytes]:
    """Return the width of a compact length, the length and its bytes; `rest` is the sum of both.

    If no length has this sum, the width and the bytes differ in size.
    """
    width = (rest.bit_length() + 6) // 7
    return width, rest - width, write_uvarint(rest - width + 1)


@lru_cache(4096)
def _plain(rest: int) -> tuple[int, int, bytes]:
    """Return what `_compact` returns, for lengths before compact ones."""
    return LENGTH.size, rest - LENGTH.size, LENGTH.pack(rest - LENGTH.size)


class Elements:
    """A message that is one array: its elements have templates."""

    def __init__(self, message: type[Any], version: int, array: str, *fields: str) -> None:
        """`fields` are paths in an element. Raises ValueError unless the array is compact."""
        if not message._schema.is_flexible(version):
            raise ValueError(f"version {version} has no compact array {array}")
        self.message = message
        self.version = version
        self.array = array
        self.fields = fields
        at = 0
        for field in fields_of(message):
            if field.name == array:
                break
            if field.exists(version):
                at += calcsize(f">{FORMATS[field.type.kind]}")
        empty = encode(message(**{array: []}), version)
        self.before, self.behind = empty[:at], empty[at + 1 :]
        """The bytes before the length of the array and behind its elements."""

    def template(self, element: Any) -> Template:
        """Return the template of an element."""
        alone = self.message(**{self.array: [element]})
        made = template_of(alone, self.version, [f"{self.array}.{each}" for each in self.fields])
        first, *rest = made.constants
        *rest, last = (first[len(self.before) + 1 :], *rest)
        return made._replace(constants=(*rest, last[: len(last) - len(self.behind)]))

    def joined(self, elements: Sequence[bytes]) -> bytes:
        """Return the message of these encoded elements."""
        return b"".join((self.before, COMPACT_LENGTH(len(elements) + 1), *elements, self.behind))


class ByElement(NamedTuple):
    """An API whose response has one element for each element of the request."""

    api: Api
    version: int
    request: Elements
    response: Elements


def _kind(cls: type[Message], path: Sequence[str]) -> str:
    """Return the kind of the type of a field."""
    kind = ""
    for name in path:
        if not name.isdigit():
            (type_,) = (field.type for field in fields_of(cls) if field.name == name)
            kind, cls = type_.kind, (type_.item or type_).struct or cls
    return kind


def with_value(message: Any, path: Sequence[str], value: Any) -> Any:
    """Return a copy of a message with another value of a field."""
    name, *rest = path
    message = copy(message)
    if rest:
        inner = getattr(message, name)
        if isinstance(inner, list):
            index = int(rest.pop(0)) if rest[0].isdigit() else 0
            value = [*inner[:index], with_value(inner[index], rest, value), *inner[index + 1 :]]
        else:
            value = with_value(inner, rest, value)
    setattr(message, name, value)
    return message


@lru_cache(4096)
def _packer(form: str) -> Callable[..., bytes]:
    return Struct(form).pack
