"""The codecs with a schema registry, and the packages that each needs."""

import importlib.util
from collections.abc import Callable
from typing import Final

from barnabas.registry.client import SchemaText
from barnabas.registry.errors import RegistryError
from barnabas.registry.usable import CODECS, UsableSchema

_NEEDED: Final = {
    "avro": ("fastavro",),
    "protobuf": ("google.protobuf", "grpc_tools"),
    "json-schema": ("jsonschema",),
}

Use = Callable[[SchemaText, str | None], UsableSchema]
"""The function that parses a schema, with the name of the record in it, or None for the first.

It raises BadSchema.
"""


def use_of(codec: str) -> Use:
    """Return the function for the schemas of a codec; RegistryError names a missing package."""
    if missing := [each for each in _NEEDED[codec] if not _is_installed(each)]:
        raise RegistryError(
            f"codec {codec} needs {', '.join(missing)}: pip install 'barnabas[formats]'"
        )
    # Imported here: each needs packages of the extra.
    if codec == "avro":
        from barnabas.registry.avro import AvroSchema

        return AvroSchema
    if codec == "protobuf":
        from barnabas.registry.protobuf import ProtobufSchema

        return ProtobufSchema
    from barnabas.registry.json_schema import JsonSchema

    return JsonSchema


def require_kind(codec: str, subject: str, schema: SchemaText) -> None:
    """Raise RegistryError for a subject whose schema is of another codec."""
    if schema.kind != CODECS[codec]:
        raise RegistryError(f"the schema of {subject} is {schema.kind}, not {CODECS[codec]}")


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False
