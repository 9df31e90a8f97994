"""The compiler of encoders: one function for each version of a message, from objects to bytes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import error as StructError
from struct import pack
from typing import Any

from barnabas.protocol.compile import (
    FORMATS,
    SMALL,
    STRIDE,
    Form,
    FunctionSource,
    schema_of,
    small_packers,
    struct_for,
    write_string_length,
    write_uvarint,
)
from barnabas.protocol.errors import ProtocolError, TooManyElements
from barnabas.protocol.schema import Encoded, Field, Message, WireType, fields_of


def encoder(cls: type[Any], version: int, form: Form = Form.PLAIN) -> Callable[[Any], Any]:
    """Return the function `encode(obj) -> parts` of this version; ProtocolError for an unknown one.

    Parts are bytes, and between them records as they were given: bytes, a memoryview or a
    RecordsSource. The sliced form is a generator that returns the parts.
    """
    known: dict[Any, Callable[..., Any]] = cls._encoders
    key = version if form is Form.PLAIN else (version, form)
    if key not in known:
        known[key] = _EncoderSource(schema_of(cls), version, form).build()
    return known[key]


_BYTES = tuple(bytes([value]) for value in range(128))
"""All varints of one byte: most lengths, and the counts of tagged fields."""

_JOINED = 16 * STRIDE
"""Elements that become one part of a message that is encoded in slices."""


class _EncoderSource(FunctionSource):
    """The source of an encoder: `out` collects small pieces, `parts` joined ones and records."""

    def build(self) -> Callable[..., Any]:
        cls = self.schema.cls
        self._out = "out"
        self._pieces: list[str] = []
        """Expressions of the pieces that are to be added to `out`."""
        self.names |= {
            "ProtocolError": ProtocolError,
            "TooManyElements": TooManyElements,
            "errors": (StructError, AttributeError, TypeError, UnicodeEncodeError),
            "join": b"".join,
            "uvarint": write_uvarint,
            "string_length": write_string_length,
            "pack": pack,
            "byte": _BYTES,
        }
        self.emit("parts = []")
        self.emit("out = []")
        if self.form is Form.SLICED:
            self.emit("steps = 0")
            self.emit("yield")
        with self.block("try:"):
            self._struct(cls, "o")
        with self.block("except errors as error:"):
            where = f"{cls.__name__} v{self.version}"
            self.emit(f'raise ProtocolError(f"{where}: {{error}}") from error')
        self.emit("parts.append(join(out))")
        self.emit("return parts")
        return self.compiled("def compiled(o):")

    def flush(self) -> None:
        self._end_run()
        if self._pieces:
            pieces, self._pieces = self._pieces, []
            add = " += " if len(pieces) > 1 else ".append"
            self.emit(f"{self._out}{add}({', '.join(pieces)})")

    def _end_run(self) -> None:
        if self.run:
            run, self.run = self.run, []
            self._pieces.append(self._packed(run))

    def _put(self, piece: str) -> None:
        self._end_run()
        self._pieces.append(piece)

    def interrupt(self) -> None:
        # Joining the small pieces of a large message at its end would take long.
        with self.block(f"if not steps & {_JOINED - 1} and out:"):
            self.emit("parts.append(join(out))")
            self.emit("out.clear()")
        super().interrupt()

    def _packed(self, run: list[tuple[str, str]]) -> str:
        """Return an expression for the bytes of a run; format `x` is a zero byte without value."""
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
        """Emit a check that refuses to drop a value which the receiver has to know."""
        if field.spec.ignorable:
            return
        with self.unflushed_block(f"if {self._differs(field, source)}:"):
            self.emit(f'raise ProtocolError("version {self.version} cannot carry {field.name}")')

    def _differs(self, field: Field, source: str) -> str:
        """Return a condition that is true if the field's value differs from its default."""
        default = field.spec.default
        if field.spec.default_factory is list:
            return f"{source} is None or {source}" if field.type.nullable else source
        if field.spec.default_factory is not None:
            assert field.type.struct is not None
            inner = fields_of(field.type.struct)
            differs = [self._differs(f, f"{source}.{f.name}") for f in inner]
            return " or ".join([f"{source} is None"] * field.type.nullable + differs)
        return f"{source} is not None" if default is None else f"{source} != {default!r}"

    @contextmanager
    def unflushed_block(self, head: str) -> Iterator[None]:
        """Open a block that adds nothing to the pending run, which continues after the block."""
        run, self.run = self.run, []
        pieces, self._pieces = self._pieces, []
        with self.block(head):
            yield
        self.run, self._pieces = run, pieces

    def _value(self, kind: WireType, nullable: bool, source: str) -> None:
        if kind.kind in FORMATS:
            self.run.append((FORMATS[kind.kind], source))
        elif kind.kind == "array":
            self._array(kind, nullable, source)
        elif kind.kind == "struct":
            self._nested(kind, nullable, source, "-1")
        elif kind.kind == "string":
            self._string(nullable, source)
        else:
            self._blob(kind.kind, nullable, source)

    def _nested(self, kind: WireType, nullable: bool, source: str, null: str) -> None:
        """Emit a struct; if it may be null, behind a byte that is 1, or `null` without it."""
        assert kind.struct is not None
        var = self.local("o")
        self.emit(f"{var} = {source}")
        if not nullable:
            self._struct(kind.struct, var)
            return
        with self.block(f"if {var} is None:"):
            self.run.append(("b", null))
        with self.block("else:"):
            self.run.append(("b", "1"))
            self._struct(kind.struct, var)

    def _length(self, length: str, writer: str = "uvarint") -> None:
        """Add a length field to the run, and end it; compact ones are length plus one, 0 for
        null."""
        if not self.compact:
            self.run.append(("h" if writer == "string_length" else "i", length))
            self._end_run()
            return
        run, self.run = self.run, []
        short = self._packed([*run, ("B", length)])
        long = f"{writer}({length})"
        if run:
            long = f"{self._packed(run)} + {long}"
        self._put(f"{short} if {length} < 128 else {long}")

    def _sized(self, nullable: bool, source: str, suffix: str = "") -> tuple[str, str]:
        """Emit locals for a value followed by `suffix` and for its length; return their names."""
        value, length = self.local("v"), self.local("n")
        self.emit(f"{value} = {source}{'' if nullable else suffix}")
        counted = f"len({value}) + 1" if self.compact else f"len({value})"
        if not nullable:
            self.emit(f"{length} = {counted}")
            return value, length
        with self.unflushed_block(f"if {value} is None:"):
            self.emit(f"{length} = {0 if self.compact else -1}")
            self.emit(f'{value} = b""')
        with self.unflushed_block("else:"):
            if suffix:
                self.emit(f"{value} = {value}{suffix}")
            self.emit(f"{length} = {counted}")
        return value, length

    def _string(self, nullable: bool, source: str) -> None:
        value, length = self._sized(nullable, source, ".encode()")
        self._length(length, "string_length")
        self._put(value)

    def _blob(self, kind: str, nullable: bool, source: str) -> None:
        value, length = self._sized(nullable, source)
        self._length(length)
        if kind == "records":
            with self.block(f"if {length} > {1 if self.compact else 0}:"):
                self.emit(f"parts += join(out), {value}")
                self.emit("out.clear()")
        else:
            self._put(value)

    def _array(self, kind: WireType, nullable: bool, source: str) -> None:
        assert kind.item is not None
        item = kind.item
        value, length = self._sized(nullable, source)
        if self.form is Form.SMALL:
            self.emit(f"if {length} > {self.few(item) + self.compact}: raise TooManyElements")
        self._length(length)
        if item.kind in FORMATS:
            fmt = FORMATS[item.kind]
            small = self.constant(small_packers(fmt), "small")
            count = f"len({value})"
            many = f'">" + "{fmt}" * {count}' if fmt == "16s" else f'f">{{{count}}}{fmt}"'
            many = f"pack({many}, *{value})"
            self._put(f"{small}[{count}](*{value}) if {count} < {SMALL} else {many}")
            return
        var = self.local("o")
        with self.loop(f"for {var} in {value}:"):
            if item.struct is not None and item.struct._schema is not None:
                with self.block(f"if {var}.__class__ is {self.constant(Encoded, 'encoded')}:"):
                    self._put(f"{var}.body")
                    self.flush()
                    self.emit("continue")
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
            self._put(section)

    def _tag(self, field: Field, source: str, section: str) -> None:
        """Emit one tagged field of a section: tag, size, value."""
        tag = write_uvarint(field.spec.tag or 0)
        if field.type.kind in FORMATS:
            packer = struct_for(FORMATS[field.type.kind])
            head = tag + write_uvarint(packer.size)
            self.emit(f"{section} += {head!r} + {self.constant(packer.pack, 'pack')}({source})")
            return
        body, outer = self.local("body"), self._out
        self.emit(f"{body} = []")
        self._out = body
        if field.type.kind == "struct":
            self._nested(field.type, field.nullable_in_tag, source, "0")
        else:
            self._value(field.type, field.nullable_in_tag, source)
        self.flush()
        self._out = outer
        self.emit(f"{body} = join({body})")
        size = self.local("n")
        self.emit(f"{size} = len({body})")
        sized = f"(byte[{size}] if {size} < 128 else uvarint({size}))"
        self.emit(f"{section} += {tag!r} + {sized} + {body}")
