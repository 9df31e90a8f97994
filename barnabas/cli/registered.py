"""Values with a schema id on the command line: as JSON, one object a line.

What needs the extra `formats` is imported with --codec only.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TextIO, TypeVar

import click
from click.core import ParameterSource

from barnabas.cli.common import Target
from barnabas.cli.shared_options import refused
from barnabas.cli.tables import tell
from barnabas.client.consumer import Message

if TYPE_CHECKING:
    from barnabas.registry.client import SchemaRegistry

_CODECS: Final = ("avro", "protobuf", "json-schema")
_NAMINGS: Final = ("topic", "record", "topic-record")
_PREFIX: Final = "schema.registry."
Command = TypeVar("Command", bound=Callable[..., Any])


class Codec(NamedTuple):
    """The options of a codec, as a command gets them, and the keys of --command-config."""

    name: str
    registry: str | None
    properties: Mapping[str, str]


def codec_options(command: Command) -> Command:
    """Add --codec and --registry."""
    registry = click.option(
        "--registry",
        metavar="URL",
        envvar="BARNABAS_REGISTRY",
        show_envvar=True,
        help="The schema registry; login and TLS are keys schema.registry... of --command-config.",
    )
    codec = click.option(
        "--codec",
        type=click.Choice(_CODECS),
        help="Format of values with a schema id; as text they are JSON.",
    )
    return codec(registry(command))


def writer_options(command: Command) -> Command:
    """Add the options that choose the schema of what is produced."""
    schema = click.option(
        "--schema",
        type=click.File(encoding="utf-8"),
        help="Register this schema. Default: the latest one of the subject.",
    )
    subject = click.option("--subject", help="Subject of the schema. Default: by --naming.")
    naming = click.option(
        "--naming",
        type=click.Choice(_NAMINGS),
        default="topic",
        show_default=True,
        help="Name of the subject: TOPIC-value, the record's name, or both.",
    )
    record = click.option(
        "--record", help="Name of the record, and with protobuf the message. Default: the first."
    )
    return schema(subject(naming(record(command))))


def registry_keys(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the keys of the registry in a client's file, without their prefix."""
    return {
        name.removeprefix(_PREFIX): text
        for name, text in properties.items()
        if name.startswith(_PREFIX)
    }


def values_of(codec: str | None, registry: str | None, target: Target) -> "Values | None":
    """Return what decodes the values of `consume`; None without --codec."""
    chosen = _codec_of(codec, registry, target)
    return None if chosen is None else Values(chosen)


def encode_of(
    target: Target, topic: str, *, codec: str | None, registry: str | None, **chosen: Any
) -> Callable[[bytes], bytes] | None:
    """Return the function that encodes a value of `produce`; None without --codec."""
    found = _codec_of(codec, registry, target)
    return None if found is None else _encoder(found, topic, **chosen)


def _codec_of(name: str | None, registry: str | None, target: Target) -> Codec | None:
    """Return the codec of a command; None without one. Options without --codec are refused."""
    if name is not None:
        return Codec(name, registry, target.properties)
    context = click.get_current_context()
    for option in ("registry", "schema", "subject", "naming", "record"):
        if context.get_parameter_source(option) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{option} needs --codec")
    return None


class Values:
    """The values of records as JSON; those that cannot be decoded are named and left out."""

    def __init__(self, codec: Codec) -> None:
        from barnabas.registry.reading import Decoder

        self._failures = 0
        with _explained():
            self._registry = _registry(codec)
            self._codec = codec.name
            # Tells what is not installed before the first record.
            self._of_topic = {"": Decoder(self._registry, codec.name, "")}

    def decode(self, messages: Sequence[Message]) -> list[Message]:
        """Return the records with JSON in place of their values; it may ask the registry."""
        with _explained():
            return [found for each in messages if (found := self._decoded(each)) is not None]

    def check(self) -> None:
        """Raise ClickException if a record was left out."""
        if self._failures:
            raise click.ClickException(f"{self._failures} record(s) could not be decoded")

    def _decoded(self, message: Message) -> Message | None:
        from barnabas.registry.errors import BadRecord
        from barnabas.registry.reading import Decoder
        from barnabas.registry.wire import SCHEMA_HEADERS

        if message.value is None:
            return message
        if message.topic not in self._of_topic:
            subject = f"{message.topic}-value"
            self._of_topic[message.topic] = Decoder(self._registry, self._codec, subject)
        try:
            header = dict(message.headers).get(SCHEMA_HEADERS["value"])
            schema, value = self._of_topic[message.topic].decode(message.value, header)
            return message._replace(value=schema.to_json(value).encode())
        except BadRecord as error:
            self._failures += 1
            place = f"{message.topic}/{message.partition}@{message.offset}"
            tell(f"Left out: {place}: {error}", err=True)
            return None


def _encoder(
    codec: Codec,
    topic: str,
    schema: TextIO | None,
    subject: str | None,
    naming: Any,
    record: str | None,
) -> Callable[[bytes], bytes]:
    """Return the function that encodes a line of JSON; `schema` is registered first.

    It raises ClickException for a line that does not fit.
    """
    from barnabas.registry.client import SchemaText
    from barnabas.registry.codecs import require_kind, use_of
    from barnabas.registry.errors import BadRecord
    from barnabas.registry.reading import Encoder
    from barnabas.registry.subjects import subject_of
    from barnabas.registry.usable import CODECS

    with _explained():
        use, registry = use_of(codec.name), _registry(codec)
        if schema is None:
            name = subject or subject_of(naming, topic, record)
            found = registry.version(name)
            require_kind(codec.name, name, found.schema)
            usable, number = use(found.schema, record), found.id
        else:
            usable = use(SchemaText(CODECS[codec.name], schema.read()), record)
            name = subject or subject_of(naming, topic, usable.record)
            number = registry.register(name, usable.schema)
    encoder = Encoder(usable, name, number)
    count = 0

    def encode(line: bytes) -> bytes:
        nonlocal count
        count += 1
        try:
            return encoder.encode(usable.from_json(line.decode()))
        except (BadRecord, UnicodeDecodeError) as error:
            raise click.ClickException(f"line {count}: {error}") from error

    return encode


def _registry(codec: Codec) -> "SchemaRegistry":
    from barnabas.registry.client import SchemaRegistry
    from barnabas.registry.settings import read_settings

    keys = registry_keys(codec.properties)
    if codec.registry is not None:
        keys["url"] = codec.registry
    if "url" not in keys:
        raise click.UsageError("--codec needs --registry, the address of the schema registry")
    with refused("--registry" if codec.registry is not None else "--command-config"):
        return SchemaRegistry(read_settings(keys))


@contextmanager
def _explained() -> Iterator[None]:
    """Make what the registry refuses the line of a command."""
    from barnabas.registry.errors import RegistryError

    try:
        yield
    except (RegistryError, ValueError) as error:
        raise click.ClickException(str(error)) from error
