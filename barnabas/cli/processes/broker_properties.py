"""The properties of each of several brokers on one host, derived from one set of properties.

These functions do no I/O, except for the name of the host.
"""

import socket
from collections.abc import Mapping
from dataclasses import dataclass

import click

from barnabas.config.broker import resolve_aliases
from barnabas.config.key import ConfigError
from barnabas.config.listeners import Address, parse_address, parse_host_port

INTER_BROKER_LISTENER = "BROKERS"
"""The name of the inter-broker listener that is added if the properties name none."""
METADATA = "metadata"
SOCKET = "metadata.socket"
DIRECTORY = "broker."
"""The name of a later broker's directory in those of the first one, before its id."""


@dataclass(frozen=True, slots=True)
class BrokerProperties:
    """The properties for `count` brokers with consecutive ids and ports."""

    shared: Mapping[str, str]
    """The properties as the user gave them, for the first broker."""
    count: int
    socket_path: str | None = None
    """The Unix socket of the metadata store that the parent process serves; None if the properties
    name another store."""

    def of(self, number: int) -> dict[str, str]:
        """Return the properties of one broker, counted from 0.

        Ids and ports count up by one from broker to broker. The first broker uses the given log
        directories, so that a single broker can become one of several; the others use
        subdirectories of them.
        """
        own = resolve_aliases(self.shared)
        broker_id = self.broker_id(number)
        own["broker.id"] = str(broker_id)
        own.setdefault("broker.rack", socket.gethostname())
        if self.socket_path is not None:
            own[SOCKET] = self.socket_path
        self._set_listeners(own, number)
        if "metrics.listener" in own:
            address = parse_host_port("metrics.listener", own["metrics.listener"])
            own["metrics.listener"] = str(_add_to_port(address, number))
        if number:
            # The directory of a partition always has a dash in its name, this one has none.
            own["log.dirs"] = ",".join(
                f"{directory}/{DIRECTORY}{broker_id}" for directory in log_directories(own)
            )
        return own

    def broker_id(self, number: int) -> int:
        """Return the id of one broker, counted from 0."""
        first = resolve_aliases(self.shared).get("broker.id", "0")
        if not first.isdecimal():
            raise ConfigError.invalid("broker.id", first, "Not a number of configuration")
        return int(first) + number

    def check_ports(self) -> None:
        """Raise a usage error if two listeners would have the same port."""
        taken: dict[int, str] = {}
        for number in range(self.count):
            for text in self.of(number)["listeners"].split(","):
                name, address = parse_address("listeners", text.strip())
                if address.port and address.port in taken:
                    raise click.UsageError(
                        f"{name} of broker {self.broker_id(number)} and {taken[address.port]} "
                        f"would both listen on port {address.port}: the ports of two listeners "
                        f"must be at least {self.count} apart"
                    )
                taken[address.port] = f"{name} of broker {self.broker_id(number)}"

    def _set_listeners(self, own: dict[str, str], number: int) -> None:
        add_listener = not own.get("inter.broker.listener.name")
        for key in ("listeners", "advertised.listeners"):
            if key not in own:
                continue
            given = [parse_address(key, text.strip()) for text in own[key].split(",")]
            moved = [(name, _add_to_port(address, number)) for name, address in given]
            if add_listener:
                # Its ports follow the ports of the first listener of all brokers.
                first = given[0][1]
                moved.append((INTER_BROKER_LISTENER, _add_to_port(first, self.count + number)))
            own[key] = ",".join(f"{name}://{address}" for name, address in moved)
        if add_listener:
            own["inter.broker.listener.name"] = INTER_BROKER_LISTENER
            protocols = own.get("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT")
            if f"{INTER_BROKER_LISTENER}:" not in protocols:
                protocols += f",{INTER_BROKER_LISTENER}:PLAINTEXT"
            own["listener.security.protocol.map"] = protocols


def log_directories(properties: Mapping[str, str]) -> list[str]:
    """Return the log directories of the first broker."""
    texts = (properties.get("log.dirs") or properties["log.dir"]).split(",")
    return [text.strip() for text in texts]


def _add_to_port(address: Address, count: int) -> Address:
    """Return the address with a port that is higher by `count`; port 0 (any) stays 0."""
    return address._replace(port=address.port + count) if address.port else address
