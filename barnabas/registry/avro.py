"""Avro: values are those of fastavro, and their JSON is the JSON encoding of Avro."""

import copy
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from decimal import MAX_PREC
from typing import Any, Final

import fastavro

from barnabas.registry.client import SchemaText
from barnabas.registry.errors import BadRecord, BadSchema
from barnabas.registry.usable import UsableSchema

_ERRORS: Final = (ValueError, TypeError, LookupError, ArithmeticError, EOFError, AttributeError,
                  RecursionError, MemoryError, StopIteration, AssertionError)  # fmt: skip
"""The exceptions of fastavro for bytes and values that do not fit their schema."""
_NAMED: Final = ("record", "error", "enum", "fixed")
_TYPES: Final = {bool: "boolean", str: "string", bytes: "bytes", list: "array", dict: "map"}
_LIMITS: Final = {"int": 1 << 31, "long": 1 << 63}


class AvroSchema(UsableSchema):
    """A schema of Avro."""

    def __init__(self, schema: SchemaText, record: str | None = None) -> None:
        """Parse a schema; raises BadSchema."""
        super().__init__(schema)
        try:
            named: dict[str, Any] = {}
            for _, text in schema.resolved:
                fastavro.parse_schema(_loaded(text), named_schemas=named)
            parsed = fastavro.parse_schema(_loaded(schema.text), named_schemas=named)
            self.parsed: Final = _with_definitions(parsed, named)
            self._written: Final = _with_values(self.parsed, named)
            self._read: Final = _with_all_digits(self._written)
            self._plain: Final = _without_logical_types(self.parsed)
        except (fastavro.schema.SchemaParseException, *_ERRORS) as error:
            raise BadSchema(f"not a schema of Avro: {_said(error)}") from error
        self.named: Final = named
        """The definition of each name."""
        self.record = self.parsed.get("name") if isinstance(self.parsed, dict) else None
        if record is not None and record != self.record:
            raise BadSchema(f"the schema is of {self.record}, not of {record}")

    def read(self, payload: bytes, reader: "AvroSchema | None") -> Any:
        """Resolve the value from this schema to that of `reader`, by the rules of Avro.

        Without a reader it is the value for `to_json`: numbers and bytes as they are encoded, and
        a record, enum or fixed in a union as a pair of its name and itself.
        """
        data = io.BytesIO(payload)
        try:
            if reader is None:
                value = fastavro.schemaless_reader(data, self._plain, None, return_named_type=True)
            else:
                wanted = None if reader.schema == self.schema else reader._read
                value = fastavro.schemaless_reader(data, self._read, wanted)
        except (fastavro.read.SchemaResolutionError, *_ERRORS) as error:
            raise BadRecord(f"value does not fit the schema: {_said(error)}") from error
        if more := len(payload) - data.tell():
            raise BadRecord(f"value does not fit the schema: {more} bytes too many")
        return value

    def write(self, value: Any) -> bytes:
        """Encode a value; a field that it lacks gets its default."""
        data = io.BytesIO()
        try:
            fastavro.schemaless_writer(data, self._written, value, strict_allow_default=True)
        except _ERRORS as error:
            raise BadRecord(f"value does not fit the schema: {_said(error)}") from error
        return data.getvalue()

    def to_json(self, value: Any) -> str:
        """Return the JSON encoding of Avro: a member of a union is wrapped in its type."""
        return json.dumps(_Encoding(self.named).given(self.parsed, value))

    def from_json(self, text: str) -> Any:
        """Read the JSON encoding of Avro; a member of a union is a pair of its type and itself.

        A field that is left out stays so: `write` has its default.
        """
        try:
            return _Encoding(self.named).read(self.parsed, json.loads(text), "value")
        except _ERRORS as error:
            raise BadRecord(f"value does not fit the schema: {_said(error)}") from error


class _Encoding:
    """The JSON encoding of Avro.

    The reader of fastavro does not read a map of records with records. It and the writer take the
    first member of a union that fits, not the one that is named.
    """

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named

    def read(self, kind: Any, given: Any, at: str) -> Any:
        """Return the value of a type; `at` is its place. Raises ValueError."""
        if isinstance(kind, list):
            return self._member(kind, given, at)
        if isinstance(kind, str):
            kind = self._named.get(kind, {"type": kind})
        match kind["type"], given:
            case (("record" | "error"), dict()):
                types = {each["name"]: each["type"] for each in kind["fields"]}
                if unknown := given.keys() - types:
                    raise ValueError(f"{at} has no field {min(unknown)!r} in the schema")
                return {name: self.read(types[name], given[name], name) for name in given}
            case "array", list():
                return [self.read(kind["items"], each, at) for each in given]
            case "map", dict():
                return {name: self.read(kind["values"], given[name], at) for name in given}
            case (("bytes" | "fixed"), str()):
                return given.encode("iso-8859-1")
            case (("string" | "enum"), str()) | ("boolean", bool()) | ("null", None):
                return given
            case ("int" | "long") as name, int() if not isinstance(given, bool):
                if -_LIMITS[name] <= given < _LIMITS[name]:
                    return given
            case (("float" | "double"), (int() | float())) if not isinstance(given, bool):
                return float(given)
            case (dict() | list()) as inner, _:
                return self.read(inner, given, at)
        raise ValueError(f"{at} is {json.dumps(given)[:40]}, and in the schema {_type_name(kind)}")

    def given(self, kind: Any, value: Any) -> Any:
        """Return a value, as AvroSchema.read has it without a reader, for JSON."""
        if isinstance(kind, list):
            if value is None:
                return None
            name, member = value if isinstance(value, tuple) else (_member_of(kind, value), value)
            inner = next(each for each in kind if _type_name(each) == name)
            return {name: self.given(inner, member)}
        if isinstance(kind, str):
            kind = self._named.get(kind, {"type": kind})
        match kind["type"]:
            case "record" | "error":
                types = {each["name"]: each["type"] for each in kind["fields"]}
                return {name: self.given(types[name], each) for name, each in value.items()}
            case "array":
                return [self.given(kind["items"], each) for each in value]
            case "map":
                return {name: self.given(kind["values"], each) for name, each in value.items()}
            case "bytes" | "fixed":
                return value.decode("iso-8859-1")
            case str():
                return value
        return self.given(kind["type"], value)

    def _member(self, union: Sequence[Any], given: Any, at: str) -> Any:
        if given is None and "null" in union:
            return None
        if isinstance(given, dict) and len(given) == 1:
            [(name, value)] = given.items()
            for each in union:
                if _type_name(each) == name:
                    return name, self.read(each, value, at)
        names = ", ".join(map(_type_name, union))
        example = 'a member of a union needs its type before it, such as {"long": 3}'
        raise ValueError(f"{at}: {example}; the types are {names}")


def _member_of(union: Sequence[Any], value: Any) -> str:
    """Return the name of the member of a union that a value without a name is of."""
    names = {_type_name(each) for each in union}
    match value:
        case int() if not isinstance(value, bool):
            is_int = "int" in names and -_LIMITS["int"] <= value < _LIMITS["int"]
            return "int" if is_int else "long"
        case float():
            return "double" if "double" in names else "float"
    return _TYPES[type(value)]


def _type_name(kind: Any) -> str:
    """Return the name of a type, as a union has it before a value."""
    if isinstance(kind, str):
        return kind
    name: str = kind["name"] if kind["type"] in _NAMED else kind["type"]
    return name


def _loaded(text: str) -> Any:
    """Return a schema without the logical type uuid: a string is read as a string then.

    A decimal without a precision is bytes: Avro ignores a logical type that is not valid.
    """

    def plain(part: dict[str, Any]) -> dict[str, Any]:
        logical = part.get("logicalType")
        if logical == "uuid" or (logical == "decimal" and "precision" not in part):
            del part["logicalType"]
        return part

    return json.loads(text, object_hook=plain)


def _with_definitions(parsed: Any, named: Mapping[str, Any]) -> Any:
    """Return a schema with the definitions of names, also in a union, an array or a map.

    fastavro keeps definitions with a record only, and asks for them when it reads.
    """
    if isinstance(parsed, list):
        return [_with_definitions(each, named) for each in parsed]
    found = named.get(parsed, parsed) if isinstance(parsed, str) else parsed
    if isinstance(found, str):
        return found
    return {**found, "__fastavro_parsed": True, "__named_schemas": named}


def _with_values(parsed: Any, named: Mapping[str, Any]) -> Any:
    """Return a copy of a schema whose defaults are values, as fastavro takes them: not JSON."""
    copied = copy.deepcopy(parsed)
    for part in _parts(copied):
        for field in part.get("fields", ()):
            if "default" in field:
                field["default"] = _value(field["type"], field["default"], named)
    return copied


def _with_all_digits(parsed: Any) -> Any:
    """Return a copy of a schema with which fastavro does not round decimals to their precision."""
    copied = copy.deepcopy(parsed)
    for part in _parts(copied):
        if part.get("logicalType") == "decimal":
            part["precision"] = MAX_PREC
    return copied


def _without_logical_types(parsed: Any) -> Any:
    """Return a copy of a schema with which fastavro reads numbers and bytes as they are encoded."""
    copied = copy.deepcopy(parsed)
    for part in _parts(copied):
        part.pop("logicalType", None)
    return copied


def _parts(parsed: Any) -> Iterator[dict[str, Any]]:
    """Yield each mapping of a schema, outside of defaults."""
    open_parts, done = [parsed], set()
    while open_parts:
        part = open_parts.pop()
        if isinstance(part, list):
            open_parts += part
        elif isinstance(part, dict) and id(part) not in done:
            done.add(id(part))
            open_parts += (each for name, each in part.items() if name != "default")
            yield part


def _value(kind: Any, default: Any, named: Mapping[str, Any]) -> Any:
    """Return the value of a default: bytes of a text, and a record with all its fields."""
    if default is None:
        return None
    if isinstance(kind, list):
        return _value(next(each for each in kind if each != "null"), default, named)
    if isinstance(kind, str):
        kind = named.get(kind, {"type": kind})
    match kind["type"]:
        case "bytes" | "fixed":
            return default.encode("iso-8859-1") if isinstance(default, str) else default
        case "record" | "error":
            return {
                each["name"]: _value(
                    each["type"], default.get(each["name"], each.get("default")), named
                )
                for each in kind["fields"]
            }
        case "array":
            return [_value(kind["items"], each, named) for each in default]
        case "map":
            return {name: _value(kind["values"], each, named) for name, each in default.items()}
        case str():
            return default
    return _value(kind["type"], default, named)


def _said(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
