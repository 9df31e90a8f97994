"""Configurations that ask for what this release lacks and that must not be ignored."""

import re
from collections.abc import Mapping
from typing import Final

from barnabas.config.key import ConfigError

_SECURITY: Final = re.compile(
    r"(listener\.name\..+\.)?(ssl|sasl|delegation\.token|password\.encoder)\..+"
    r"|zookeeper\.ssl\.(?!client\.enable|keystore\.|truststore\.(location|type)|endpoint\.).+"
    r"|(listener\.name\.[^.]+\.)?principal\.builder\.class"
    r"|authorizer\.class\.name|super\.users"
    r"|security\.providers|security\.inter\.broker\.protocol"
    r"|client\.quota\.callback\.class"
)
_ASKS_FOR_NOTHING: Final = frozenset({"", "none", "PLAINTEXT"})


def refuse_security(properties: Mapping[str, str]) -> None:
    """ConfigError naming every key that asks for security: it is refused, never ignored."""
    asked = sorted(
        key
        for key, value in properties.items()
        if _SECURITY.fullmatch(key) and value.strip() not in _ASKS_FOR_NOTHING
    )
    if asked:
        raise ConfigError(
            f"Security is not part of this release, and these keys ask for it: {', '.join(asked)}. "
            "Take them out only if everyone who reaches the broker may do everything."
        )
