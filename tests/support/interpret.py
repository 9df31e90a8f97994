"""A second codec, slow and simple: tests compare the compiled codec with it.

It follows the protocol guide field by field and shares nothing with the compiler but the schema.
"""

from struct import error as StructError
from struct import pack, unpack_from
from typing import Any

from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.schema import Field, Message, Schema, WireType, fields_of

_FORMATS = {
    "bool": ">?",
    "int8": ">b",
    "int16": ">h",
    "uint16": ">H",
    "int32": ">i",
    "uint32": ">I",
    "int64": ">q",
    "float64": ">d",
    "uuid": ">16s",
}


def interpret_decode(cls: type[Any], version: int, data: bytes) -> Any:
    """Return the message that `codec.decode` returns, with its records as bytes."""
    reader = _Reader(data, _schema(cls, version), version)
    try:
        message = reader.struct(cls)
    except (StructError, IndexError, UnicodeDecodeError) as error:
        raise ProtocolError(str(error)) from error
    if reader.position != len(data):
        raise ProtocolError("bytes behind the message")
    return message


def interpret_encode(message: Any, version: int) -> bytes:
    """Return the bytes that `codec.encode` returns."""
    writer = _Writer(_schema(type(message), version), version)
    try:
        writer.struct(message)
    except (StructError, AttributeError, TypeError) as error:
        raise ProtocolError(str(error)) from error
    return bytes(writer.out)


def _schema(cls: type[Any], version: int) -> Schema:
    schema: Schema = cls._schema
    if version not in schema.versions:
        raise ProtocolError(f"{cls.__name__} has no version {version}")
    return schema


class _Reader:
    def __init__(self, data: bytes, schema: Schema, version: int) -> None:
        self.data = data
        self.position = 0
        self.version = version
        self.flexible = schema.is_flexible(version)

    def take(self, count: int) -> bytes:
        if count > len(self.data) - self.position:
            raise ProtocolError("the message ends too early")
        self.position += count
        return self.data[self.position - count : self.position]

    def number(self, kind: str) -> Any:
        (value,) = unpack_from(_FORMATS[kind], self.data, self.position)
        self.position += len(pack(_FORMATS[kind], value))
        return value

    def uvarint(self) -> int:
        value = 0
        for index in range(5):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                if value >= 2**32:
                    break
                return value
        raise ProtocolError("a varint that is no 32-bit number")

    def length(self, kind: str) -> int:
        if self.flexible:
            return self.uvarint() - 1
        return int(self.number("int16" if kind == "string" else "int32"))

    def struct(self, cls: type[Message]) -> Any:
        values = {}
        for field in fields_of(cls):
            if field.exists(self.version) and field.spec.tag is None:
                values[field.name] = self.value(field.type, field.nullable(self.version))
            else:
                values[field.name] = field.default()
        if self.flexible:
            self.tags(cls, values)
        return cls(**values)

    def tags(self, cls: type[Message], values: dict[str, Any]) -> None:
        count = self.uvarint()
        if count > 64:
            raise ProtocolError("too many tagged fields")
        for _ in range(count):
            tag, size = self.uvarint(), self.uvarint()
            end = self.position + size
            for field in fields_of(cls):
                if field.spec.tag == tag and field.exists(self.version):
                    values[field.name] = self.value(field.type, field.nullable_in_tag, 0)
                    break
            else:
                self.take(size)
            if self.position != end:
                raise ProtocolError("a tagged field of a wrong size")

    def value(self, kind: WireType, nullable: bool, null: int = -1) -> Any:
        if kind.kind in _FORMATS:
            return self.number(kind.kind)
        if kind.kind == "struct":
            assert kind.struct is not None
            if nullable and self.number("int8") == null:
                return None
            return self.struct(kind.struct)
        length = self.length(kind.kind)
        if length < 0:
            if not nullable:
                raise ProtocolError("null where null may not be")
            return None
        if kind.item is not None:
            if length > min(len(self.data) - self.position, 1 << 20):
                raise ProtocolError("too many elements")
            return [self.value(kind.item, kind.item.nullable) for _ in range(length)]
        if kind.kind == "string":
            if length > 0x7FFF:
                raise ProtocolError("a string is too long")
            return self.take(length).decode()
        return self.take(length)


class _Writer:
    def __init__(self, schema: Schema, version: int) -> None:
        self.out = bytearray()
        self.schema = schema
        self.version = version
        self.flexible = schema.is_flexible(version)

    def uvarint(self, value: int) -> None:
        while value > 0x7F:
            self.out.append(value & 0x7F | 0x80)
            value >>= 7
        self.out.append(value)

    def length(self, kind: str, length: int) -> None:
        if kind == "string" and length > 0x7FFF:
            raise ProtocolError("a string is too long")
        if self.flexible:
            self.uvarint(length + 1)
        else:
            self.out += pack(">h" if kind == "string" else ">i", length)

    def struct(self, message: Any) -> None:
        tagged = []
        for field in fields_of(type(message)):
            value = getattr(message, field.name)
            if not field.exists(self.version):
                if not field.spec.ignorable and value != field.default():
                    raise ProtocolError(f"this version cannot carry {field.name}")
            elif field.spec.tag is None:
                self.value(field.type, field.nullable(self.version), value)
            elif value != field.default():
                tagged.append((field, value))
        if self.flexible:
            self.tags(tagged)

    def tags(self, tagged: list[tuple[Field, Any]]) -> None:
        tagged.sort(key=lambda pair: pair[0].spec.tag or 0)
        self.uvarint(len(tagged))
        for field, value in tagged:
            inner = _Writer(self.schema, self.version)
            inner.value(field.type, field.nullable_in_tag, value, 0)
            assert field.spec.tag is not None
            self.uvarint(field.spec.tag)
            self.uvarint(len(inner.out))
            self.out += inner.out

    def value(self, kind: WireType, nullable: bool, value: Any, null: int = -1) -> None:
        if kind.kind in _FORMATS:
            self.out += pack(_FORMATS[kind.kind], value)
        elif value is None and not nullable:
            raise ProtocolError("null where null may not be")
        elif kind.kind == "struct":
            if nullable:
                self.out += pack(">b", null if value is None else 1)
            if value is not None:
                self.struct(value)
        elif value is None:
            self.length(kind.kind, -1)
        elif kind.item is not None:
            self.length("array", len(value))
            for item in value:
                self.value(kind.item, kind.item.nullable, item)
        else:
            data = value.encode() if kind.kind == "string" else bytes(value)
            self.length(kind.kind, len(data))
            self.out += data
