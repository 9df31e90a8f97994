"""Three brokers on a real ZooKeeper, with the means to inject every fault of the matrix."""

import asyncio
import contextlib
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from barnabas.client.cluster import Cluster
from barnabas.client.partition_admin import PartitionAdmin
from tests.chaos.clock import Clock
from tests.chaos.holding import HoldingProxy
from tests.chaos.network import Network
from tests.chaos.network import why_not as why_no_network
from tests.support.brokers.cluster import BROKER_IDS, ProcessCluster
from tests.support.brokers.process import BrokerProcess
from tests.support.zookeeper import ZooKeeperServer

SESSION_S: Final = 6.0
LAG_S: Final = 30.0
"""The default of `replica.lag.time.max.ms`."""
HEALED_WITHIN_S: Final = 60.0
"""The time within which all replicas must be in sync again (P5)."""
DISK_BYTES: Final = 512 << 20
KEYS = {
    "zookeeper.session.timeout.ms": str(int(SESSION_S * 1000)),
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    "auto.create.topics.enable": "false",
    "log.segment.delete.delay.ms": "1000",
    "group.initial.rebalance.delay.ms": "100",
}
LOSSY = "tests.support.brokers.lossy"


class Kind(NamedTuple):
    """The hosts, proxies and disks of a cluster."""

    name: str
    networked: bool = False
    """Each broker is a host of its own, if the machine allows network namespaces."""
    proxied: bool = False
    """Clients and brokers connect to brokers through proxies that can hold requests."""
    lossy: bool = False
    """A kill is a power loss: data that was not fsynced is lost."""
    keys: tuple[tuple[str, str], ...] = ()


PLAIN = Kind("plain", networked=True)
PROXIED = Kind("proxied", proxied=True, keys=(("fast.paths.enable", "false"),))
"""Its brokers serve each request by its handler; those of the other kinds have fast paths."""
LOSING_POWER = Kind("power", lossy=True)
FLUSHING = Kind("power, flushed", lossy=True, keys=(("log.flush.interval.messages", "1"),))


class ChaosCluster(ProcessCluster):
    """Three brokers, each with its own clock, and with a network, disks and proxies of its own if
    `kind` asks for them and the machine allows it."""

    def __init__(self, directory: Path, kind: Kind) -> None:
        self.kind = kind
        directory.mkdir(parents=True, exist_ok=True)
        self.network = Network(BROKER_IDS) if kind.networked and why_no_network() is None else None
        settings = {"clientPortAddress": "0.0.0.0"} if self.network else {}
        zookeeper = ZooKeeperServer(directory / "zookeeper", properties=settings)
        super().__init__(directory, zookeeper, KEYS | dict(kind.keys))
        self.clocks = {broker: Clock(directory, str(broker)) for broker in BROKER_IDS}
        self.proxies: dict[int, tuple[HoldingProxy, HoldingProxy]] = {}
        self._disks: list[Path] = []
        self._exits = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as exits:
            self._exits = exits
            if self.network is not None:
                exits.callback(self.network.down)
                self.network.up()
            exits.callback(self.zookeeper.kill)
            self.zookeeper.start()
            # Before the disks are unmounted that the brokers write to.
            self.launch()
            self.wait_until_full(HEALED_WITHIN_S)
            self._exits = exits.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._exits.close()

    def make_broker(self, broker: int) -> BrokerProcess:
        properties = self.properties(broker)
        if self.kind.proxied:
            properties["advertised.listeners"] = self._proxied(broker)
        directory = self.directory / f"broker-{broker}"
        if self.network is not None:
            self._mount(directory)
        process = BrokerProcess(
            directory,
            program=LOSSY if self.kind.lossy else "",
            prefix=self.network.command(broker) if self.network else (),
            environment=self.clocks[broker].environment,
            defaults={},
            **properties,
        )
        self._exits.callback(process.kill)
        return process

    def _proxied(self, broker: int) -> str:
        """Put a proxy before each listener, and return the listeners that it makes."""
        pair = HoldingProxy(), HoldingProxy()
        for proxy, port in zip(pair, self.ports[broker], strict=True):
            self._exits.enter_context(proxy)
            proxy.to = (self.host(broker), port)
        self.proxies[broker] = pair
        clients, others = (f"{self.host(broker)}:{proxy.port}" for proxy in pair)
        return f"CLIENTS://{clients},BROKERS://{others}"

    def _mount(self, directory: Path) -> None:
        """Mount a disk of limited size on a broker's directory."""
        directory.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(directory)]
        if subprocess.run(mount, capture_output=True).returncode == 0:
            self._disks.append(directory)
            self._exits.callback(
                subprocess.run, ["umount", "-l", str(directory)], capture_output=True
            )

    def host(self, broker: int) -> str:
        return self.network.address(broker) if self.network else super().host(broker)

    def address_of(self, broker: int) -> str:
        if broker in self.proxies:
            return f"{self.host(broker)}:{self.proxies[broker][0].port}"
        return super().address_of(broker)

    def has_disk(self, broker: int) -> bool:
        """Return whether a broker has a disk of its own."""
        return self.brokers[broker].directory in self._disks

    def logs_of(self, broker: int) -> Path:
        """Return the directory of a broker's partitions."""
        directory = self.brokers[broker].directory
        return directory / "cache" if self.kind.lossy else directory

    @property
    def zookeeper_address(self) -> str:
        return f"{self.network.gateway if self.network else '127.0.0.1'}:{self.zookeeper.port}"

    def prefer_leaders(self) -> None:
        """Have the first replica lead each partition: each broker leads its share."""

        async def elect() -> None:
            async with Cluster(self.bootstrap_servers, timeout=10) as cluster:
                await PartitionAdmin(cluster).elect_leaders()

        asyncio.run(elect())

    def expire(self, broker: int) -> None:
        """End the session of a broker as if it had been silent."""
        _, session = self.registered()[broker]
        self.zookeeper.expire(session, password_of(session))


_SUPER_SECRET: Final = 0xB3415C00
"""A constant of the server's SessionTrackerImpl, no secret at all."""


def password_of(session: int) -> bytes:
    """Return the password that ZooKeeper makes for a session: java.util.Random, seeded with its
    id."""
    state = ((session ^ _SUPER_SECRET) ^ 0x5DEECE66D) & ((1 << 48) - 1)
    password = b""
    while len(password) < 16:
        state = (state * 0x5DEECE66D + 0xB) & ((1 << 48) - 1)
        password += (state >> 16).to_bytes(4, "little")
    return password
