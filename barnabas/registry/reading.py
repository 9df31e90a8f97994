"""Values with a schema id: `Decoder` reads them, and `Encoder` writes them."""

from collections import OrderedDict
from typing import Any, Final
from uuid import UUID

from barnabas.registry.client import SchemaRegistry, remember
from barnabas.registry.codecs import use_of
from barnabas.registry.errors import BadRecord, BadSchema, UnknownSchema, Unreadable
from barnabas.registry.usable import CODECS, UsableSchema
from barnabas.registry.wire import Part, frame, unframe


class Decoder:
    """Decodes values or keys of one codec, each with the schema of its id."""

    def __init__(
        self,
        registry: SchemaRegistry,
        codec: str,
        subject: str,
        reader: UsableSchema | None = None,
        part: Part = "value",
    ) -> None:
        """Decode for `reader`, or as each was written; errors name `subject` and `part`."""
        self._registry = registry
        self._codec = codec
        self._use = use_of(codec)
        self._subject = subject
        self._reader = reader
        self._part: Part = part
        self._usable: OrderedDict[int | UUID, UsableSchema | str] = OrderedDict()

    def decode(self, value: bytes, header: bytes | None = None) -> tuple[UsableSchema, Any]:
        """Return the schema of a value, and the decoded value; a header may have the schema.

        Raises BadRecord with subject, id and reason, and RegistryError if the registry is
        unreachable.
        """
        try:
            number, payload = unframe(value, header)
        except BadRecord as error:
            raise self.failure(value, header, str(error), error.kind) from None
        try:
            writer = self._writer(number)
            return writer, writer.read(payload, self._reader)
        except UnknownSchema as error:
            raise self.failure(value, header, str(error), "unknown_schema_id") from error
        except BadRecord as error:
            raise self.failure(value, header, str(error), error.kind) from error

    def failure(
        self, value: bytes, header: bytes | None, reason: str, kind: Unreadable
    ) -> BadRecord:
        """Return the error of a value, with subject and id, if it has one, before the reason."""
        try:
            number = f", schema id {unframe(value, header)[0]}"
        except BadRecord:
            number = ""
        return BadRecord(f"subject {self._subject}{number}: {_named(reason, self._part)}", kind)

    def _writer(self, number: int | UUID) -> UsableSchema:
        found = self._usable.get(number)
        if found is None:
            schema = self._registry.schema(number)
            if schema.kind != CODECS[self._codec]:
                found = f"the schema is {schema.kind}, not {CODECS[self._codec]}"
            else:
                try:
                    found = self._use(schema, None)
                except BadSchema as error:
                    found = str(error)
            remember(self._usable, number, found)
        else:
            self._usable.move_to_end(number)
        if isinstance(found, str):
            raise BadRecord(found, "other_schema")
        return found


class Encoder:
    """Encodes values or keys with one schema, whose id is known."""

    def __init__(
        self, schema: UsableSchema, subject: str, number: int, part: Part = "value"
    ) -> None:
        self.schema: Final = schema
        self._subject = subject
        self._number = number
        self._part: Part = part

    def encode(self, value: Any) -> bytes:
        """Return the value of a record; raises BadRecord with subject, id and reason."""
        try:
            return frame(self._number, self.schema.write(value))
        except BadRecord as error:
            raise self.failure(str(error)) from error

    def failure(self, reason: str) -> BadRecord:
        """Return the error of a row, with subject and id before the reason."""
        text = _named(reason, self._part)
        return BadRecord(f"subject {self._subject}, schema id {self._number}: {text}")


def _named(reason: str, part: Part) -> str:
    """Return a reason about the part of the record: its texts begin with `value`."""
    return f"{part} {reason.removeprefix('value ')}" if reason.startswith("value ") else reason
