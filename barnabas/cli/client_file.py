"""The keys of a client in a file: --command-config, and profiles."""

import re
from collections.abc import Mapping
from typing import Final

from barnabas.config.client_keys import ClientKeys
from barnabas.config.key import ConfigError
from barnabas.config.spelling import closest

SERVERS: Final = "bootstrap.servers"
_OF_LIBRDKAFKA: Final = "metadata.broker.list"
"""The other name of SERVERS, which kcat.conf has."""
_ADDRESS: Final = re.compile(
    r"(.+\.)?(bootstrap|brokers?)(\.?(brokers?|controllers?|hosts?|lists?|servers?))*"
)
_MISSPELT: Final = 0.9
"""The likeness of a misspelt key: no two keys of the clients of Kafka and librdkafka have it."""


def replaced(properties: Mapping[str, str]) -> Mapping[str, str]:
    """Return the keys of a file, with what references to config providers stand for.

    Raises ConfigError.
    """
    if "config.providers" not in properties:
        return properties
    # Imported here: most files have no providers.
    from barnabas.security.config_providers import replace_references

    return replace_references(properties)


def client_file(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the keys of a client's file, with its addresses under SERVERS.

    Keys of other clients are let through. Raises ConfigError for a key that has no effect and is
    meant to have one.
    """
    from barnabas.client.security import KEYS

    known = {SERVERS, _OF_LIBRDKAFKA, *KEYS, *ClientKeys.KEYS}
    keys = dict(properties)
    for name in keys.keys() - known:
        plain = re.sub("[_-]", ".", name).lower()
        if meant := closest(plain, known, _MISSPELT):
            raise ConfigError(f"{name} has no effect: did you mean {meant}?")
        if not keys.keys() & {SERVERS, _OF_LIBRDKAFKA} and _ADDRESS.fullmatch(plain):
            raise ConfigError(f"{name} has no effect: give the addresses of brokers as {SERVERS}")
    servers = keys.pop(_OF_LIBRDKAFKA, None)
    if servers is not None and keys.setdefault(SERVERS, servers) != servers:
        raise ConfigError(
            f"{SERVERS} and {_OF_LIBRDKAFKA} name different brokers: keep one of them"
        )
    return keys


def require_protocol(servers: str, properties: Mapping[str, str]) -> None:
    """Raise ConfigError if an address such as SSL://host:port asks for another protocol than
    `security.protocol`."""
    from barnabas.client.security import PROTOCOLS

    wanted = properties.get("security.protocol", "PLAINTEXT").strip().upper()
    for each in servers.split(","):
        protocol, separator, _ = each.strip().upper().partition("://")
        if separator and protocol in PROTOCOLS and protocol != wanted:
            raise ConfigError(
                f"{each.strip()} asks for {protocol}, and security.protocol is {wanted}: set "
                "security.protocol in the file of --command-config or in the profile"
            )
