"""Clusters of three brokers, each broker a process of its own."""

import contextlib
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.ports import free_port
from tests.referee.kafka import DEFAULT, Kafka
from tests.referee.kafka_cluster import NODES, REPLICATED, KafkaCluster
from tests.zookeeper import ZooKeeperServer

PROPERTIES = {
    "log.segment.delete.delay.ms": "1000",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    "auto.create.topics.enable": "false",
}
"""Given to both, beside their defaults."""
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
    """Three of `barnabas serve` on a real ZooKeeper."""

    name = "Barnabas"

    def __init__(self, directory: Path, properties: Mapping[str, str] = {}) -> None:
        self._directory = directory
        self._zookeeper = ZooKeeperServer(directory / "zookeeper")
        self._properties = {**REPLICATED, **PROPERTIES, **SESSION, **properties}
        self._ports = {node: (free_port(), free_port()) for node in NODES}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self.bootstrap_servers = ",".join(f"127.0.0.1:{own}" for own, _ in self._ports.values())

    @property
    def pids(self) -> Sequence[int]:
        return [process.pid for process in self._processes.values()]

    def up(self) -> None:
        self._zookeeper.start()
        for node in NODES:
            self.start(node)

    def down(self) -> None:
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_WITHIN_S)
            process.kill()
        self._zookeeper.kill()
        shutil.rmtree(self._directory, ignore_errors=True)

    def kill(self, broker_id: int) -> None:
        self._processes[broker_id].kill()
        self._processes[broker_id].wait()

    def terminate(self, broker_id: int) -> None:
        """SIGTERM, and the end of it."""
        self._processes[broker_id].terminate()
        self._processes[broker_id].wait(_STOP_WITHIN_S)

    def start(self, broker_id: int) -> None:
        clients, brokers = self._ports[broker_id]
        settings = {
            "broker.id": str(broker_id),
            "log.dirs": str(self._directory / f"barnabas-{broker_id}"),
            "listeners": f"PLAINTEXT://127.0.0.1:{clients},BETWEEN://127.0.0.1:{brokers}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BETWEEN:PLAINTEXT",
            "inter.broker.listener.name": "BETWEEN",
            "zookeeper.connect": self._zookeeper.connect,
            **self._properties,
        }
        command = [sys.executable, "-m", "barnabas", "serve"]
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        with (self._directory / f"barnabas-{broker_id}.out").open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        self._processes[broker_id] = process
