"""The JSON answers of `barnabas configs`."""

from typing import Any, Final, Literal

from barnabas.cli.answers.model import Answer

Kind = Literal["topic", "broker", "broker-logger", "group"]


class StoredEntry(Answer):
    """A key of a configuration in the metadata, with --data or --zookeeper."""

    key: str
    value: str | None
    """The value as Kafka writes it; passwords are hidden."""
    source: Literal[
        "topic",
        "broker",
        "cluster",
        "static",
        "default",
        "logger",
        "client-metrics",
        "group",
        "unknown",
    ]
    """The place that sets the value; cluster: the default of all brokers."""


class ConfigEntry(StoredEntry):
    """A key of a configuration."""

    read_only: bool
    """Whether only a restart changes it."""
    type: (
        Literal["boolean", "string", "int", "short", "long", "double", "list", "class", "password"]
        | None
    )
    """Null if the broker does not tell it."""
    meaning: str | None
    """Null without --verbose, or if the broker does not tell it."""


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
