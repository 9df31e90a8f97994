"""Clusters of three brokers, each broker in its own process."""

import contextlib
import shutil
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.systems import BEFORE, Barnabas
from tests.support.brokers.cluster import ProcessCluster
from tests.support.brokers.process import ROOT
from tests.support.kafka.cluster import KafkaCluster
from tests.support.kafka.node import DEFAULT, Kafka
from tests.support.zookeeper import ZooKeeperServer

PROPERTIES = {
    "log.segment.delete.delay.ms": "1000",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    "auto.create.topics.enable": "false",
}
"""Settings of both systems; otherwise their defaults apply."""
SESSION = {"zookeeper.session.timeout.ms": "6000"}
_STOP_WITHIN_S = 30.0


class KafkaTrio:
    """Three nodes of Apache Kafka with the JVM options of its own scripts."""

    name = "Apache Kafka"

    def __init__(self, directory: Path) -> None:
        self._cluster = KafkaCluster(directory, heap=DEFAULT, properties=PROPERTIES)
        self.bootstrap_servers = self._cluster.bootstrap_servers

    @property
    def pids(self) -> Sequence[int]:
        return [node.pid for node in self._cluster.nodes.values()]

    def up(self) -> None:
        self._cluster.start()

    def down(self) -> None:
        self._cluster.stop()

    def kill(self, broker_id: int) -> None:
        self._cluster.nodes[broker_id].kill()

    def start(self, broker_id: int) -> None:
        threading.Thread(target=Kafka.start, args=(self._cluster.nodes[broker_id],)).start()


class BarnabasTrio:
    """Three processes of `barnabas serve` on a real ZooKeeper."""

    def __init__(
        self, directory: Path, properties: Mapping[str, str] = {}, root: Path = ROOT
    ) -> None:
        """`root` is the checkout whose brokers run."""
        self.name = Barnabas.name if root == ROOT else BEFORE
        self._directory = directory
        self._cluster = ProcessCluster(
            directory,
            ZooKeeperServer(directory / "zookeeper"),
            {**PROPERTIES, **SESSION, **properties},
            root=root,
        )
        self.bootstrap_servers = self._cluster.bootstrap_servers

    @property
    def pids(self) -> Sequence[int]:
        return [broker.pid for broker in self._cluster.brokers.values()]

    def up(self) -> None:
        self._cluster.zookeeper.start()
        self._cluster.launch()

    def down(self) -> None:
        for broker in self._cluster.brokers.values():
            broker.signal(signal.SIGTERM)
        for broker in self._cluster.brokers.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                broker.wait_until_ended(_STOP_WITHIN_S)
            broker.kill()
        self._cluster.zookeeper.kill()
        shutil.rmtree(self._directory, ignore_errors=True)

    def kill(self, broker_id: int) -> None:
        self._cluster.brokers[broker_id].kill()

    def terminate(self, broker_id: int) -> None:
        """Send SIGTERM, and wait until the broker has ended."""
        self._cluster.brokers[broker_id].terminate()

    def start(self, broker_id: int) -> None:
        """Start a broker again, and return at once."""
        self._cluster.brokers[broker_id].launch()
