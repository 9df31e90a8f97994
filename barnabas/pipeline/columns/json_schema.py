"""The columns of a JSON Schema: an object's properties. A property without one type has no column.

A string is text whatever its format; an object without properties, and with
`additionalProperties` of one schema, is a map.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from barnabas.pipeline.columns.shapes import (
    DEEPEST,
    Column,
    Convert,
    RowShape,
    Shape,
    list_of,
    map_of,
    struct_of,
)
from barnabas.registry.errors import BadSchema
from barnabas.registry.json_schema import JsonSchema

_SCALARS: Final = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "integer": pa.int64(),
    "number": pa.float64(),
}


_KINDS: Final = {
    "string": pa.types.is_string,
    "boolean": pa.types.is_boolean,
    "integer": pa.types.is_integer,
    "number": pa.types.is_floating,
}


def record(schema: JsonSchema) -> RowShape:
    """Return the columns of an object, none for a single value; raises BadSchema."""
    found = _Columns(schema)
    if isinstance(schema.parsed, dict) and schema.parsed.get("type") in _SCALARS:
        return RowShape((), *found.of_value(schema.parsed))
    columns = found.of_object(schema.parsed, schema.parsed, "the schema", 0)
    kind, read, write = _object(columns)

    def read_object(value: Any) -> Any:
        if not isinstance(value, dict):
            raise TypeError("value is not an object")
        return value if read is None else read(value)

    return RowShape(columns, kind, read_object, write)


def text_of(kind: pa.DataType, record: str) -> str:
    """Return the schema of columns or of a single value; `record` is its title.

    Its objects have no further properties: so registries let a later schema add some. Raises
    BadSchema for a type that JSON Schema does not have.
    """
    draft = "http://json-schema.org/draft-07/schema#"
    return json.dumps({"$schema": draft, "title": record, **_definition(kind, record)})


def _definition(kind: pa.DataType, name: str) -> Mapping[str, Any]:
    if pa.types.is_struct(kind):
        properties = {each.name: _nullable(each.type, f"{name}.{each.name}") for each in kind}
        return {"type": "object", "properties": properties, "additionalProperties": False}
    if pa.types.is_list(kind):
        return {"type": "array", "items": _nullable(kind.value_type, name)}
    if pa.types.is_map(kind) and kind.key_type == pa.string():
        return {"type": "object", "additionalProperties": _nullable(kind.item_type, name)}
    for text, fits in _KINDS.items():
        if fits(kind):
            return {"type": text}
    raise BadSchema(f"{name} is of a type that JSON Schema does not have: cast it")


def _nullable(kind: pa.DataType, name: str) -> Mapping[str, Any]:
    part = _definition(kind, name)
    return {**part, "type": [part["type"], "null"]}


class _Columns:
    def __init__(self, schema: JsonSchema) -> None:
        self._referred = schema.referred

    def of_value(self, root: Any) -> Shape:
        return self._shape(root, root, "the schema", 0)

    def of_object(self, root: Any, part: Any, field: str, depth: int) -> Sequence[Column]:
        """Return the columns of an object; `root` is the document that `#` in `$ref` means."""
        root, part = self._followed(root, part, field)
        properties = part.get("properties", {})
        if not properties:
            raise BadSchema(f"{field} has no properties, and so no columns")
        required = part.get("required", ())
        return [
            Column(name, self._shape(root, each, f"field {name!r}", depth + 1), name in required)
            for name, each in properties.items()
        ]

    def _shape(self, root: Any, part: Any, field: str, depth: int) -> Shape:
        if depth > DEEPEST:
            raise BadSchema(f"{field} contains itself, which has no columns")
        root, part = self._followed(root, part, field)
        kind = _type_of(part, field)
        if kind in _SCALARS:
            return Shape(_SCALARS[kind], _NUMBERS.get(kind))
        if kind == "array":
            return list_of(self._shape(root, part.get("items", {}), field, depth + 1))
        if "properties" not in part and isinstance(part.get("additionalProperties"), dict):
            return map_of(self._shape(root, part["additionalProperties"], field, depth + 1))
        return _object(self.of_object(root, part, field, depth))

    def _followed(self, root: Any, part: Any, field: str) -> tuple[Any, Mapping[str, Any]]:
        """Return the part that `$ref` and a `oneOf` or `anyOf` with null lead to, and its root."""
        for _ in range(DEEPEST):
            if not isinstance(part, dict):
                break
            if reference := part.get("$ref"):
                document, _, path = str(reference).partition("#")
                if path and not path.startswith("/"):
                    text = "which is no path such as #/definitions/NAME, and so has no column"
                    raise BadSchema(f"{field} has $ref {reference!r}, {text}")
                root = root if not document else self._referred.get(document)
                part = root
                for key in path.split("/")[1:]:
                    key = key.replace("~1", "/").replace("~0", "~")
                    part = part.get(key) if isinstance(part, dict) else None
            elif choices := part.get("oneOf") or part.get("anyOf"):
                # A member may be true or false.
                others = [
                    each
                    for each in choices
                    if not isinstance(each, dict) or each.get("type") != "null"
                ]
                if len(others) != 1:
                    raise BadSchema(f"{field} has several types, and so no column")
                part = others[0]
            else:
                return root, part
        raise BadSchema(f"{field} has no type, and so no column")


def _object(columns: Sequence[Column]) -> Shape:
    whole = struct_of(columns)
    return whole._replace(write=_without_nulls(whole.write, columns))


def _integer(value: Any) -> int:
    """Return an integer; JSON Schema holds 1.0 for one."""
    number = _number(value)
    if int(number) != number:
        raise TypeError(f"{value!r} is not an integer")
    return int(number)


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{str(value)[:40]!r} is not a number")
    return value


_NUMBERS: Final = {"integer": _integer, "number": lambda value: float(_number(value))}


def _type_of(part: Mapping[str, Any], field: str) -> str:
    given = part.get("type")
    if given is None and "properties" in part:
        return "object"
    if given is None and "enum" in part and all(isinstance(each, str) for each in part["enum"]):
        return "string"
    types = [given] if isinstance(given, str) else [each for each in given or () if each != "null"]
    if len(types) != 1:
        raise BadSchema(f"{field} has {'several types' if types else 'no type'}, and so no column")
    return types[0]


def _without_nulls(convert: Convert | None, columns: Sequence[Column]) -> Convert | None:
    """Return the function that also leaves out fields that are null and not required."""
    optional = [each.name for each in columns if not each.required]
    if not optional:
        return convert

    def write(value: Any) -> Any:
        changed = dict(value if convert is None else convert(value))
        for name in optional:
            if changed.get(name) is None:
                changed.pop(name, None)
        return changed

    return write
