"""The columns of a schema of Avro, with the types that Spark's own functions for Avro give them.

A union with null is a column that may be null; int with long is bigint, float with double is
double. Other unions have no columns.
"""

import datetime
import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from barnabas.pipeline.columns.shapes import (
    DEEPEST,
    TIMESTAMP,
    Column,
    Convert,
    RowShape,
    Shape,
    list_of,
    map_of,
    struct_of,
)
from barnabas.registry.avro import AvroSchema
from barnabas.registry.errors import BadSchema

_PRIMITIVES: Final = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "null": pa.null(),
}
_LOGICAL: Final = {
    pa.date32(): ("int", "date"),
    TIMESTAMP: ("long", "timestamp-micros"),
    pa.timestamp("us"): ("long", "local-timestamp-micros"),
}
_WIDER: Final = {frozenset({"int", "long"}): "long", frozenset({"float", "double"}): "double"}
_MOST_DIGITS: Final = 38
_MIDNIGHT: Final = datetime.datetime.min
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_LOCAL_EPOCH: Final = datetime.datetime(1970, 1, 1)
_MICROSECOND: Final = datetime.timedelta(microseconds=1)
_DAY: Final = datetime.timedelta(days=1) // _MICROSECOND


def record(schema: AvroSchema) -> RowShape:
    """Return the columns of a schema, none for that of a single value; raises BadSchema."""
    definition = schema.parsed
    columns = _Columns(schema.named)
    if not isinstance(definition, dict) or definition.get("type") != "record":
        return RowShape((), *columns.of_value(definition))
    found = columns.of_record(definition, 0)
    return RowShape(found, *struct_of(found))


def text_of(kind: pa.DataType, record: str) -> str:
    """Return the schema of columns or of a single value; `record` is its name.

    Each field may be null and has this as its default, so that columns can be added and left out.
    Raises BadSchema for a type that Avro does not have.
    """
    return json.dumps(_definition(kind, record))


def _definition(kind: pa.DataType, name: str) -> Any:
    if pa.types.is_struct(kind):
        fields = [
            {
                "name": each.name,
                "type": ["null", _definition(each.type, f"{name}_{each.name}")],
                "default": None,
            }
            for each in kind
        ]
        return {"type": "record", "name": name, "fields": fields}
    if pa.types.is_list(kind):
        return {"type": "array", "items": ["null", _definition(kind.value_type, f"{name}_item")]}
    if pa.types.is_map(kind) and kind.key_type == pa.string():
        return {"type": "map", "values": ["null", _definition(kind.item_type, f"{name}_value")]}
    if pa.types.is_decimal128(kind):
        digits = {"precision": kind.precision, "scale": kind.scale}
        return {"type": "bytes", "logicalType": "decimal", **digits}
    for text, found in (*_PRIMITIVES.items(), ("int", pa.int8()), ("int", pa.int16())):
        if found == kind:
            return text
    for found, (text, logical) in _LOGICAL.items():
        if found == kind:
            return {"type": text, "logicalType": logical}
    raise BadSchema(f"{name} is of a type that Avro does not have: cast it")


class _Columns:
    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named

    def of_record(self, definition: Mapping[str, Any], depth: int) -> Sequence[Column]:
        return [
            Column(
                each["name"],
                self._shape(each["type"], each["name"], depth + 1),
                "default" not in each,
                _may_be_null(each["type"]),
            )
            for each in definition["fields"]
        ]

    def of_value(self, kind: Any) -> Shape:
        return self._shape(kind, "", 0)

    def _shape(self, kind: Any, field: str, depth: int) -> Shape:
        if depth > DEEPEST:
            raise BadSchema(f"field {field!r} contains itself, which has no columns")
        if isinstance(kind, list):
            return self._shape(_member(kind, field), field, depth)
        if isinstance(kind, str):
            if kind in _PRIMITIVES:
                return Shape(_PRIMITIVES[kind])
            return self._shape(self._named[kind], field, depth)
        name = kind["type"]
        if "logicalType" in kind and (found := _logical(kind)):
            return found
        match name:
            case "record" | "error":
                return struct_of(self.of_record(kind, depth))
            case "array":
                return list_of(self._shape(kind["items"], field, depth + 1))
            case "map":
                return map_of(self._shape(kind["values"], field, depth + 1))
            case "enum":
                return Shape(pa.string())
            case "fixed":
                return Shape(pa.binary())
        return self._shape(name, field, depth + 1)


def _may_be_null(kind: Any) -> bool:
    return kind == "null" or (isinstance(kind, list) and "null" in kind)


def _member(union: Sequence[Any], field: str) -> Any:
    """Return the type of a union besides null; raises BadSchema if it has several."""
    members = [each for each in union if each != "null"]
    if len(members) == 1:
        return members[0]
    if all(isinstance(each, str) for each in members) and (wider := _WIDER.get(frozenset(members))):
        return wider
    raise BadSchema(f"field {field!r} is a union of several types, which has no columns")


def _logical(kind: Mapping[str, Any]) -> Shape | None:
    """Return the shape of a logical type; None for one that fastavro leaves as it is.

    fastavro reads the logical type of the writer, which scales its numbers as it meant them. Where
    the writer had none, a plain number comes, which has the scale of the reader.
    """
    match kind["type"], kind["logicalType"]:
        case (("bytes" | "fixed"), "decimal"):
            if kind["precision"] > _MOST_DIGITS:
                raise BadSchema(f"decimal({kind['precision']}) has too many digits for Spark")
            scale = kind.get("scale", 0)
            return Shape(pa.decimal128(kind["precision"], scale), _decimal(scale))
        case "int", "date":
            return Shape(pa.date32(), _after(datetime.date(1970, 1, 1), datetime.timedelta(days=1)))
        case "long", "timestamp-millis":
            return Shape(TIMESTAMP, _after(_EPOCH, 1000 * _MICROSECOND))
        case "long", "timestamp-micros":
            return Shape(TIMESTAMP, _after(_EPOCH, _MICROSECOND))
        case "long", "local-timestamp-millis":
            return Shape(pa.timestamp("us"), _after(_LOCAL_EPOCH, 1000 * _MICROSECOND))
        case "long", "local-timestamp-micros":
            return Shape(pa.timestamp("us"), _after(_LOCAL_EPOCH, _MICROSECOND))
        case "int", "time-millis":
            return Shape(pa.int32(), _since_midnight(1000), lambda n: _time(n * 1000))
        case "long", "time-micros":
            return Shape(pa.int64(), _since_midnight(1), _time)
    return None


def _after(epoch: Any, unit: datetime.timedelta) -> Convert:
    return lambda value: epoch + value * unit if isinstance(value, int) else value


def _decimal(scale: int) -> Convert:
    def read(value: Any) -> Any:
        if isinstance(value, bytes):
            return Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-scale)
        return value

    return read


def _since_midnight(unit: int) -> Convert:
    def read(value: Any) -> Any:
        if isinstance(value, int):
            return value
        since = datetime.datetime.combine(_MIDNIGHT, value) - _MIDNIGHT
        return since // _MICROSECOND // unit

    return read


def _time(micros: int) -> datetime.time:
    if not 0 <= micros < _DAY:
        raise ValueError(f"{micros} us are not a time of day")
    return (_MIDNIGHT + micros * _MICROSECOND).time()
