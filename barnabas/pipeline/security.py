"""The security options of source and sink: the keys of a client, each with `kafka.` before it."""

from collections.abc import Mapping
from typing import Final

from barnabas.client.security import KEYS, connect_with
from barnabas.config.key import ConfigError

_PREFIX: Final = "kafka."
_FAMILIES: Final = ("kafka.security.", "kafka.sasl.", "kafka.ssl.")
_OPTIONS: Final = {f"{_PREFIX}{key}": key for key in KEYS}
_HANDLERS: Final = "callback.handler.class"


class Security:
    """The security keys of a client. They never appear in a text, and pickle as they are."""

    def __init__(self, keys: Mapping[str, str]) -> None:
        self.keys: Final = dict(keys)

    def __repr__(self) -> str:
        return f"Security({self.keys.get('security.protocol', 'PLAINTEXT')})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Security) and self.keys == other.keys

    def __hash__(self) -> int:
        return hash(frozenset(self.keys.items()))


OPEN: Final = Security({})
"""Connections without TLS and SASL."""


def options_of(keys: Mapping[str, str]) -> dict[str, str]:
    """Return the options of source and sink for the security keys of a client."""
    return {f"{_PREFIX}{key}": value for key, value in keys.items()}


def is_security(option: str) -> bool:
    """Return whether an option of source or sink is about security."""
    return option.lower() in _OPTIONS or option.lower().startswith(_FAMILIES)


def split_security(given: Mapping[str, str]) -> tuple[Security, dict[str, str]]:
    """Return the security options, checked, and the other options.

    Raises ConfigError, one line without secrets. Files that keys name must be readable here.
    """
    keys: dict[str, str] = {}
    rest: dict[str, str] = {}
    for name, value in given.items():
        lower = name.lower()
        if lower in _OPTIONS:
            keys[_OPTIONS[lower]] = value
        elif lower.startswith(_FAMILIES):
            raise ConfigError(f"option {lower} {_advice(lower)}")
        else:
            rest[name] = value
    if "security.protocol" not in keys:
        if keys:
            name = f"{_PREFIX}{min(keys)}"
            raise ConfigError(
                f"option {name} has no effect without {_PREFIX}security.protocol: set it to SSL, "
                "SASL_SSL or SASL_PLAINTEXT"
            )
        return OPEN, rest
    connect_with(keys)
    return Security(keys), rest


def _advice(name: str) -> str:
    if name.endswith(_HANDLERS):
        return "has no effect here: remove it, classes of Java cannot be loaded"
    # The name alone: a value may be a secret.
    return "is unknown: remove it; docs/PIPELINE.md lists the security options"
