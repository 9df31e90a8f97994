"""Three processes of `barnabas serve` on a real ZooKeeper, with all that may be done to them."""

import asyncio
import contextlib
import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from barnabas.client.cluster import Cluster
from barnabas.client.partition_admin import PartitionAdmin
from tests.chaos.clock import Clock
from tests.chaos.holding import HoldingProxy
from tests.chaos.network import Network
from tests.chaos.network import why_not as why_no_network
from tests.chaos.processes import BrokerProcess
from tests.ports import free_port
from tests.referee.kafka_cluster import NODES, REPLICATED
from tests.zookeeper import ZooKeeperServer

SESSION_S: Final = 6.0
LAG_S: Final = 30.0
"""What `replica.lag.time.max.ms` is by itself."""
HEALED_WITHIN_S: Final = 60.0
"""How long in-sync sets may take to be full again (P5)."""
DISK_BYTES: Final = 512 << 20
KEYS = {
    **REPLICATED,
    "zookeeper.session.timeout.ms": str(int(SESSION_S * 1000)),
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    "auto.create.topics.enable": "false",
    "log.segment.delete.delay.ms": "1000",
    "group.initial.rebalance.delay.ms": "100",
}
LOSSY = "tests.integration.adversary.lossy_broker"


class Kind(NamedTuple):
    """What its brokers stand on."""

    name: str
    networked: bool = False
    """Each broker is a host of its own, where the machine lets us have such."""
    proxied: bool = False
    """All that is said to brokers comes through proxies that can hold requests."""
    lossy: bool = False
    """A kill is a power loss: what was not fsynced is gone."""
    keys: tuple[tuple[str, str], ...] = ()


PLAIN = Kind("plain", networked=True)
PROXIED = Kind("proxied", proxied=True)
LOSING_POWER = Kind("power", lossy=True)
FLUSHING = Kind("power, flushed", lossy=True, keys=(("log.flush.interval.messages", "1"),))


class Partition(NamedTuple):
    """A partition as ZooKeeper has it."""

    leader: int
    in_sync: tuple[int, ...]
    replicas: tuple[int, ...]


Partitions = dict[tuple[str, int], Partition]


class Trio:
    """A context manager; `brokers` has each by its id."""

    def __init__(self, directory: Path, kind: Kind) -> None:
        self.kind = kind
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.network = Network(NODES) if kind.networked and why_no_network() is None else None
        settings = {"clientPortAddress": "0.0.0.0"} if self.network else {}
        self.zookeeper = ZooKeeperServer(directory / "zookeeper", properties=settings)
        self.clocks = {node: Clock(directory, str(node)) for node in NODES}
        self.proxies: dict[int, tuple[HoldingProxy, HoldingProxy]] = {}
        self.ports = {node: (free_port(), free_port()) for node in NODES}
        self.brokers: dict[int, BrokerProcess] = {}
        self._disks: list[Path] = []
        self._exits = contextlib.ExitStack()

    def __enter__(self) -> "Trio":
        with contextlib.ExitStack() as exits:
            self._bring_up(exits)
            self._exits = exits.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()

    def _bring_up(self, exits: contextlib.ExitStack) -> None:
        if self.network is not None:
            exits.callback(self.network.down)
            self.network.up()
        exits.callback(self.zookeeper.kill)
        self.zookeeper.start()
        for node in NODES:
            self.brokers[node] = self._broker(node, exits)
            exits.callback(self._end, node)
            self.brokers[node].start()
        self.await_full()

    def _broker(self, node: int, exits: contextlib.ExitStack) -> BrokerProcess:
        host, (clients, others) = self.host(node), self.ports[node]
        keys = {
            "broker.id": str(node),
            "listeners": f"CLIENTS://{host}:{clients},BROKERS://{host}:{others}",
            "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
            "inter.broker.listener.name": "BROKERS",
            "zookeeper.connect": self.zookeeper_address,
            **KEYS,
            **dict(self.kind.keys),
        }
        if self.kind.proxied:
            pair = tuple(exits.enter_context(HoldingProxy()) for _ in range(2))
            for proxy, port in zip(pair, self.ports[node], strict=True):
                proxy.to = (host, port)
            self.proxies[node] = pair[0], pair[1]
            keys["advertised.listeners"] = (
                f"CLIENTS://{host}:{pair[0].port},BROKERS://{host}:{pair[1].port}"
            )
        directory = self.directory / f"broker-{node}"
        if self.network is not None:
            self._mount(directory, exits)
        return BrokerProcess(
            directory,
            keys,
            prefix=self.network.command(node) if self.network else (),
            program=LOSSY if self.kind.lossy else None,
            environment=self.clocks[node].environment,
        )

    def _mount(self, directory: Path, exits: contextlib.ExitStack) -> None:
        """A disk of its own, which can be full."""
        directory.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(directory)]
        if subprocess.run(mount, capture_output=True).returncode == 0:
            self._disks.append(directory)
            exits.callback(subprocess.run, ["umount", "-l", str(directory)], capture_output=True)

    def _end(self, node: int) -> None:
        if self.brokers[node].is_running:
            self.brokers[node].kill()

    def host(self, node: int) -> str:
        return self.network.address(node) if self.network else "127.0.0.1"

    def has_disk(self, node: int) -> bool:
        """Whether a broker has one of its own."""
        return self.brokers[node].directory in self._disks

    @property
    def zookeeper_address(self) -> str:
        return f"{self.network.gateway if self.network else '127.0.0.1'}:{self.zookeeper.port}"

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(
            f"{self.host(node)}:{self.proxies[node][0].port if self.proxies else clients}"
            for node, (clients, _) in self.ports.items()
        )

    # -- what ZooKeeper knows ----------------------------------------------------------------------

    def controller(self) -> int:
        """Its id, -1 if there is none."""
        with self.zookeeper.looking() as client:
            try:
                return int(json.loads(client.get("/controller")[0])["brokerid"])
            except NoNodeError:
                return -1

    def registered(self) -> dict[int, tuple[int, int]]:
        """The brokers' epochs and sessions, by id."""
        with self.zookeeper.looking() as client:
            return {node: stat for node in NODES if (stat := _registration(client, node))}

    def partitions(self) -> Partitions:
        with self.zookeeper.looking() as client:
            return dict(_partitions(client))

    def leaders(self, topic: str) -> dict[int, int]:
        """By partition."""
        return {at[1]: each.leader for at, each in self.partitions().items() if at[0] == topic}

    def is_full(self) -> bool:
        """Whether every broker is registered and every replica in sync."""
        partitions = self.partitions()
        return (
            len(self.registered()) == len(NODES)
            and self.controller() in NODES
            and all(
                each.leader in NODES and sorted(each.in_sync) == sorted(each.replicas)
                for each in partitions.values()
            )
        )

    def await_full(self, within_s: float = HEALED_WITHIN_S) -> float:
        """Seconds until all are in sync; raises AssertionError where they do not come to it."""
        began = time.monotonic()
        self.until(self.is_full, within_s, self._whats_missing)
        return time.monotonic() - began

    def _whats_missing(self) -> str:
        behind = {
            f"{topic}-{index}": (each.leader, each.in_sync)
            for (topic, index), each in self.partitions().items()
            if sorted(each.in_sync) != sorted(each.replicas) or each.leader not in NODES
        }
        running = [node for node, broker in self.brokers.items() if broker.is_running]
        return (
            f"running {running}, registered {self.registered()}, controller {self.controller()}, "
            f"leader and in-sync set of {behind}"
        )

    def until(
        self, holds: Callable[[], bool], within_s: float, otherwise: Callable[[], str]
    ) -> None:
        """Waits for a condition; AssertionError with what `otherwise` says."""
        give_up = time.monotonic() + within_s
        while not holds():
            assert time.monotonic() < give_up, f"not after {within_s:g} s: {otherwise()}"
            time.sleep(0.05)

    def prefer_leaders(self) -> None:
        """The first replicas lead again: each broker has its share."""

        async def elect() -> None:
            async with Cluster(self.bootstrap_servers, timeout=10) as cluster:
                await PartitionAdmin(cluster).elect_leaders()

        asyncio.run(elect())

    def expire(self, node: int) -> None:
        """End the session of a broker as if it had been silent."""
        _, session = self.registered()[node]
        self.zookeeper.expire(session, password_of(session))


def _registration(client: KazooClient, node: int) -> tuple[int, int] | None:
    stat = client.exists(f"/brokers/ids/{node}")
    return None if stat is None else (stat.czxid, stat.ephemeralOwner)


def _partitions(client: KazooClient) -> Partitions:
    found: Partitions = {}
    try:
        topics = client.get_children("/brokers/topics")
    except NoNodeError:
        return found
    for topic in topics:
        path = f"/brokers/topics/{topic}"
        with contextlib.suppress(NoNodeError):
            for index, replicas in json.loads(client.get(path)[0])["partitions"].items():
                state = json.loads(client.get(f"{path}/partitions/{index}/state")[0])
                at = (topic, int(index))
                found[at] = Partition(state["leader"], tuple(state["isr"]), tuple(replicas))
    return found


_SUPER_SECRET: Final = 0xB3415C00
"""A constant of the server's SessionTrackerImpl, no secret at all."""


def password_of(session: int) -> bytes:
    """The password that ZooKeeper makes for a session: java.util.Random, seeded with its id."""
    state = ((session ^ _SUPER_SECRET) ^ 0x5DEECE66D) & ((1 << 48) - 1)
    password = b""
    while len(password) < 16:
        state = (state * 0x5DEECE66D + 0xB) & ((1 << 48) - 1)
        password += (state >> 16).to_bytes(4, "little")
    return password
