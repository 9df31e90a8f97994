"""Several brokers on one host from the settings of one: what each has for itself; pure."""

import socket
from collections.abc import Mapping
from dataclasses import dataclass

import click

from barnabas.config.broker import one_name_each
from barnabas.config.key import ConfigError
from barnabas.config.listeners import Address, parse_address, parse_host_port

LISTENER = "BROKERS"
"""The listener that the brokers get for themselves where the settings name none."""
METADATA = "metadata"
SOCKET = "metadata.socket"


@dataclass(frozen=True, slots=True)
class Several:
    """Settings for `count` brokers, whose directories `place` names for each."""

    properties: Mapping[str, str]
    count: int
    socket_path: str | None = None
    """Of the metadata store that their parent serves; None where the settings name another."""

    def of(self, number: int) -> dict[str, str]:
        """The properties of one broker, counted from 0.

        Ids and ports go up by one from broker to broker. The first has the directories that were
        given, so that one broker can become several; the others have directories in them.
        """
        own = one_name_each(self.properties)
        broker_id = self.id_of(number)
        own["broker.id"] = str(broker_id)
        own.setdefault("broker.rack", socket.gethostname())
        if self.socket_path is not None:
            own[SOCKET] = self.socket_path
        self._listen(own, number)
        if "metrics.listener" in own:
            at = parse_host_port("metrics.listener", own["metrics.listener"])
            own["metrics.listener"] = str(_moved(at, number))
        if number:
            # No partition has such a name: there is no dash in it.
            own["log.dirs"] = ",".join(
                f"{directory.strip()}/broker.{broker_id}"
                for directory in (own.get("log.dirs") or own["log.dir"]).split(",")
            )
        return own

    def id_of(self, number: int) -> int:
        """The id of one broker, counted from 0."""
        first = one_name_each(self.properties).get("broker.id", "0")
        if not first.isdecimal():
            raise ConfigError.invalid("broker.id", first, "Not a number of configuration")
        return int(first) + number

    def check(self) -> None:
        """A usage error where two brokers would listen on one port."""
        taken: dict[int, str] = {}
        for number in range(self.count):
            for text in self.of(number)["listeners"].split(","):
                name, at = parse_address("listeners", text.strip())
                if at.port and at.port in taken:
                    raise click.UsageError(
                        f"{name} of broker {self.id_of(number)} and {taken[at.port]} would both "
                        f"listen on port {at.port}: leave {self.count} ports from each listener's "
                        "to the next one's"
                    )
                taken[at.port] = f"{name} of broker {self.id_of(number)}"

    def _listen(self, own: dict[str, str], number: int) -> None:
        adds = not own.get("inter.broker.listener.name")
        for key in ("listeners", "advertised.listeners"):
            if key not in own:
                continue
            told = [parse_address(key, text.strip()) for text in own[key].split(",")]
            moved = [(name, _moved(at, number)) for name, at in told]
            if adds:
                # Behind all those of the clients.
                first = told[0][1]
                moved.append((LISTENER, _moved(first, self.count + number)))
            own[key] = ",".join(f"{name}://{at}" for name, at in moved)
        if adds:
            own["inter.broker.listener.name"] = LISTENER
            protocols = own.get("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT")
            own["listener.security.protocol.map"] = f"{protocols},{LISTENER}:PLAINTEXT"


def _moved(at: Address, by: int) -> Address:
    """The address so many ports later; any free port stays that."""
    return at._replace(port=at.port + by) if at.port else at
