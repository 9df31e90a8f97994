"""The answers of `barnabas configs`."""

from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from barnabas.operations.answers.model import Answer, OneOf
from barnabas.protocol.config_resources import CONFIG_SOURCES

Kind = Literal["topic", "broker", "broker-logger", "group"]
ConfigType = Literal[
    "boolean", "string", "int", "short", "long", "double", "list", "class", "password"
]
"""The types of a key, in the order of their numbers in DescribeConfigs."""


@dataclass(frozen=True, slots=True)
class StoredEntry(Answer):
    """A key of a configuration in the metadata, with --data or --zookeeper."""

    key: str
    value: str | None
    """The value as Kafka writes it; passwords are hidden."""
    source: Annotated[str, OneOf((*CONFIG_SOURCES.values(), "unknown"))]
    """The place that sets the value; cluster: the default of all brokers."""


@dataclass(frozen=True, slots=True)
class ConfigEntry(StoredEntry):
    """A key of a configuration."""

    read_only: bool
    """Whether only a restart changes it."""
    type: ConfigType | None
    """Null if the broker's response does not have it."""
    meaning: str | None
    """Null without --verbose, or if the broker's response does not have it."""


@dataclass(frozen=True, slots=True)
class AlteredConfig(Answer):
    """A configuration that was altered."""

    kind: Kind
    name: str
    """Empty for the default of all brokers."""
    altered: Literal[True]


ANSWERS: Final[dict[str, Any]] = {
    "configs describe": list[ConfigEntry] | list[StoredEntry],
    "configs alter": AlteredConfig,
}
