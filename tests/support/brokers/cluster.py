"""Three processes of `barnabas serve` on a real ZooKeeper, and their nodes there."""

import contextlib
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from barnabas.protocol.java_hash import partition_for
from tests.support.brokers.process import ROOT, BrokerProcess
from tests.support.ports import free_port
from tests.support.waiting import IN_TIME_S
from tests.support.zookeeper import ZooKeeperServer

BROKER_IDS: Final = (1, 2, 3)
GROUPS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
_LOGGED_MOST, _LAST_LINES = 3, 5
"""The partitions whose last log lines a failure shows, and the lines of each broker."""
REPLICATED: Final = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
}


class Partition(NamedTuple):
    """A partition as ZooKeeper has it."""

    leader: int
    in_sync: tuple[int, ...]
    replicas: tuple[int, ...]


Partitions = dict[tuple[str, int], Partition]


class ProcessCluster:
    """A context manager; `brokers` has each process by its broker id.

    The brokers keep their addresses and directories over all their processes. `keys` are Kafka's
    and win over `REPLICATED`. `root` is the checkout whose brokers run.
    """

    def __init__(
        self,
        directory: Path,
        zookeeper: ZooKeeperServer,
        keys: Mapping[str, str] = {},
        root: Path = ROOT,
    ) -> None:
        self.directory = directory
        self.zookeeper = zookeeper
        self.ports = {broker: (free_port(), free_port()) for broker in BROKER_IDS}
        """The ports for clients and for other brokers."""
        self.brokers: dict[int, BrokerProcess] = {}
        self._keys = {**REPLICATED, **keys}
        self.root = root

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(map(self.address_of, BROKER_IDS))

    def address_of(self, broker: int) -> str:
        """Return the address where clients reach a broker."""
        return f"{self.host(broker)}:{self.ports[broker][0]}"

    def host(self, broker: int) -> str:  # noqa: ARG002
        """Return the IP address of a broker."""
        return "127.0.0.1"

    @property
    def zookeeper_address(self) -> str:
        """The address where brokers reach ZooKeeper."""
        return self.zookeeper.connect

    def __enter__(self) -> Self:
        try:
            self.launch()
            for broker in self.brokers.values():
                broker.wait_until_serving()
        except BaseException:
            self.kill_all()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill_all()

    def launch(self) -> None:
        """Start all brokers, and return at once."""
        for broker in BROKER_IDS:
            self.brokers[broker] = self.make_broker(broker)
            self.brokers[broker].launch()

    def kill_all(self) -> None:
        for broker in self.brokers.values():
            broker.kill()

    def make_broker(self, broker: int) -> BrokerProcess:
        """Return the process of a broker, which is not started."""
        directory, keys = self.directory / f"broker-{broker}", self.properties(broker)
        return BrokerProcess(directory, defaults={}, root=self.root, **keys)

    def properties(self, broker: int) -> dict[str, str]:
        """Return Kafka's keys of one broker."""
        host, (clients, others) = self.host(broker), self.ports[broker]
        return {
            "broker.id": str(broker),
            "listeners": f"CLIENTS://{host}:{clients},BROKERS://{host}:{others}",
            "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
            "inter.broker.listener.name": "BROKERS",
            "zookeeper.connect": self.zookeeper_address,
            **self._keys,
        }

    def errors(self) -> str:
        """Return the standard error of all brokers so far."""
        return "".join(broker.errors() for broker in self.brokers.values())

    # -- the nodes in ZooKeeper ------------------------------------------------------------------

    def controller(self) -> int:
        """Return the id of the controller, -1 without one."""
        with self.zookeeper.looking() as client:
            try:
                return int(json.loads(client.get("/controller")[0])["brokerid"])
            except NoNodeError:
                return -1

    def wait_for_controller(self) -> int:
        """Return the id of the controller; wait until there is one."""
        deadline = time.monotonic() + IN_TIME_S
        while (controller := self.controller()) not in BROKER_IDS:
            assert time.monotonic() < deadline, "no controller"
            time.sleep(0.05)
        return controller

    def registered(self) -> dict[int, tuple[int, int]]:
        """Return epoch and session of each registered broker, by id."""
        with self.zookeeper.looking() as client:
            return {each: found for each in BROKER_IDS if (found := _registration(client, each))}

    def partitions(self) -> Partitions:
        """Return all partitions that have a state."""
        with self.zookeeper.looking() as client:
            return dict(_partitions(client))

    def partition(self, topic: str, index: int) -> Partition:
        """Return one partition; wait until it has a state."""
        self.until(lambda: (topic, index) in self.partitions(), IN_TIME_S, lambda: topic)
        return self.partitions()[topic, index]

    def leaders(self, topic: str) -> dict[int, int]:
        """Return the leaders of a topic's partitions, by partition."""
        return {at[1]: each.leader for at, each in self.partitions().items() if at[0] == topic}

    def group_coordinator(self, group: str) -> int:
        return self._coordinator(GROUPS, group)

    def transaction_coordinator(self, transactional_id: str) -> int:
        return self._coordinator(TRANSACTIONS, transactional_id)

    def _coordinator(self, topic: str, key: str) -> int:
        self.partition(topic, 0)
        with self.zookeeper.looking() as client:
            count = len(json.loads(client.get(f"/brokers/topics/{topic}")[0])["partitions"])
        return self.partition(topic, partition_for(key, count)).leader

    def is_full(self, *, preferred: bool = False) -> bool:
        """Return whether all brokers are registered, there is a controller, and all replicas are in
        sync; with `preferred` also whether the first replica leads each partition."""
        partitions = self.partitions()
        return (
            len(self.registered()) == len(BROKER_IDS)
            and self.controller() in BROKER_IDS
            and not any(_is_short(each, preferred=preferred) for each in partitions.values())
        )

    def wait_until_full(self, within_s: float = IN_TIME_S, *, preferred: bool = False) -> float:
        """Wait for `is_full` and return the seconds it took. Raises AssertionError."""
        began = time.monotonic()
        self.until(
            lambda: self.is_full(preferred=preferred),
            within_s,
            lambda: self._shortages(preferred=preferred),
        )
        return time.monotonic() - began

    def _shortages(self, *, preferred: bool) -> str:
        short = {
            at: (each.leader, each.in_sync)
            for at, each in self.partitions().items()
            if _is_short(each, preferred=preferred)
        }
        running = [broker for broker, process in self.brokers.items() if process.is_running]
        named = {f"{topic}-{index}": state for (topic, index), state in short.items()}
        logged = [line for at in list(short)[:_LOGGED_MOST] for line in self._logged_about(*at)]
        return "\n".join(
            [
                f"running {running}, registered {self.registered()}, controller "
                f"{self.controller()}, leader and in-sync set of {named}",
                *logged,
            ]
        )

    def _logged_about(self, topic: str, index: int) -> list[str]:
        """Return the last lines of each broker about a partition, with the broker's id."""
        found = []
        for broker, process in self.brokers.items():
            words = f'"topic": "{topic}", "partition": {index},'
            lines = [line for line in process.errors().splitlines() if words in line]
            found += [f"{broker}: {line}" for line in lines[-_LAST_LINES:]]
        return found

    def until(
        self, holds: Callable[[], bool], within_s: float, otherwise: Callable[[], str]
    ) -> None:
        """Wait for a condition. Raises AssertionError with the text that `otherwise` returns."""
        deadline = time.monotonic() + within_s
        while not holds():
            assert time.monotonic() < deadline, f"not after {within_s:g} s: {otherwise()}"
            time.sleep(0.05)


def _is_short(partition: Partition, *, preferred: bool) -> bool:
    leaders = partition.replicas[:1] if preferred else BROKER_IDS
    return (
        sorted(partition.in_sync) != sorted(partition.replicas) or partition.leader not in leaders
    )


def _registration(client: KazooClient, broker: int) -> tuple[int, int] | None:
    stat = client.exists(f"/brokers/ids/{broker}")
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
