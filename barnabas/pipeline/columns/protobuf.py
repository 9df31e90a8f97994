"""The columns of a message of Protobuf.

A field without presence (of proto3, not `optional`) is never null: it has its default. Enums are
their names. Unsigned numbers are of the next larger type; times and wrappers of google.protobuf
are timestamps and plain columns.
"""

import datetime
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message

from barnabas.pipeline.columns.shapes import (
    DEEPEST,
    TIMESTAMP,
    Column,
    RowShape,
    Shape,
    list_of,
    map_of,
    struct_type,
)
from barnabas.registry.errors import BadSchema
from barnabas.registry.protobuf import ProtobufSchema

_F: Final = FieldDescriptor
_SCALARS: Final = {
    **dict.fromkeys((_F.TYPE_INT32, _F.TYPE_SINT32, _F.TYPE_SFIXED32), pa.int32()),
    **dict.fromkeys((_F.TYPE_INT64, _F.TYPE_SINT64, _F.TYPE_SFIXED64), pa.int64()),
    **dict.fromkeys((_F.TYPE_UINT32, _F.TYPE_FIXED32), pa.int64()),
    _F.TYPE_BOOL: pa.bool_(),
    _F.TYPE_FLOAT: pa.float32(),
    _F.TYPE_DOUBLE: pa.float64(),
    _F.TYPE_STRING: pa.string(),
    _F.TYPE_BYTES: pa.binary(),
}
_UNSIGNED: Final = Shape(pa.decimal128(20, 0), Decimal, int)
_TIMESTAMP: Final = "google.protobuf.Timestamp"
_WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Bool", "Bytes", "Double", "Float", "Int32", "Int64", "String", "UInt32", "UInt64")
)
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

Set = Callable[[Message, Any], None]


def record(schema: ProtobufSchema) -> RowShape:
    """Return the columns of the schema's message; raises BadSchema."""
    _, read, write = _message(schema.message, 0)
    assert write is not None

    def message_of(row: Any) -> Message:
        message = schema.make()
        write(row)(message)
        return message

    columns = _columns(schema.message, 0)
    return RowShape(columns, struct_type(columns), read, message_of)


def _columns(message: Descriptor, depth: int) -> Sequence[Column]:
    return [
        Column(each.name, _shape(each, depth + 1), each.is_required, not each.is_required)
        for each in message.fields
    ]


def _shape(field: FieldDescriptor, depth: int) -> Shape:
    if depth > DEEPEST:
        raise BadSchema(f"field {field.name!r} contains itself, which has no columns")
    if _is_map(field):
        parts = field.message_type.fields_by_name
        return map_of(_one(parts["value"], depth), _one(parts["key"], depth))
    return list_of(_one(field, depth)) if field.is_repeated else _one(field, depth)


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _one(field: FieldDescriptor, depth: int) -> Shape:
    if field.type in _SCALARS:
        return Shape(_SCALARS[field.type])
    if field.type in (_F.TYPE_UINT64, _F.TYPE_FIXED64):
        return _UNSIGNED
    if field.type == _F.TYPE_ENUM:
        return _enum(field.enum_type)
    return _message(field.message_type, depth)


def _enum(kind: EnumDescriptor) -> Shape:
    names = {number: each.name for number, each in kind.values_by_number.items()}
    numbers: dict[str, int] = {each.name: each.number for each in kind.values}

    def number_of(name: str) -> int:
        if name in numbers:
            return numbers[name]
        raise ValueError(f"{kind.full_name} has no value {name!r}")

    return Shape(pa.string(), lambda number: names.get(number, str(number)), number_of)


def _message(kind: Descriptor, depth: int) -> Shape:
    """Return the shape of a message; `write` gives the function that fills one."""
    if kind.full_name == _TIMESTAMP:
        return Shape(TIMESTAMP, _time, _set_time)
    if kind.full_name in _WRAPPERS:
        inner = _one(kind.fields_by_name["value"], depth)
        read, write = inner.read or _same, inner.write or _same
        return Shape(
            inner.type,
            lambda message: read(message.value),
            lambda value: lambda message: setattr(message, "value", write(value)),
        )
    found = _columns(kind, depth)
    getters = [_getter(field, each) for field, each in zip(kind.fields, found, strict=True)]
    setters = [_setter(field, each) for field, each in zip(kind.fields, found, strict=True)]
    choices = [[field.name for field in each.fields] for each in kind.oneofs]

    def read_all(message: Message) -> Any:
        return {name: get(message) for name, get in getters}

    def write_all(row: Any) -> Set:
        def fill(message: Message, row: Any = row) -> None:
            message.SetInParent()
            for names in choices:
                if len(several := [name for name in names if row.get(name) is not None]) > 1:
                    text = f"{' and '.join(several)} are members of one oneof"
                    raise ValueError(f"{text}: leave null in all but one")
            for name, put in setters:
                if row.get(name) is not None:
                    put(message, row[name])

        return fill

    return Shape(struct_type(found), read_all, write_all)


def _getter(field: FieldDescriptor, column: Column) -> tuple[str, Callable[[Message], Any]]:
    name, read = field.name, column.shape.read or _same
    if field.has_presence:
        return (
            name,
            lambda message: read(getattr(message, name)) if message.HasField(name) else None,
        )
    if field.is_repeated and not _is_map(field) and column.shape.read is None:
        return name, lambda message: list(getattr(message, name))
    return name, lambda message: read(getattr(message, name))


def _setter(field: FieldDescriptor, column: Column) -> tuple[str, Set]:
    name, write = field.name, column.shape.write or _same
    if _is_map(field):
        inner = field.message_type.fields_by_name["value"]

        def put_map(message: Message, value: Any) -> None:
            target = getattr(message, name)
            for key, each in write(value).items():
                _require(each, name)
                if inner.message_type is not None:
                    each(target[key])
                else:
                    target[key] = each

        return name, put_map
    if field.is_repeated:

        def put_list(message: Message, value: Any) -> None:
            target = getattr(message, name)
            for each in write(value):
                _require(each, name)
                if field.message_type is not None:
                    each(target.add())
                else:
                    target.append(each)

        return name, put_list
    if field.message_type is not None:
        return name, lambda message, value: write(value)(getattr(message, name))
    return name, lambda message, value: setattr(message, name, write(value))


def _require(element: Any, name: str) -> None:
    """Raise ValueError for an element that is null: Protobuf has none."""
    if element is None:
        raise ValueError(f"{name} has an element that is null")


def _same(value: Any) -> Any:
    return value


def _time(message: Any) -> datetime.datetime:
    return _EPOCH + datetime.timedelta(seconds=message.seconds, microseconds=message.nanos // 1000)


def _set_time(value: datetime.datetime) -> Callable[[Any], None]:
    since = (value - _EPOCH) // datetime.timedelta(microseconds=1)

    def fill(message: Any) -> None:
        message.SetInParent()
        message.seconds, micros = divmod(since, 1_000_000)
        message.nanos = micros * 1000

    return fill
