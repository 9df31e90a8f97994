"""`--faults`: brokers of a supervisor whose levers are served over HTTP."""

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from barnabas.broker.server.network import bind_addresses
from barnabas.cli.processes.broker_process import Child, ServedStore, StartCommand
from barnabas.cli.processes.broker_properties import SOCKET
from barnabas.client.cluster import Cluster as Client
from barnabas.client.security import connect_with
from barnabas.config.broker import BrokerConfig
from barnabas.config.listeners import Address, parse_host_port
from barnabas.config.properties import parse_properties
from barnabas.faults.active_faults import NodeCall
from barnabas.faults.http.endpoint import FaultsEndpoint
from barnabas.faults.http.models import BrokerState
from barnabas.faults.http.operations import Operations
from barnabas.faults.levers import Levers
from barnabas.faults.ports import ReservedPorts
from barnabas.faults.remote import SERVES, BrokerDied, RemoteBroker
from barnabas.faults.store import Store, store_socket

if TYPE_CHECKING:
    import subprocess

    from barnabas.cli.processes.secure import Secured

TOKEN: Final = "BARNABAS_FAULTS_TOKEN"
"""The variable by which a user chooses the token."""
SHORTEST_TOKEN: Final = 16
DEFAULTS: Final = {
    # The coordinator notices soon that the clock of transactions has jumped.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}
_LOCAL: Final = "localhost"
_RELEASE_SECONDS: Final = 3.0


class FaultyChild(Child):
    """A broker in a child process whose faults can be set."""

    def __init__(self, broker_id: int, command: StartCommand) -> None:
        super().__init__(broker_id, command)
        self.remote = RemoteBroker()
        self.changed: Callable[[], None] = lambda: None
        """Called when the broker starts, serves or ends."""
        self.calls: Callable[[], list[NodeCall]] = list
        """The calls that give a new process the faults in force."""

    def start_command(self) -> StartCommand:
        return replace(self.command, calls=self.calls())

    async def start(self) -> bool:
        try:
            return await super().start()
        finally:
            self.changed()

    async def _serving(self, process: "subprocess.Popen[bytes]") -> str | None:
        self.remote.attach(process)
        assert self._end is not None
        self._end.add_done_callback(self._clean_up)
        self.changed()
        with suppress(BrokerDied):
            address: str = await self.remote.answer(SERVES)
            return address
        return None

    def _clean_up(self, _: "asyncio.Future[int]") -> None:
        self.remote.detach()
        self.changed()

    async def release(self) -> None:
        """End all faults of the broker; continue if it does not respond."""
        if self.pid is not None:
            with suppress(BrokerDied, TimeoutError):
                async with asyncio.timeout(_RELEASE_SECONDS):
                    await self.remote.release()

    async def stop(self, *, hand_over: bool = True) -> None:
        await self.release()
        await super().stop(hand_over=hand_over)

    @property
    def state(self) -> BrokerState:
        if self.pid is None:
            state = "down"
        elif self.remote.paused:
            state = "paused"
        else:
            state = "running" if self.serves else "starting"
        return BrokerState.model_validate(
            {"broker": self.broker_id, "address": self.address, "state": state}
        )


class FaultyBrokers:
    """The brokers of a supervisor, as levers and `Operations` reach them."""

    def __init__(
        self, children: Sequence[FaultyChild], store: Store, secured: "Secured | None"
    ) -> None:
        self._children = children
        self._secured = secured
        self.store = store
        self.changed = asyncio.Event()
        self.levers = Levers(self)
        self._ports = {each.broker_id: _port_for_brokers(each) for each in children}
        for child in children:
            child.changed = self.changed.set
            child.calls = partial(self.levers.calls_before_start, child.broker_id)

    @property
    def broker_ids(self) -> Sequence[int]:
        return [child.broker_id for child in self._children]

    def reachable(self, broker: int) -> RemoteBroker | None:
        child = self._child(broker)
        return child.remote if child.pid is not None else None

    def port_for_brokers(self, broker: int) -> int:
        return self._ports[broker]

    def client(self) -> Client:
        """Return a client that may do everything."""
        connect = None
        if self._secured is not None:
            text = self._secured.admin_properties.read_text("iso-8859-1")
            connect = connect_with(parse_properties(text))
        awake = [each for each in self._children if each.serves and not each.remote.paused]
        servers = ",".join(each.address for each in awake or self._children if each.address)
        return Client(servers, client_id="barnabas-faults", connect=connect)

    async def release(self) -> None:
        """Make every link whole, and release all requests."""
        self.store.mend()
        await asyncio.gather(*(child.release() for child in self._children))

    def states(self) -> list[BrokerState]:
        return [child.state for child in self._children]

    async def pause(self, broker: int) -> None:
        await self._child(broker).remote.pause()

    async def resume(self, broker: int) -> None:
        await self._child(broker).remote.resume()

    async def kill(self, broker: int) -> None:
        """Kill a broker, which stays down. Raises RuntimeError if it does not run."""
        child = self._running(broker)
        child.wanted.clear()
        child.kill()
        await child.ended()

    async def stop(self, broker: int) -> None:
        """Stop a broker in order, which stays down. Raises RuntimeError if it does not run."""
        child = self._running(broker)
        child.wanted.clear()
        await child.stop()

    async def start(self, broker: int) -> None:
        """Start a broker that is down, and wait until it serves. Raises RuntimeError."""
        child = self._child(broker)
        if child.pid is not None:
            raise RuntimeError(f"broker {broker} is running")
        child.wanted.set()
        while not child.serves:
            self.changed.clear()
            await self.changed.wait()

    def _running(self, broker: int) -> FaultyChild:
        child = self._child(broker)
        if child.pid is None:
            raise RuntimeError(f"broker {broker} does not run")
        return child

    def _child(self, broker: int) -> FaultyChild:
        self.levers.require(broker)
        return next(each for each in self._children if each.broker_id == broker)


@dataclass(frozen=True)
class FaultsOption:
    """The address and the token of `--faults`."""

    at: Address
    token: str
    reserved: ReservedPorts = field(default_factory=ReservedPorts)
    """The ports of the brokers: a client must not take that of one that is down."""

    @classmethod
    def parse(cls, text: str) -> "FaultsOption":
        """Return the option; an empty host is this machine alone. Raises ConfigError and
        ClickException."""
        at = parse_host_port("--faults", text)
        token = os.environ.get(TOKEN, "")
        if token and (len(token) < SHORTEST_TOKEN or not token.isascii() or " " in token):
            raise click.ClickException(
                f"{TOKEN} is {SHORTEST_TOKEN} characters or longer, in ASCII, without spaces"
            )
        return cls(at._replace(host=at.host or _LOCAL), token or secrets.token_urlsafe(24))

    def properties(
        self, of_each: Iterable[Mapping[str, str]], socket_path: str | None
    ) -> list[dict[str, str]]:
        """Return the properties of brokers whose links can be cut, also that to the store.

        Raises ClickException if the store is another one.
        """
        if socket_path is None:
            raise click.ClickException("--faults is for brokers without ZooKeeper, on this host")
        directory = Path(socket_path).parent
        return [
            {
                **DEFAULTS,
                **each,
                SOCKET: store_socket(directory, int(each["broker.id"])),
                "listeners": _fixed(each["listeners"], self.reserved),
            }
            for each in of_each
        ]

    @property
    def child(self) -> type[FaultyChild]:
        """The class of the brokers' processes."""
        return FaultyChild

    @asynccontextmanager
    async def served(
        self, children: Sequence[Any], served: ServedStore, secured: "Secured | None"
    ) -> AsyncIterator[tuple[Callable[[], Awaitable[None]], str]]:
        """Serve the levers; yield the function that ends all faults, and a line that says where.

        Raises OSError if the address is in use.
        """
        assert served.store is not None
        assert served.server is not None
        directory = Path(children[0].command.properties[SOCKET]).parent
        store = Store(served.store, served.server, directory)
        brokers = FaultyBrokers(children, store, secured)
        endpoint = FaultsEndpoint(Operations(brokers.levers, brokers), self.token, self.at.host)
        port = endpoint.start(await bind_addresses(self.at.host, self.at.port))
        try:
            await store.serve(brokers.broker_ids)
            at = self.at._replace(port=port)
            yield brokers.release, f"  faults:   http://{at}/openapi.json, token {self.token}"
        finally:
            await endpoint.stop()


def _port_for_brokers(child: FaultyChild) -> int:
    """Return the port to which other brokers connect."""
    listener = BrokerConfig.from_properties(child.command.properties).inter_broker_listener()
    told = listener.advertised
    return told.port if told is not None and told.port else listener.address.port


def _fixed(listeners: str, reserved: ReservedPorts) -> str:
    """Return listeners with reserved ports in place of free ones: links are cut by their ports."""
    parts = [each.rpartition(":") for each in listeners.split(",")]
    return ",".join(
        f"{front}:{reserved.take() if port.strip() == '0' else port}" for front, _, port in parts
    )
