"""Compiles the decoder of one version of a message: bytes in, slotted objects out."""

from collections.abc import Callable
from struct import calcsize, unpack_from
from struct import error as StructError
from typing import Any

from barnabas.protocol.compile import (
    FORMATS,
    MAX_ELEMENTS,
    SMALL,
    Source,
    read_count,
    read_string_length,
    read_uvarint,
    schema_of,
    skip_tags,
    small_unpackers,
    struct_for,
)
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.schema import Field, Message, Type, blank, fields_of, shared_default


def decoder(cls: type[Any], version: int) -> Callable[..., Any]:
    """The function `decode(buf, offset=0, exact=True)` of this version.

    Unless `exact`, what stands behind the message is ignored. ProtocolError for an unknown version.
    """
    known: dict[int, Callable[..., Any]] = cls._decoders
    if version not in known:
        known[version] = _DecoderSource(schema_of(cls), version).build()
    return known[version]


class _DecoderSource(Source):
    """Writes the decoder; `buf` is the input, `p` the position in it, `end` its length."""

    def build(self) -> Callable[..., Any]:
        cls = self.schema.cls
        self.names |= {
            "ProtocolError": ProtocolError,
            "errors": (StructError, IndexError, UnicodeDecodeError),
            "uvarint": read_uvarint,
            "count": read_count,
            "string_length": read_string_length,
            "skip_tags": skip_tags,
            "unpack_from": unpack_from,
        }
        records = _has_records(cls, self.version)
        # Slices of bytes are cheaper than slices of a view, so only records keep the view.
        self._text = ".tobytes().decode()" if records else ".decode()"
        self._bytes = ".tobytes()" if records else ""
        self.emit(f"buf = {'memoryview' if records else 'bytes'}(buf)")
        self.emit("end = len(buf)")
        with self.block("try:"):
            self._struct(cls, "o")
            self.flush()
            with self.block("if p != end and (exact or p > end):"):
                self.emit('what = "end too early by" if p > end else "go on behind it for"')
                self.emit('raise ProtocolError(f"the message\'s bytes {what} {abs(end - p)}")')
            self.emit("return o")
        with self.block("except errors as error:"):
            where = f"{cls.__name__} v{self.version}"
            self.emit(f'raise ProtocolError(f"{where}: {{error}}") from error')
        return self.compiled("def compiled(buf, p=0, exact=True):")

    def flush(self) -> None:
        if not self.run:
            return
        run, self.run = self.run, []
        fmt = "".join(f for f, _ in run)
        if fmt == "B":
            self.emit(f"{run[0][1]} = buf[p]")
            self.emit("p += 1")
            return
        unpack = self.constant(struct_for(fmt).unpack_from, "unpack")
        self.emit(f"{', '.join(target for _, target in run)}, = {unpack}(buf, p)")
        self.emit(f"p += {calcsize('>' + fmt)}")

    def _struct(self, cls: type[Message], var: str) -> None:
        self.emit(f"{var} = {self.constant(blank(cls), cls.__name__)}()")
        for field in fields_of(cls):
            target = f"{var}.{field.name}"
            if not field.exists(self.version) or field.spec.tag is not None:
                self._default(field, target)
            else:
                self._value(field.type, field.nullable(self.version), target)
        if self.compact:
            self._tags(cls, var)

    def _default(self, field: Field, target: str) -> None:
        factory = field.spec.default_factory
        if factory is None:
            self.emit(f"{target} = {field.spec.default!r}")
        elif factory is list:
            self.emit(f"{target} = []")
        else:
            assert field.type.struct is not None
            shared = self.constant(shared_default(field.type.struct), "default")
            self.emit(f"{target} = {shared}")

    def _value(self, kind: Type, nullable: bool, target: str) -> None:
        if kind.kind in FORMATS:
            self.run.append((FORMATS[kind.kind], target))
        elif kind.kind == "array":
            self._array(kind, nullable, target)
        elif kind.kind == "struct":
            self._nested(kind, nullable, target)
        else:
            self._blob(kind, nullable, target)

    def _nested(self, kind: Type, nullable: bool, target: str) -> None:
        assert kind.struct is not None
        var = self.local("o")
        if not nullable:
            self._struct(kind.struct, var)
            self.emit(f"{target} = {var}")
            return
        present = self.local("n")
        self.run.append(("b", present))
        with self.block(f"if {present} < 0:"):
            self.emit(f"{target} = None")
        with self.block("else:"):
            self._struct(kind.struct, var)
            self.emit(f"{target} = {var}")

    def _length(self, kind: str) -> str:
        """Read a length; compact ones are one more than the length, 0 means null."""
        length = self.local("n")
        if not self.compact:
            self.run.append(("h" if kind == "string" else "i", length))
            self.flush()
            return length
        self.run.append(("B", length))
        reader = {"string": "string_length", "array": "count"}.get(kind, "uvarint")
        with self.block(f"if {length} > 127:"):
            self.emit(f"{length}, p = {reader}(buf, p - 1)")
        return length

    def _null(self, nullable: bool, target: str) -> None:
        if nullable:
            self.emit(f"{target} = None")
        else:
            self.emit(f'raise ProtocolError("{target.rpartition(".")[2]} is null")')

    def _blob(self, kind: Type, nullable: bool, target: str) -> None:
        length = self._length(kind.kind)
        turn = {"string": self._text, "bytes": self._bytes, "records": ""}[kind.kind]
        with self.block(f"if {length}:" if self.compact else f"if {length} >= 0:"):
            self.emit("s = p")
            self.emit(f"p += {length} - 1" if self.compact else f"p += {length}")
            self.emit(f"{target} = buf[s:p]{turn}")
        with self.block("else:"):
            self._null(nullable, target)

    def _array(self, kind: Type, nullable: bool, target: str) -> None:
        assert kind.item is not None
        item, count = kind.item, self._length("array")
        empty = 1 if self.compact else 0
        with self.block(f"if {count} > {empty}:"):
            if self.compact:
                self.emit(f"{count} -= 1")
            else:
                with self.block(f"if {count} > {MAX_ELEMENTS}:"):
                    self.emit(f'raise ProtocolError(f"an array of {{{count}}} elements")')
            if item.kind in FORMATS:
                self._numbers(FORMATS[item.kind], count, target)
            else:
                self._items(item, count, target)
        with self.block(f"elif {count} == {empty}:"):
            self.emit(f"{target} = []")
        with self.block("else:"):
            self._null(nullable, target)

    def _numbers(self, fmt: str, count: str, target: str) -> None:
        small = self.constant(small_unpackers(fmt), "small")
        size = calcsize(">" + fmt)
        with self.block(f"if {count} < {SMALL}:"):
            self.emit(f"{target} = list({small}[{count}](buf, p))")
        with self.block(f"elif {count} * {size} > end - p:"):
            self.emit(f'raise ProtocolError(f"{{{count}}} elements do not fit the message")')
        with self.block("else:"):
            many = f'">" + "{fmt}" * {count}' if fmt == "16s" else f'f">{{{count}}}{fmt}"'
            self.emit(f"{target} = list(unpack_from({many}, buf, p))")
        self.emit(f"p += {count} * {size}")

    def _items(self, item: Type, count: str, target: str) -> None:
        add, var = self.local("add"), self.local("o")
        self.emit(f"{target} = {var}s = []")
        self.emit(f"{add} = {var}s.append")
        with self.block(f"for _ in range({count}):"):
            if item.struct is not None and not item.nullable:
                self._struct(item.struct, var)
            else:
                self._value(item, item.nullable, var)
            self.flush()
            self.emit(f"{add}({var})")

    def _tags(self, cls: type[Message], var: str) -> None:
        known, count = self.tags(cls), self.local("n")
        self.run.append(("B", count))
        with self.block(f"if {count}:"):
            if not known:
                self.emit("p = skip_tags(buf, p - 1)")
                return
            tag, stop = self.local("tag"), self.local("stop")
            self.emit(f"{count}, p = uvarint(buf, p - 1)")
            with self.block(f"for _ in range({count}):"):
                self.emit(f"{tag}, p = uvarint(buf, p)")
                self.emit(f"{stop}, p = uvarint(buf, p)")
                self.emit(f"{stop} += p")
                for field in known:
                    with self.block(f"if {tag} == {field.spec.tag}:"):
                        self._value(field.type, False, f"{var}.{field.name}")
                        self.flush()
                        with self.block(f"if p != {stop}:"):
                            name = field.name
                            self.emit(f'raise ProtocolError("tagged {name} has a wrong size")')
                self.emit(f"p = {stop}")


def _has_records(cls: type[Message], version: int) -> bool:
    """Whether any field of this version, however deep, holds record batches."""

    def holds(kind: Type) -> bool:
        if kind.item is not None:
            return holds(kind.item)
        if kind.struct is not None:
            return _has_records(kind.struct, version)
        return kind.kind == "records"

    return any(f.exists(version) and holds(f.type) for f in fields_of(cls))
