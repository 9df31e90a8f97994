"""Protobuf: values are messages, and their JSON is the JSON mapping of Protobuf.

A registry keeps the text of schemas. protoc of grpcio-tools compiles it, in a separate process,
because it prints its errors, and because the text comes from outside.
"""

import base64
import importlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, EncodeError, Message
from google.protobuf.message_factory import GetMessageClass

from barnabas.registry.client import SchemaText
from barnabas.registry.errors import BadRecord, BadSchema
from barnabas.registry.usable import UsableSchema
from barnabas.registry.wire import read_indexes, write_indexes

_PATIENCE_S: Final = 60.0
_MAIN: Final = "barnabas_schema.proto"
"""The name of the schema itself, which a registry does not have."""
_FAULT: Final = re.compile(r"\S+\.proto:")


class ProtobufSchema(UsableSchema):
    """A schema of Protobuf, and one of its messages."""

    def __init__(self, schema: SchemaText, record: str | None = None) -> None:
        """Compile a schema; raises BadSchema."""
        super().__init__(schema)
        self._pool: Final = DescriptorPool()
        files = _files(schema)
        try:
            _add(self._pool, files, _MAIN, ())
            file = self._pool.FindFileByName(_MAIN)
        except (TypeError, KeyError) as error:
            raise BadSchema(f"not a schema of Protobuf: {error}") from error
        # In the order of the schema, which the indexes count.
        top = files[_MAIN].message_type
        self._top: Final = [file.message_types_by_name[each.name] for each in top]
        self._indexes: Final = dict(_indexes(self._top))
        if not self._indexes:
            raise BadSchema("the schema has no message")
        self.record = record or next(iter(self._indexes))
        if self.record not in self._indexes:
            known = ", ".join(self._indexes)
            raise BadSchema(f"the schema has no message {self.record}; it has {known}")
        self.message: Final[Descriptor] = self._pool.FindMessageTypeByName(self.record)
        self.make: Final[type[Message]] = GetMessageClass(self.message)

    def read(self, payload: bytes, reader: "ProtobufSchema | None") -> Message:
        """Parse a message; fields that the reader's schema lacks are left out."""
        indexes, data = read_indexes(payload)
        descriptor = self._message_at(indexes)
        if reader is None:
            message: Message = GetMessageClass(descriptor)()
        elif descriptor.full_name == reader.record:
            message = reader.make()
        else:
            text = f"value is a {descriptor.full_name}, not a {reader.record}"
            raise BadRecord(text, "other_schema")
        try:
            message.ParseFromString(data)
        except (DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadRecord(f"value is not a {descriptor.full_name}: {error}") from error
        return message

    def write(self, value: Message) -> bytes:
        """Encode a message of this schema."""
        try:
            data: bytes = value.SerializeToString(deterministic=True)
        except (EncodeError, ValueError) as error:
            raise BadRecord(f"value is not a {self.record}: {error}") from error
        return write_indexes(self._indexes[value.DESCRIPTOR.full_name]) + data

    def to_json(self, value: Message) -> str:
        """Return the JSON mapping, with the names of the schema."""
        try:
            text: str = json_format.MessageToJson(
                value,
                preserving_proto_field_name=True,
                indent=None,
                ensure_ascii=False,
                descriptor_pool=self._pool,
            )
        except (json_format.Error, ValueError, TypeError) as error:
            # Such as a time behind the year 9999, or an Any of another schema.
            raise BadRecord(f"value has no JSON: {error}") from error
        return text

    def from_json(self, text: str) -> Message:
        """Read the JSON mapping of the message `record`."""
        try:
            found: Message = json_format.Parse(text, self.make(), descriptor_pool=self._pool)
        except (json_format.ParseError, ValueError, TypeError, RecursionError) as error:
            raise BadRecord(f"value is not a {self.record}: {error}") from error
        return found

    def _message_at(self, indexes: Sequence[int]) -> Descriptor:
        within, found = self._top, None
        for index in indexes:
            if not 0 <= index < len(within):
                raise BadRecord(f"the schema has no message {list(indexes)}", "other_schema")
            found = within[index]
            within = found.nested_types
        assert found is not None
        return found


def _indexes(messages: Sequence[Descriptor], *above: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the full name of each message and its indexes, outer ones first."""
    for index, each in enumerate(messages):
        yield each.full_name, (*above, index)
    for index, each in enumerate(messages):
        yield from _indexes(each.nested_types, *above, index)


def _files(schema: SchemaText) -> dict[str, FileDescriptorProto]:
    """Return a schema and the schemas that it imports, by their names; raises BadSchema."""
    texts, found = {}, {}
    for name, text in {**dict(schema.resolved), _MAIN: schema.text}.items():
        # confluent-kafka for Python registers descriptors, and some registries keep them as such.
        if descriptor := _descriptor(text):
            descriptor.name = name
            found[name] = descriptor
        else:
            texts[name] = text
    if texts:
        found |= _compile(texts, FileDescriptorSet(file=found.values()))
    return found


def _descriptor(text: str) -> FileDescriptorProto | None:
    """Return a descriptor in base64; None for other texts."""
    try:
        found: FileDescriptorProto = FileDescriptorProto.FromString(
            base64.b64decode(text, validate=True)
        )
    except (ValueError, DecodeError):
        return None
    return found


def _compile(texts: Mapping[str, str], others: FileDescriptorSet) -> dict[str, FileDescriptorProto]:
    """Return the descriptors of texts, by their names, and those of their imports."""
    with tempfile.TemporaryDirectory(prefix="barnabas-proto-") as directory:
        for path, text in texts.items():
            _put(Path(directory), path, text)
        out, given = Path(directory, "compiled"), Path(directory, "given")
        given.write_bytes(others.SerializeToString())
        done = subprocess.run(
            [
                *(sys.executable, "-m", "grpc_tools.protoc", "--proto_path=."),
                *([f"--descriptor_set_in={given}"] if others.file else []),
                *(f"--descriptor_set_out={out}", "--include_imports", *texts),
            ],
            cwd=directory,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=False,
        )
        if done.returncode:
            said = [each for each in done.stderr.splitlines() if _FAULT.match(each)]
            raise BadSchema(f"not a schema of Protobuf: {said[0] if said else done.stderr[-200:]}")
        return {each.name: each for each in FileDescriptorSet.FromString(out.read_bytes()).file}


def _add(
    pool: DescriptorPool, files: Mapping[str, FileDescriptorProto], name: str, above: Sequence[str]
) -> None:
    """Add a file behind those that it imports; raises TypeError, KeyError and BadSchema."""
    if name in above:
        raise BadSchema(f"{name} imports itself")
    file = files.get(name)
    if file is None:
        if not name.startswith("google/protobuf/"):
            raise BadSchema(f"{name} is imported, and no reference has it")
        module = name.removesuffix(".proto").replace("/", ".") + "_pb2"
        try:
            file = FileDescriptorProto.FromString(
                importlib.import_module(module).DESCRIPTOR.serialized_pb
            )
        except ImportError:
            raise BadSchema(f"{name} is imported, and is not known") from None
    for each in file.dependency:
        _add(pool, files, each, (*above, name))
    pool.Add(file)


def _put(directory: Path, name: str, text: str) -> None:
    """Write a file below a folder; the name comes from a schema, and may try to leave it."""
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or {"..", "."} & {*parts} or "\0" in name:
        raise BadSchema(f"{name!r} cannot be the name of an import")
    path = directory.joinpath(*parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
