"""A schema that records can be decoded and encoded with; a module for each kind makes one."""

from abc import ABC, abstractmethod
from typing import Any, Final, Self

from barnabas.registry.client import AVRO, JSON_SCHEMA, PROTOBUF, SchemaText

CODECS: Final = {"avro": AVRO, "protobuf": PROTOBUF, "json-schema": JSON_SCHEMA}
"""The kind of schema of each codec."""


class UsableSchema(ABC):
    """A schema, parsed. All its errors about records are BadRecord."""

    record: str | None
    """The full name of the record or message; in JSON Schema the title."""

    def __init__(self, schema: SchemaText) -> None:
        self.schema: Final = schema

    @abstractmethod
    def read(self, payload: bytes, reader: Self | None) -> Any:
        """Return the value that was encoded with this schema, converted to the schema `reader`."""

    @abstractmethod
    def write(self, value: Any) -> bytes:
        """Return a value encoded with this schema."""

    @abstractmethod
    def to_json(self, value: Any) -> str:
        """Return a value that was read with this schema as JSON on one line."""

    @abstractmethod
    def from_json(self, text: str) -> Any:
        """Return the value for `write`."""
