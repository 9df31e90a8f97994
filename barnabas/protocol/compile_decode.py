"""The compiler of decoders: one function for each version of a message, from bytes to objects."""

from collections.abc import Callable
from struct import calcsize, unpack_from
from struct import error as StructError
from typing import Any

from barnabas.protocol.compile import (
    FORMATS,
    MAX_ELEMENTS,
    SMALL,
    Form,
    FunctionSource,
    read_count,
    read_string_length,
    read_tag_count,
    read_uvarint,
    schema_of,
    skip_tags,
    small_unpackers,
    struct_for,
)
from barnabas.protocol.errors import ProtocolError, TooManyElements
from barnabas.protocol.schema import Field, Message, WireType, blank, fields_of, shared_default


def decoder(cls: type[Any], version: int, form: Form = Form.PLAIN) -> Callable[..., Any]:
    """Return the function `decode(buf, offset=0, exact=True)` of this version.

    Bytes after the message are ignored unless `exact`. Raise ProtocolError for an unknown version.
    The sliced form is `decode(buf, offset, exact, most)`: a generator that returns the message, and
    raises ProtocolError if it has more than `most` elements.
    """
    known: dict[Any, Callable[..., Any]] = cls._decoders
    key = version if form is Form.PLAIN else (version, form)
    if key not in known:
        known[key] = _DecoderSource(schema_of(cls), version, form).build()
    return known[key]


_NUMBERS = 16 * 1024
"""Numbers that are unpacked at once in a message that is decoded in slices: below 1 ms."""
_FEW = 4
"""Longest array of structs for which an iterator does not pay."""


class _DecoderSource(FunctionSource):
    """The source of a decoder: `buf` is the input, `p` the position, `end` the input's length."""

    def build(self) -> Callable[..., Any]:
        cls = self.schema.cls
        self.names |= {
            "ProtocolError": ProtocolError,
            "TooManyElements": TooManyElements,
            "errors": (StructError, IndexError, UnicodeDecodeError),
            "uvarint": read_uvarint,
            "count": read_count,
            "string_length": read_string_length,
            "skip_tags": skip_tags,
            "tag_count": read_tag_count,
            "unpack_from": unpack_from,
        }
        view = self.form is Form.SLICED or has_records(cls, self.version)
        # A slice of bytes is cheaper than a slice of a memoryview, so only records keep the view,
        # and large messages, which would have to be copied whole.
        self._text = ".tobytes().decode()" if view else ".decode()"
        self._bytes = ".tobytes()" if view else ""
        if view:
            self.emit("buf = buf if type(buf) is memoryview else memoryview(buf)")
        else:
            self.emit("buf = buf.tobytes() if type(buf) is memoryview else bytes(buf)")
        self.emit("end = len(buf)")
        if self.form is Form.SLICED:
            self.emit("steps = 0")
            self.emit("left = most")
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
        if self.form is Form.SLICED:
            self.emit("yield")
            return self.compiled("def compiled(buf, p, exact, most):")
        return self.compiled("def compiled(buf, p=0, exact=True):")

    def flush(self) -> None:
        self._read_run()

    def _read_run(self, behind: int = 0) -> None:
        """Emit the pending run; the position ends up `behind` bytes before the run's end."""
        if not self.run:
            return
        run, self.run = self.run, []
        fmt = "".join(f for f, _ in run)
        if fmt == "B":
            self.emit(f"{run[0][1]} = buf[p]")
        else:
            unpack = self.constant(struct_for(fmt).unpack_from, "unpack")
            self.emit(f"{', '.join(target for _, target in run)}, = {unpack}(buf, p)")
        step = calcsize(">" + fmt) - behind
        if step:
            self.emit(f"p += {step}")

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

    def _value(self, kind: WireType, nullable: bool, target: str) -> None:
        if kind.kind in FORMATS:
            self.run.append((FORMATS[kind.kind], target))
        elif kind.kind == "array":
            self._array(kind, nullable, target)
        elif kind.kind == "struct":
            self._nested(kind, nullable, target, "< 0")
        else:
            self._blob(kind, nullable, target)

    def _nested(self, kind: WireType, nullable: bool, target: str, null: str) -> None:
        assert kind.struct is not None
        var = self.local("o")
        if not nullable:
            self._struct(kind.struct, var)
            self.emit(f"{target} = {var}")
            return
        present = self.local("n")
        self.run.append(("b", present))
        with self.block(f"if {present} {null}:"):
            self.emit(f"{target} = None")
        with self.block("else:"):
            self._struct(kind.struct, var)
            self.emit(f"{target} = {var}")

    def _null(self, nullable: bool, target: str) -> None:
        if nullable:
            self.emit(f"{target} = None")
        else:
            self.emit(f'raise ProtocolError("{target.rpartition(".")[2]} is null")')

    def _blob(self, kind: WireType, nullable: bool, target: str) -> None:
        turn, nothing = {
            "string": (self._text, '""'),
            "bytes": (self._bytes, 'b""'),
            "records": ("", "buf[:0]"),
        }[kind.kind]
        length = self.local("n")
        if self.compact:
            self._compact_length(kind.kind, length)
            value, empty = f"buf[p + 1 : (p := p + {length})]", 1
        else:
            self.run.append(("h" if kind.kind == "string" else "i", length))
            value, empty = f"buf[p : (p := p + {length})]", 0
        with self.block(f"if {length} > {empty}:"):
            self.emit(f"{target} = {value}{turn}")
        with self.block(f"elif {length} == {empty}:"):
            if self.compact:
                self.emit("p += 1")
            self.emit(f"{target} = {nothing}")
        with self.block("else:"):
            if self.compact:
                self.emit("p += 1")
            self._null(nullable, target)

    def _compact_length(self, kind: str, length: str) -> None:
        """Emit the read of a length field (length plus one, 0 for null); `p` ends up at its last
        byte.

        Stopping there saves one addition, and integers above 256 are objects that have to be
        allocated.
        """
        self.run.append(("B", length))
        self._read_run(behind=1)
        with self.block(f"if {length} > 127:"):
            if kind == "records":
                self._records_length(length)
                return
            reader = "string_length" if kind == "string" else "uvarint"
            self.emit(f"{length}, p = {reader}(buf, p)")
            self.emit("p -= 1")

    def _records_length(self, length: str) -> None:
        """Emit the second and third byte in line, without a call; few batches need a fourth."""
        self.emit("p += 1")
        self.emit(f"{length} += (buf[p] << 7) - 0x80")
        with self.block(f"if {length} > 0x3FFF:"):
            self.emit("p += 1")
            self.emit(f"{length} += (buf[p] << 14) - 0x4000")
            with self.block(f"if {length} > 0x1FFFFF:"):
                self.emit(f"{length}, p = uvarint(buf, p - 2)")
                self.emit("p -= 1")

    def _array(self, kind: WireType, nullable: bool, target: str) -> None:
        assert kind.item is not None
        item, count = kind.item, self.local("n")
        self.run.append(("B" if self.compact else "i", count))
        empty = 1 if self.compact else 0
        few = self.few(item) + empty
        if self.compact:
            with self.block(f"if {count} > {few if self.form is Form.SMALL else 127}:"):
                if self.form is Form.SMALL:
                    self.emit("raise TooManyElements")
                else:
                    self.emit(f"{count}, p = count(buf, p - 1)")
        with self.block(f"if {count} > {empty}:"):
            if self.form is Form.SLICED:
                self._take_elements(f"{count} - {empty}")
            elif not self.compact and self.form is Form.SMALL:
                with self.block(f"if {count} > {few}:"):
                    self.emit("raise TooManyElements")
            elif not self.compact:
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

    def _take_elements(self, count: str) -> None:
        """Emit the checks that the message may have so many elements more, and has their bytes."""
        self.emit(f"left -= {count}")
        with self.block("if left < 0:"):
            self.emit('raise ProtocolError(f"the message has more than {most} elements")')
        with self.block(f"if {count} > end - p:"):
            self.emit(f'raise ProtocolError(f"{{{count}}} elements do not fit the message")')

    def _numbers(self, fmt: str, count: str, target: str) -> None:
        small = self.constant(small_unpackers(fmt), "small")
        size = calcsize(">" + fmt)
        if self.compact:
            self.emit(f"{count} -= 1")
        with self.block(f"if {count} < {SMALL}:"):
            self.emit(f"{target} = list({small}[{count}](buf, p))")
        with self.block(f"elif {count} * {size} > end - p:"):
            self.emit(f'raise ProtocolError(f"{{{count}}} elements do not fit the message")')
        with self.block("else:"):
            if self.form is Form.SLICED:
                self.emit(f"{target} = []")
                with self.block(f"while {count} > {_NUMBERS}:"):
                    self.emit(f"{target} += unpack_from({_many(fmt, str(_NUMBERS))}, buf, p)")
                    self.emit(f"{count} -= {_NUMBERS}")
                    self.emit(f"p += {_NUMBERS * size}")
                    self.interrupt()
                self.emit(f"{target} += unpack_from({_many(fmt, count)}, buf, p)")
            else:
                self.emit(f"{target} = list(unpack_from({_many(fmt, count)}, buf, p))")
        self.emit(f"p += {count} * {size}")

    def _items(self, item: WireType, count: str, target: str) -> None:
        var = self.local("o")
        items = f"{var}s"
        self.emit(f"{target} = {items} = []")
        plain = item.struct if not item.nullable else None
        if plain is not None and self.form is not Form.SLICED:
            self._stride(plain, count, var, items)
        with self.loop(f"while {count} > 1:" if self.compact else f"while {count}:"):
            self.emit(f"{count} -= 1")
            if plain is not None:
                self._struct(plain, var)
            else:
                self._value(item, item.nullable, var)
            self.flush()
            self.emit(f"{items}.append({var})")

    def _stride(self, cls: type[Message], count: str, var: str, items: str) -> None:
        """Emit a loop that unpacks fixed-size structs with one iterator, until one has tagged
        fields."""
        fields = self.inline(cls)
        if not fields or any(f.type.kind not in FORMATS for f in fields):
            return
        fmt = "".join(FORMATS[f.type.kind] for f in fields) + "B" * self.compact
        size = calcsize(">" + fmt)
        iter_unpack = self.constant(struct_for(fmt).iter_unpack, "iter_unpack")
        values, tags = [self.local("v") for _ in fields], self.local("n")
        left, none_left = (f"({count} - 1)", 1) if self.compact else (count, 0)
        with self.block(f"if {count} > {_FEW}:"):
            taken = ", ".join([*values, tags] if self.compact else values)
            stride = f"buf[p : (p := p + {left} * {size})]"
            with self.block(f"for {taken}, in {iter_unpack}({stride}):"):
                if self.compact:
                    with self.block(f"if {tags}:"):
                        self.emit(f"{count} -= len({items})")
                        self.emit(f"p -= {left} * {size}")
                        self.emit("break")
                self.emit(f"{var} = {self.constant(blank(cls), cls.__name__)}()")
                for field, value in zip(fields, values, strict=True):
                    self.emit(f"{var}.{field.name} = {value}")
                for field in fields_of(cls):
                    if field not in fields:
                        self._default(field, f"{var}.{field.name}")
                self.emit(f"{items}.append({var})")
            with self.block("else:"):
                self.emit(f"{count} = {none_left}")

    def _tags(self, cls: type[Message], var: str) -> None:
        known = self.tags(cls)
        if not known and not self.run:
            with self.block("if buf[p]:"):
                self._skip_tags("p")
            with self.block("else:"):
                self.emit("p += 1")
            return
        count = self.local("n")
        self.run.append(("B", count))
        with self.block(f"if {count}:"):
            if not known:
                self._skip_tags("p - 1")
                return
            tag, stop = self.local("tag"), self.local("stop")
            self.emit(f"{count}, p = tag_count(buf, p - 1)")
            if self.form is Form.SLICED:
                self._take_elements(count)
            with self.block(f"for _ in range({count}):"):
                self.emit(f"{tag}, p = uvarint(buf, p)")
                self.emit(f"{stop}, p = uvarint(buf, p)")
                self.emit(f"{stop} += p")
                for field in known:
                    with self.block(f"if {tag} == {field.spec.tag}:"):
                        target, nullable = f"{var}.{field.name}", field.nullable_in_tag
                        if field.type.kind == "struct":
                            self._nested(field.type, nullable, target, "== 0")
                        else:
                            self._value(field.type, nullable, target)
                        self.flush()
                        with self.block(f"if p != {stop}:"):
                            name = field.name
                            self.emit(f'raise ProtocolError("tagged {name} has a wrong size")')
                self.emit(f"p = {stop}")

    def _skip_tags(self, position: str) -> None:
        """Emit a skip of tagged fields that this version does not know."""
        if self.form is Form.SLICED:
            count = self.local("n")
            self.emit(f"{count} = tag_count(buf, {position})[0]")
            self._take_elements(count)
        self.emit(f"p = skip_tags(buf, {position})")


def _many(fmt: str, count: str) -> str:
    """Return an expression for the format of so many numbers."""
    return f'">" + "{fmt}" * {count}' if fmt == "16s" else f'f">{{{count}}}{fmt}"'


def has_records(cls: type[Message], version: int) -> bool:
    """Return whether any field of this version, at any depth, holds record batches."""

    def holds(kind: WireType) -> bool:
        if kind.item is not None:
            return holds(kind.item)
        if kind.struct is not None:
            return has_records(kind.struct, version)
        return kind.kind == "records"

    return any(f.exists(version) and holds(f.type) for f in fields_of(cls))
