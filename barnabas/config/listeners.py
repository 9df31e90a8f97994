"""Listeners: the addresses that the broker listens on and those that it advertises to clients."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from barnabas.config.key import ConfigError
from barnabas.config.references import FILL_IN, is_template
from barnabas.config.sasl_keys import MECHANISMS, SaslKeys
from barnabas.config.tls_keys import TlsKeys

_ADDRESS: Final = re.compile(
    r"(?P<name>[^:/]+)://(?P<host>\[[0-9A-Fa-f:.%\w]*\]|[^\[\]:]*):(?P<port>[0-9]+)"
)
_HOST: Final = re.compile(r"\[.*\]|[0-9A-Za-z._-]*")
_WILDCARDS: Final = ("0.0.0.0", "::")
_LOOPBACK: Final = re.compile(r"127(\.[0-9]+){3}|::1")
_MECHANISMS: Final = "|".join(each.lower() for each in MECHANISMS)
_PREFIXED: Final = re.compile(
    rf"listener\.name\.(?P<listener>[^.]+)\.(?:(?P<mechanism>{_MECHANISMS})\.)?(?P<key>.+)"
)
_COUNT: Final = re.compile("[0-9]{1,10}")
_OF_A_LISTENER: Final = frozenset(
    {"max.connections", "max.connection.creation.rate", *TlsKeys.KEYS, *SaslKeys.KEYS}
)
"""The keys that Kafka has for each listener and that have an effect here."""
_OF_A_MECHANISM: Final = frozenset({*SaslKeys.KEYS} - {"sasl.enabled.mechanisms"})
"""The same for each mechanism of a listener."""
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


class Address(NamedTuple):
    """A host without brackets, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only processes of this host can connect; a name other than localhost is not
        resolved."""
        return self.host == "localhost" or _LOOPBACK.fullmatch(self.host) is not None


class Listener(NamedTuple):
    """One socket that the broker listens on.

    An empty `address.host` is every interface, port 0 any free port. An empty `advertised.host` is
    the machine's own name and an advertised port 0 is the bound one: `config` does no I/O, so the
    server fills them in. A listener that is not advertised does not appear in Metadata responses.
    """

    name: str
    protocol: str
    address: Address
    advertised: Address | None

    @property
    def has_tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def has_sasl(self) -> bool:
        return self.protocol.startswith("SASL")


def parse_address(key: str, text: str) -> tuple[str, Address]:
    """Parse `NAME://host:port` into name and address; names are in upper case, as in Kafka."""
    if is_template(text):
        raise ConfigError.invalid(key, text, FILL_IN)
    found = _ADDRESS.fullmatch(text)
    if found is None:
        raise ConfigError.invalid(key, text, "Unable to parse it as NAME://host:port")
    if not _HOST.fullmatch(found["host"]):
        reason = f"{found['host']} is no host: write its name or its address"
        raise ConfigError.invalid(key, text, reason)
    port = int(found["port"])
    if port > 65535:
        raise ConfigError.invalid(key, text, f"{port} is not a port")
    return found["name"].upper(), Address(found["host"].strip("[]"), port)


def parse_host_port(key: str, text: str) -> Address:
    """Parse `host:port`, the format of keys that only Barnabas has; an empty host is all."""
    try:
        return parse_address(key, f"ADDRESS://{text}")[1]
    except ConfigError:
        raise ConfigError.invalid(
            key, text, "It is HOST:PORT, or :PORT for all addresses"
        ) from None


def resolve_listeners(
    listeners: Sequence[str], advertised: Sequence[str] | None, protocol_map: Iterable[str]
) -> tuple[Listener, ...]:
    """Return the listeners that three keys define; raise ConfigError for contradictions."""
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
    """Return the addresses without those of KRaft controllers, which this broker does not have."""
    names = {name.strip().upper() for name in controllers if name.strip()}
    return tuple(text for text in listeners if text.partition(":")[0].upper() not in names)


def listening_everywhere(advertised: str) -> str:
    """Return an advertised address with an empty host, which is every interface."""
    return re.sub(r"://(\[.*\]|[^\[\]]*):", "://:", advertised.strip())


def parse_connection_overrides(key: str, text: str) -> dict[str, int]:
    """Parse the limits by host of `max.connections.per.ip.overrides`."""
    limits: dict[str, int] = {}
    for item in filter(None, map(str.strip, text.split(","))):
        host, _, count = item.rpartition(":")
        if not host or not _COUNT.fullmatch(count):
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
    """Raise ConfigError if listeners share a port; one IPv4 and one IPv6 may, as in Kafka."""
    seen: set[tuple[int, bool]] = set()
    for name, address in bound.items():
        mark = (address.port, ":" in address.host)
        if address.port and mark in seen:
            raise ConfigError(f"Each listener must have a different port: {name}, {address}")
        seen.add(mark)


def _protocols(protocol_map: Iterable[str]) -> dict[str, str]:
    protocols: dict[str, str] = {}
    for item in filter(None, protocol_map):
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
    if protocol not in _PROTOCOLS:
        raise ConfigError(
            f"Listener {name} has the security protocol {protocol}, which does not exist. Map it "
            f"to one of {', '.join(_PROTOCOLS)} in listener.security.protocol.map."
        )
    return protocol


class ListenerKey(NamedTuple):
    """A key of one listener, `listener.name.<listener>.<key>`, which overrides `<key>` there.

    A mechanism's key has its name before the key.
    """

    listener: str
    key: str


def parse_listener_key(name: str) -> ListenerKey | None:
    """Parse a key of one listener (in lower case, as in Kafka); None for other names."""
    found = _PREFIXED.fullmatch(name)
    if found is None or name != name.lower():
        return None
    if found["key"] not in (_OF_A_MECHANISM if found["mechanism"] else _OF_A_LISTENER):
        return None
    return ListenerKey(found["listener"].upper(), found["key"])


def listener_keys(names: Iterable[str], listeners: Iterable[str]) -> Mapping[str, ListenerKey]:
    """Return those of `names` that are keys of one of these listeners."""
    known = set(listeners)
    parsed = ((name, parse_listener_key(name)) for name in names)
    return {name: key for name, key in parsed if key is not None and key.listener in known}
