"""The compared brokers, each in its own process."""

import asyncio
import compileall
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from benchmarks import raw
from benchmarks.measures import SETTINGS, Round
from tests.support import go_programs
from tests.support.brokers.cluster import ProcessCluster
from tests.support.brokers.process import ROOT, BrokerProcess
from tests.support.kafka.cluster import KafkaCluster
from tests.support.kafka.node import DEFAULT, Kafka
from tests.support.ports import free_port
from tests.support.zookeeper import ZooKeeperServer

T = TypeVar("T")

OURS, THEIRS, KFAKE = "Barnabas", "Apache Kafka", "kfake"
PEERS = (THEIRS, KFAKE)
SOON = "soon after a start: "
BEFORE: Final = "Barnabas before"
GENERAL, GENERAL_BEFORE = "Barnabas, short ways off", "Barnabas before, short ways off"
_BROKERS: Final[dict[str, dict[str, str]]] = SETTINGS["brokers"]
PROPERTIES: Final = _BROKERS["all"] | _BROKERS["single"]
OF_THREE: Final = _BROKERS["all"] | _BROKERS["three"]
"""The settings of single brokers, and of those of clusters, of Barnabas and Apache Kafka."""
WITHIN_S: Final = 300.0
"""The longest time until a topic is created, or a cluster has done what is waited for."""
_KFAKE = Path(__file__).parent / "kfake"
_STOP_WITHIN_S = 30.0


def left_out() -> dict[str, str]:
    """Return the reason for each system that cannot run on this machine."""
    reason = go_programs.why_not()
    return {} if reason is None else {KFAKE: reason}


def administer(servers: str, work: Callable[[Cluster], Coroutine[Any, Any, T]]) -> T:
    """Do some work with a client of a cluster; return its result."""

    async def connected() -> T:
        async with Cluster(servers, timeout=WITHIN_S) as cluster:
            return await work(cluster)

    return asyncio.run(connected())


def create_topics(servers: str, topics: Mapping[str, int], configs: Mapping[str, str] = {}) -> None:
    """Create topics, each with so many partitions, and the default number of replicas."""

    async def create(cluster: Cluster) -> None:
        for topic, partitions in topics.items():
            await Admin(cluster).create_topic(topic, partitions=partitions, configs=configs)

    administer(servers, create)


class System:
    """A broker, or a cluster, that serves during a `with` block, on empty storage."""

    name: str
    _process: "subprocess.Popen[Any] | None" = None

    def __init__(self, name: str, directory: Path, port: int = 0) -> None:
        self.name, self.port, self.ports = name, port, [port]
        # `log.dirs` is divided at commas.
        self.data = directory / name.replace(",", "").replace(" ", "-")

    def __enter__(self) -> Self:
        self.prepare()
        self.launch()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def pids(self) -> Sequence[int]:
        """The processes whose CPU time and memory are its own, with their children."""
        return [self.pid]

    @property
    def servers(self) -> str:
        """The address for clients."""
        return f"127.0.0.1:{self.port}"

    def prepare(self) -> None:
        """Do what an operator does before the first start."""

    def launch(self) -> None:
        """Start the process; do not wait until it serves."""
        raise NotImplementedError

    def end(self) -> None:
        """Stop it cleanly; kill it if it does not end in time."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def stop(self) -> None:
        """Stop it and remove its data."""
        self.end()
        shutil.rmtree(self.data, ignore_errors=True)

    @contextmanager
    def serving(self, topic: str, _answers: Any = ()) -> Iterator[None]:
        """Have a topic of one partition during a block; the floor has answers in its place."""
        with raw.connect(self.port) as client:
            raw.create_topic(client, topic)
            yield
            raw.delete_topic(client, topic)

    def leader(self, topic: str) -> raw.Client:
        """Connect to the leader of partition 0."""
        with raw.connect(self.port) as client:
            return raw.connect(raw.leader_port(client, topic))

    def coordinator(self, key: str, kind: int = raw.TRANSACTION) -> raw.Client:
        """Connect to the coordinator of a transactional id or group."""
        with raw.connect(self.port) as client:
            return raw.connect(raw.coordinator_ports(client, [key], kind)[key])

    def producer(self, transactional_id: str | None) -> raw.Producer:
        """Return a new producer."""
        at_all = transactional_id is None
        with raw.connect(self.port) if at_all else self.coordinator(transactional_id) as client:
            return raw.initialised(client, transactional_id)


Load = Callable[[Any], Round]
"""A load of one system."""


class Barnabas(System):
    """`barnabas serve` with its defaults."""

    name = OURS

    def __init__(
        self,
        directory: Path,
        properties: Mapping[str, str] = {},
        *,
        root: Path = ROOT,
        name: str = OURS,
        **options: Any,
    ) -> None:
        """`root` is the checkout whose broker runs; `options` are those of BrokerProcess."""
        super().__init__(name, directory)
        self._root = root
        self._broker = BrokerProcess(
            self.data, defaults=PROPERTIES, root=root, **options, **properties
        )
        self.port = self._broker.port
        self.ports = [self.port]

    @property
    def pid(self) -> int:
        return self._broker.pid

    def prepare(self) -> None:
        """Compile the modules, as an installation does. The first start formats the storage."""
        for each in (self._root / "barnabas").iterdir():
            # compileall follows no symbolic links.
            if each.is_dir():
                compileall.compile_dir(each.resolve(), quiet=1)

    def launch(self) -> None:
        self._broker.launch()

    def end(self) -> None:
        if self._broker.is_running:
            self._broker.terminate()

    def kill(self) -> None:
        """Send SIGKILL."""
        self._broker.kill()


class Processes(System):
    """Several brokers of `barnabas serve --processes` on one host.

    The replication of internal topics is the default's: it is a part of what processes cost.
    """

    def __init__(self, directory: Path, count: int, root: Path = ROOT) -> None:
        """`root` is the checkout whose brokers run."""
        super().__init__(f"{OURS if root == ROOT else BEFORE}, {count} processes", directory)
        self._root, self._count = root, count

    def launch(self) -> None:
        """Start the processes; the line that gives their ports comes when all of them serve."""
        command = [sys.executable, "-m", "barnabas", "serve", "--log-level", "error"]
        command += ["--listen", "127.0.0.1:0", "--data", str(self.data)]
        command += ["--processes", str(self._count)]
        command += [word for pair in _BROKERS["all"].items() for word in ("--set", "=".join(pair))]
        environment = {**os.environ, "PYTHONPATH": str(self._root)}
        self._process = subprocess.Popen(
            command, cwd=self._root, env=environment, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        greeting = self._process.stdout.readline()
        self.ports = [int(port) for port in re.findall(r"127\.0\.0\.1:(\d+)", greeting)]
        self.port = self.ports[0]


class Kfake(System):
    """One broker of franz-go's kfake, in Go, with its data in files that it does not sync."""

    name = KFAKE

    def __init__(self, directory: Path) -> None:
        super().__init__(KFAKE, directory, free_port())

    def prepare(self) -> None:
        """Build the program."""
        go_programs.built(_KFAKE, "kfake")

    def launch(self) -> None:
        command = [str(go_programs.built(_KFAKE, "kfake"))]
        command += ["-port", str(self.port), "-data", str(self.data)]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)


class ApacheKafka(System):
    """One node, broker and controller, with the JVM options of Kafka's own scripts."""

    name = THEIRS

    def __init__(
        self,
        directory: Path,
        properties: Mapping[str, str] = {},
        listeners: Sequence[str] = (),
        options: Sequence[str] = (),
    ) -> None:
        """`options` are further ones of the JVM."""
        self._kafka = Kafka(
            directory / "kafka",
            heap=[*DEFAULT, *options],
            properties={**PROPERTIES, **properties},
            listeners=listeners,
        )
        super().__init__(THEIRS, directory, self._kafka.port)
        self.data = self._kafka.data
        self._starting: threading.Thread | None = None

    @property
    def pid(self) -> int:
        return self._kafka.pid

    def prepare(self) -> None:
        """Format the storage by starting once."""
        self._kafka.start()
        self._kafka.stop()

    def launch(self) -> None:
        # `start` returns when Kafka logs that it serves; the measurement notices it sooner.
        self._starting = threading.Thread(target=self._kafka.start)
        self._starting.start()

    def end(self) -> None:
        if self._starting is not None:
            self._starting.join()
        self._kafka.stop()


class Trio(System):
    """Three brokers, each in its own process, with three replicas of every partition."""

    nodes: Mapping[int, Kafka] | Mapping[int, BrokerProcess]
    cluster: KafkaCluster | ProcessCluster

    @property
    def pids(self) -> Sequence[int]:
        return [node.pid for node in self.nodes.values()]

    @property
    def servers(self) -> str:
        return self.cluster.bootstrap_servers

    def start(self, broker_id: int) -> None:
        """Start a broker again on its data, and return at once."""
        threading.Thread(target=self.nodes[broker_id].start).start()


class KafkaTrio(Trio):
    """Three nodes of Apache Kafka with the JVM options of its own scripts."""

    cluster: KafkaCluster

    def __init__(self, directory: Path) -> None:
        super().__init__(THEIRS, directory)
        self.cluster = KafkaCluster(self.data, heap=DEFAULT, properties=OF_THREE)
        self.nodes = self.cluster.nodes
        self.port = self.nodes[1].port

    def launch(self) -> None:
        self.cluster.start()

    def end(self) -> None:
        self.cluster.stop()


class BarnabasTrio(Trio):
    """Three processes of `barnabas serve` on a real ZooKeeper."""

    cluster: ProcessCluster

    def __init__(
        self, directory: Path, root: Path = ROOT, properties: Mapping[str, str] = {}
    ) -> None:
        """`root` is the checkout whose brokers run, `properties` are more settings."""
        super().__init__(OURS if root == ROOT else BEFORE, directory)
        self._zookeeper = ZooKeeperServer(self.data / "zookeeper")
        keys = {**OF_THREE, **_BROKERS["with_zookeeper"], **properties}
        self.cluster = ProcessCluster(self.data, self._zookeeper, keys, root=root)
        self.nodes = self.cluster.brokers
        self.port, _ = self.cluster.ports[1]

    def launch(self) -> None:
        """Start the processes; return when they are a cluster, as those of Kafka are then."""
        self._zookeeper.start()
        self.cluster.launch()
        self.cluster.wait_until_full()

    def end(self) -> None:
        self.cluster.kill_all()
        self._zookeeper.kill()
