"""Compiles the encoder of one version of a message: slotted objects in, pieces of bytes out."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import error as StructError
from struct import pack
from typing import Any

from barnabas.protocol.compile import (
    FORMATS,
    SMALL,
    Source,
    schema_of,
    small_packers,
    struct_for,
    write_string_length,
    write_uvarint,
)
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.schema import Field, Message, Type, fields_of


def encoder(cls: type[Any], version: int) -> Callable[[Any], list[Any]]:
    """The function `encode(obj) -> parts` of this version; ProtocolError for an unknown one.

    Parts are bytes, and between them records as they were given: bytes, a memoryview or a
    RecordsSource.
    """
    known: dict[int, Callable[..., Any]] = cls._encoders
    if version not in known:
        known[version] = _EncoderSource(schema_of(cls), version).build()
    return known[version]


_BYTES = tuple(bytes([value]) for value in range(128))
"""Every varint of one byte: most lengths, and the counts of tagged fields."""


class _EncoderSource(Source):
    """Writes the encoder; `out` gathers small pieces, `parts` the joined ones and records."""

    def build(self) -> Callable[..., Any]:
        cls = self.schema.cls
        self._add = "out.append"
        self.names |= {
            "ProtocolError": ProtocolError,
            "errors": (StructError, AttributeError, TypeError, UnicodeEncodeError),
            "join": b"".join,
            "uvarint": write_uvarint,
            "string_length": write_string_length,
            "pack": pack,
            "byte": _BYTES,
        }
        self.emit("parts = []")
        self.emit("out = []")
        with self.block("try:"):
            self._struct(cls, "o")
        with self.block("except errors as error:"):
            where = f"{cls.__name__} v{self.version}"
            self.emit(f'raise ProtocolError(f"{where}: {{error}}") from error')
        self.emit("parts.append(join(out))")
        self.emit("return parts")
        return self.compiled("def compiled(o):")

    def flush(self) -> None:
        if self.run:
            run, self.run = self.run, []
            self.emit(f"{self._add}({self._packed(run)})")

    def _packed(self, run: list[tuple[str, str]]) -> str:
        """An expression for the bytes of a run; a format `x` is a zero byte without a value."""
        fmt = "".join(f for f, _ in run)
        if fmt == "B":
            return f"byte[{run[0][1]}]"
        if not fmt.strip("x"):
            return repr(bytes(len(fmt)))
        packer = self.constant(struct_for(fmt).pack, "pack")
        return f"{packer}({', '.join(value for _, value in run if value)})"

    def _struct(self, cls: type[Message], var: str) -> None:
        for field in fields_of(cls):
            source = f"{var}.{field.name}"
            if not field.exists(self.version):
                self._absent(field, source)
            elif field.spec.tag is None:
                self._value(field.type, field.nullable(self.version), source)
        if self.compact:
            self._tags(cls, var)

    def _absent(self, field: Field, source: str) -> None:
        """Refuse to drop what the receiver would have to know."""
        if field.spec.ignorable:
            return
        with self.unflushed_block(f"if {self._differs(field, source)}:"):
            self.emit(f'raise ProtocolError("version {self.version} cannot carry {field.name}")')

    def _differs(self, field: Field, source: str) -> str:
        """A condition: the field's value is not its default."""
        default = field.spec.default
        if field.spec.default_factory is list:
            return f"{source} is None or {source}" if field.type.nullable else source
        if field.spec.default_factory is not None:
            assert field.type.struct is not None
            inner = fields_of(field.type.struct)
            return " or ".join(self._differs(f, f"{source}.{f.name}") for f in inner)
        return f"{source} is not None" if default is None else f"{source} != {default!r}"

    @contextmanager
    def unflushed_block(self, head: str) -> Iterator[None]:
        """A block that writes nothing into the run around it, so the run goes on behind it."""
        run, self.run = self.run, []
        with self.block(head):
            yield
        self.run = run

    def _value(self, kind: Type, nullable: bool, source: str) -> None:
        if kind.kind in FORMATS:
            self.run.append((FORMATS[kind.kind], source))
        elif kind.kind == "array":
            self._array(kind, nullable, source)
        elif kind.kind == "struct":
            self._nested(kind, nullable, source)
        elif kind.kind == "string":
            self._string(nullable, source)
        else:
            self._blob(kind.kind, nullable, source)

    def _nested(self, kind: Type, nullable: bool, source: str) -> None:
        assert kind.struct is not None
        var = self.local("o")
        self.emit(f"{var} = {source}")
        if not nullable:
            self._struct(kind.struct, var)
            return
        with self.block(f"if {var} is None:"):
            self.run.append(("b", "-1"))
        with self.block("else:"):
            self.run.append(("b", "1"))
            self._struct(kind.struct, var)

    def _length(self, length: str, writer: str = "uvarint") -> None:
        """Add a length to the run and end it; compact ones carry one more, 0 for null."""
        if not self.compact:
            self.run.append(("h" if writer == "string_length" else "i", length))
            self.flush()
            return
        run, self.run = self.run, []
        short = self._packed([*run, ("B", length)])
        long = f"{writer}({length})"
        if run:
            long = f"{self._packed(run)} + {long}"
        self.emit(f"{self._add}({short} if {length} < 128 else {long})")

    def _sized(self, nullable: bool, source: str, turn: str = "") -> tuple[str, str]:
        """Locals for a value, put through `turn`, and for its length as it travels."""
        value, length = self.local("v"), self.local("n")
        self.emit(f"{value} = {source}{'' if nullable else turn}")
        counted = f"len({value}) + 1" if self.compact else f"len({value})"
        if not nullable:
            self.emit(f"{length} = {counted}")
            return value, length
        with self.unflushed_block(f"if {value} is None:"):
            self.emit(f"{length} = {0 if self.compact else -1}")
            self.emit(f'{value} = b""')
        with self.unflushed_block("else:"):
            if turn:
                self.emit(f"{value} = {value}{turn}")
            self.emit(f"{length} = {counted}")
        return value, length

    def _string(self, nullable: bool, source: str) -> None:
        value, length = self._sized(nullable, source, ".encode()")
        self._length(length, "string_length")
        self.emit(f"{self._add}({value})")

    def _blob(self, kind: str, nullable: bool, source: str) -> None:
        value, length = self._sized(nullable, source)
        self._length(length)
        if kind == "records":
            with self.block(f"if {length} > {1 if self.compact else 0}:"):
                self.emit(f"parts += join(out), {value}")
                self.emit("out.clear()")
        else:
            self.emit(f"{self._add}({value})")

    def _array(self, kind: Type, nullable: bool, source: str) -> None:
        assert kind.item is not None
        item = kind.item
        value, length = self._sized(nullable, source)
        self._length(length)
        if item.kind in FORMATS:
            fmt = FORMATS[item.kind]
            small = self.constant(small_packers(fmt), "small")
            count = f"len({value})"
            many = f'pack(">" + "{fmt}" * {count}, *{value})'
            self.emit(f"{self._add}({small}[{count}](*{value}) if {count} < {SMALL} else {many})")
            return
        var = self.local("o")
        with self.block(f"for {var} in {value}:"):
            if item.struct is not None and not item.nullable:
                self._struct(item.struct, var)
            else:
                self._value(item, item.nullable, var)

    def _tags(self, cls: type[Message], var: str) -> None:
        known = self.tags(cls)
        if not known:
            self.run.append(("x", ""))
            return
        count, section = self.local("n"), self.local("tags")
        self.emit(f"{count} = 0")
        self.emit(f'{section} = b""')
        for field in known:
            source = f"{var}.{field.name}"
            with self.unflushed_block(f"if {self._differs(field, source)}:"):
                self._tag(field, source, section)
                self.emit(f"{count} += 1")
        self.run.append(("B", count))
        with self.block(f"if {count}:"):
            self.emit(f"{self._add}({section})")

    def _tag(self, field: Field, source: str, section: str) -> None:
        """Append one tagged field to its section: tag, size, value."""
        body, outer = self.local("body"), self._add
        self.emit(f"{body} = []")
        self._add = f"{body}.append"
        self._value(field.type, False, source)
        self.flush()
        self._add = outer
        self.emit(f"{body} = join({body})")
        tag = f"{section} += uvarint({field.spec.tag}) + uvarint(len({body})) + {body}"
        self.emit(tag)
