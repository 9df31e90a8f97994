"""Configurations that ask for what this release lacks and that must not be ignored."""

import re
from collections.abc import Mapping
from typing import Final

from barnabas.config.key import ConfigError

_SECURITY: Final = re.compile(
    r"(listener\.name\..+\.)?(ssl|sasl|delegation\.token|password\.encoder)\..+"
    r"|(listener\.name\.[^.]+\.)?principal\.builder\.class"
    r"|authorizer\.class\.name|super\.users"
    r"|security\.providers|security\.inter\.broker\.protocol"
    r"|client\.quota\.callback\.class"
)
_ZOOKEEPER_TLS: Final = re.compile(
    r"zookeeper\.ssl\.(?!client\.enable|keystore\.|truststore\.(location|type)|endpoint\.).+"
)
_ASKS_FOR_NOTHING: Final = frozenset({"", "none", "PLAINTEXT"})


def refuse_security(properties: Mapping[str, str]) -> None:
    """ConfigError naming every key that asks for security: it is refused, never ignored."""
    if asked := _asking(_SECURITY, properties):
        raise ConfigError(
            f"Security is not part of this release, and these keys ask for it: {', '.join(asked)}. "
            "Take them out only if everyone who reaches the broker may do everything."
        )
    if asked := _asking(_ZOOKEEPER_TLS, properties):
        raise ConfigError(
            f"TLS with ZooKeeper is not set by {', '.join(asked)}. docs/COMPATIBILITY.md has the "
            "keys that there are; take these out only if TLS without them will do."
        )


def _asking(pattern: re.Pattern[str], properties: Mapping[str, str]) -> list[str]:
    return sorted(
        key
        for key, value in properties.items()
        if pattern.fullmatch(key) and value.strip() not in _ASKS_FOR_NOTHING
    )
