"""A broker of Apache Kafka 3.9 in ZooKeeper mode: the last release that has it."""

import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from barnabas.broker.cluster import znodes
from tests.support.kafka.jars import ZOOKEEPER_POM
from tests.support.kafka.node import Kafka
from tests.support.waiting import until
from tests.support.zookeeper import chroot_of, shared_server


class ZooKeeperKafka(Kafka):
    """A broker with the id 1, in a tree of its own on the ZooKeeper that the tests share."""

    def __init__(
        self, directory: Path, properties: Mapping[str, str], protocol: str = "PLAINTEXT"
    ) -> None:
        super().__init__(directory, pom=ZOOKEEPER_POM)
        self.chroot = chroot_of("kafka")
        self._properties = {
            "broker.id": "1",
            "zookeeper.connect": shared_server().connect + self.chroot,
            "listeners": f"{protocol}://127.0.0.1:{self.port}",
            "security.inter.broker.protocol": protocol,
            "log.dirs": str(self.data),
            **properties,
        }

    def _format(self, _server_properties: Path) -> None:
        """Create the tree: only brokers without ZooKeeper have a format."""
        with shared_server().looking() as client:
            client.ensure_path(self.chroot)

    def _wait_until_started(self, deadline_s: float) -> None:
        path = f"{self.chroot}{znodes.broker_path(1)}"
        with shared_server().looking() as client:
            until(lambda: client.exists(path), self.log.read_text, within_s=deadline_s)
        until(self._accepts, self.log.read_text, within_s=deadline_s)

    def _accepts(self) -> bool:
        """Return whether clients can connect, some time after the broker is registered."""
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False
