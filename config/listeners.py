"""Listeners: where the broker accepts connections, and what it tells clients to connect to."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from barnabas.config.key import ConfigError

_ADDRESS: Final = re.compile(
    r"(?P<name>[^:/]+)://(?P<host>\[[0-9A-Fa-f:.%\w]*\]|[^\[\]:]*):(?P<port>[0-9]+)"
)
_WILDCARDS: Final = ("0.0.0.0", "::")


class Address(NamedTuple):
    """A host without brackets, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Listener(NamedTuple):
    """One socket the broker listens on.

    An empty `address.host` is every interface, port 0 any free port. An empty `advertised.host` is
    the machine's own name and an advertised port 0 is the bound one: config/ asks no machine, so
    the server fills them in. A listener that is not advertised is in no Metadata answer.
    """

    name: str
    protocol: str
    address: Address
    advertised: Address | None


def parse_address(key: str, text: str) -> tuple[str, Address]:
    """Name and address of `NAME://host:port`; names are compared in upper case, as in Kafka."""
    found = _ADDRESS.fullmatch(text)
    if found is None:
        raise ConfigError.invalid(key, text, "Unable to parse it as NAME://host:port")
    port = int(found["port"])
    if port > 65535:
        raise ConfigError.invalid(key, text, f"{port} is no port")
    return found["name"].upper(), Address(found["host"].strip("[]"), port)


def parse_host_port(key: str, text: str) -> Address:
    """A bare `host:port`, as our own keys take it."""
    return parse_address(key, f"ADDRESS://{text}")[1]


def resolve_listeners(
    listeners: Sequence[str], advertised: Sequence[str] | None, protocol_map: Iterable[str]
) -> tuple[Listener, ...]:
    """The listeners that three keys describe together; ConfigError where they contradict."""
    bound = _addresses("listeners", listeners)
    _require_distinct_ports(bound)
    told = bound if advertised is None else _addresses("advertised.listeners", advertised)
    protocols = _protocols(protocol_map)
    for name, address in told.items():
        if name not in bound:
            raise ConfigError(
                "advertised.listeners listener names must be equal to or a subset of the ones "
                f"defined in listeners. Found {name}; listeners has {', '.join(bound)}."
            )
        if address.host in _WILDCARDS:
            raise ConfigError(
                f"advertised.listeners cannot use the nonroutable meta-address {address.host}. "
                "Use a routable IP address."
            )
    return tuple(
        Listener(name, _protocol(name, protocols), address, told.get(name))
        for name, address in bound.items()
    )


def without_controllers(listeners: Sequence[str], controllers: Iterable[str]) -> tuple[str, ...]:
    """Those addresses that are not of a KRaft controller, which this broker has none of."""
    names = {name.strip().upper() for name in controllers if name.strip()}
    return tuple(text for text in listeners if text.partition(":")[0].upper() not in names)


def parse_connection_overrides(key: str, text: str) -> dict[str, int]:
    """Limits by host of `max.connections.per.ip.overrides`."""
    limits: dict[str, int] = {}
    for item in filter(None, (item.strip() for item in text.split(","))):
        host, _, count = item.rpartition(":")
        if not host or not re.fullmatch("[0-9]+", count):
            raise ConfigError.invalid(key, text, f"{item} is not host:count")
        limits[host] = int(count)
    return limits


def _addresses(key: str, texts: Iterable[str]) -> dict[str, Address]:
    addresses: dict[str, Address] = {}
    for text in texts:
        name, address = parse_address(key, text)
        if name in addresses:
            raise ConfigError.invalid(
                key, ",".join(texts), "Each listener must have a different name"
            )
        addresses[name] = address
    return addresses


def _require_distinct_ports(bound: Mapping[str, Address]) -> None:
    """One port may carry one IPv4 and one IPv6 listener, as in Kafka; nothing else is shared."""
    seen: set[tuple[int, bool]] = set()
    for name, address in bound.items():
        mark = (address.port, ":" in address.host)
        if address.port and mark in seen:
            raise ConfigError(f"Each listener must have a different port: {name}, {address}")
        seen.add(mark)


def _protocols(protocol_map: Iterable[str]) -> dict[str, str]:
    protocols: dict[str, str] = {}
    for item in protocol_map:
        name, separator, protocol = item.partition(":")
        if not separator:
            raise ConfigError.invalid(
                "listener.security.protocol.map", item, "Unable to parse it as NAME:PROTOCOL"
            )
        protocols[name.strip().upper()] = protocol.strip().upper()
    return protocols


def _protocol(name: str, protocols: Mapping[str, str]) -> str:
    protocol = protocols.get(name)
    if protocol is None:
        raise ConfigError(f"No security protocol defined for listener {name}")
    if protocol != "PLAINTEXT":
        raise ConfigError(
            f"Listener {name} asks for {protocol}, which this release does not have. "
            "It would be open to everyone: give it PLAINTEXT in listener.security.protocol.map, "
            "or leave it out."
        )
    return protocol
