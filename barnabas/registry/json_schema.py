"""JSON Schema: values are those of `json`, checked by jsonschema."""

import json
import re
from typing import Any, Final

from jsonschema import Draft7Validator
from jsonschema.exceptions import SchemaError, best_match
from jsonschema.validators import validator_for
from referencing import Registry as Resources
from referencing import Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT7

from barnabas.registry.client import SchemaText
from barnabas.registry.errors import BadRecord, BadSchema
from barnabas.registry.usable import UsableSchema

_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class JsonSchema(UsableSchema):
    """A JSON Schema; without `$schema` it is of draft 7, as for Confluent's serializers."""

    def __init__(self, schema: SchemaText, record: str | None = None) -> None:
        """Parse a schema; raises BadSchema."""
        super().__init__(schema)
        try:
            self.parsed: Final = json.loads(schema.text)
            referred = {name: json.loads(text) for name, text in schema.resolved}
            # Refuse an id that is not among them: by default jsonschema would fetch it.
            resources = Resources().with_resources(
                (name, Resource.from_contents(each, default_specification=DRAFT7))
                for name, each in referred.items()
            )
            kind = validator_for(self.parsed, default=Draft7Validator)
            kind.check_schema(self.parsed)
        except (ValueError, TypeError, SchemaError) as error:
            text = error.message if isinstance(error, SchemaError) else str(error)
            raise BadSchema(f"not a JSON Schema: {text}") from error
        self._validator: Final = kind(self.parsed, registry=resources)
        self.record = self.parsed.get("title") if isinstance(self.parsed, dict) else None
        if record is not None and record != self.record:
            raise BadSchema(f"the schema has the title {self.record!r}, not {record!r}")
        self.referred: Final = referred
        """The schemas that `$ref` may name."""

    def read(self, payload: bytes, reader: "JsonSchema | None") -> Any:  # noqa: ARG002
        """Check the value with this schema, because JSON Schema has no schema resolution."""
        return self._checked(self._parse(payload))

    def write(self, value: Any) -> bytes:
        """Check and encode a value."""
        return _text(self._checked(value), (",", ":")).encode()

    def to_json(self, value: Any) -> str:
        """Return the value on one line."""
        return _text(value, (", ", ": "))

    def from_json(self, text: str) -> Any:
        """Return the value, not checked yet."""
        return self._parse(text.encode())

    def _parse(self, text: bytes) -> Any:
        try:
            return json.loads(text, parse_constant=_no_number)
        except (ValueError, RecursionError) as error:
            raise BadRecord(f"value is not JSON: {error}") from error

    def _checked(self, value: Any) -> Any:
        try:
            fault = best_match(self._validator.iter_errors(value))
        except (Unresolvable, RecursionError) as error:
            raise BadRecord(f"the schema cannot be used: {error}", "other_schema") from error
        if fault is not None:
            raise BadRecord(
                f"value does not fit the schema: {fault.json_path}: {fault.message[:200]}"
            )
        return value


def _text(value: Any, separators: tuple[str, str]) -> str:
    """Return a value as JSON that UTF-8 has: a surrogate without the other one is escaped."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=separators)
    except (ValueError, RecursionError) as error:
        raise BadRecord(f"value is not JSON: {error}") from error
    return _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no number of JSON")
