"""Avro: values are those of fastavro, and their JSON is the JSON encoding of Avro."""

import io
import json
from typing import Any, Final

import fastavro
from fastavro.validation import validate

from barnabas.registry.client import SchemaText
from barnabas.registry.errors import BadRecord, BadSchema
from barnabas.registry.usable import UsableSchema

_ERRORS: Final = (ValueError, TypeError, LookupError, ArithmeticError, EOFError, AttributeError,
                  RecursionError, MemoryError, StopIteration, AssertionError)  # fmt: skip
"""The exceptions of fastavro for bytes and values that do not fit their schema."""


class AvroSchema(UsableSchema):
    """A schema of Avro."""

    def __init__(self, schema: SchemaText, record: str | None = None) -> None:
        """Parse a schema; raises BadSchema."""
        super().__init__(schema)
        try:
            named: dict[str, Any] = {}
            for _, text in schema.resolved:
                fastavro.parse_schema(_loaded(text), named_schemas=named)
            self.parsed: Final = fastavro.parse_schema(_loaded(schema.text), named_schemas=named)
        except (fastavro.schema.SchemaParseException, *_ERRORS) as error:
            raise BadSchema(f"not a schema of Avro: {_said(error)}") from error
        self.named: Final = named
        """The definition of each name."""
        self.record = self.parsed.get("name") if isinstance(self.parsed, dict) else None
        if record is not None and record != self.record:
            raise BadSchema(f"the schema is of {self.record}, not of {record}")

    def read(self, payload: bytes, reader: "AvroSchema | None") -> Any:
        """Resolve the value from this schema to that of `reader`, by the rules of Avro."""
        data = io.BytesIO(payload)
        wanted = None if reader is None or reader.schema == self.schema else reader.parsed
        try:
            value = fastavro.schemaless_reader(data, self.parsed, wanted)
        except (fastavro.read.SchemaResolutionError, *_ERRORS) as error:
            raise BadRecord(f"value does not fit the schema: {_said(error)}") from error
        if more := len(payload) - data.tell():
            raise BadRecord(f"value does not fit the schema: {more} bytes too many")
        return value

    def write(self, value: Any) -> bytes:
        """Encode a value; a field that it lacks gets its default."""
        data = io.BytesIO()
        try:
            fastavro.schemaless_writer(data, self.parsed, value, strict_allow_default=True)
        except _ERRORS as error:
            raise BadRecord(f"value does not fit the schema: {_said(error)}") from error
        return data.getvalue()

    def to_json(self, value: Any) -> str:
        """Return the JSON encoding of Avro: a member of a union is wrapped in its type."""
        text = io.StringIO()
        fastavro.json_writer(text, self.parsed, [value])
        return text.getvalue()

    def from_json(self, text: str) -> Any:
        """Read the JSON encoding of Avro."""
        try:
            value = next(fastavro.json_reader(io.StringIO(text), self.parsed))
            validate(value, self.parsed)
        except AttributeError as error:
            text = 'a member of a union needs its type before it, such as {"long": 3}'
            raise BadRecord(f"value does not fit the schema: {text}") from error
        except (fastavro.validation.ValidationError, *_ERRORS) as error:
            raise BadRecord(f"value does not fit the schema: {_said(error)}") from error
        return value


def _loaded(text: str) -> Any:
    """Return a schema without the logical type uuid: a string is read as a string then."""

    def plain(part: dict[str, Any]) -> dict[str, Any]:
        if part.get("logicalType") == "uuid":
            del part["logicalType"]
        return part

    return json.loads(text, object_hook=plain)


def _said(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
