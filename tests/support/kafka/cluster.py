"""Three nodes of Apache Kafka, brokers and controllers, as one cluster on free ports."""

import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.brokers.cluster import BROKER_IDS, REPLICATED
from tests.support.kafka.node import SMALL, Kafka
from tests.support.ports import free_port


class KafkaCluster:
    """A context manager; `nodes` has each by its id."""

    def __init__(
        self,
        directory: Path,
        *,
        heap: Sequence[str] = SMALL,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        controllers = {node: free_port() for node in BROKER_IDS}
        voters = ",".join(f"{node}@127.0.0.1:{port}" for node, port in controllers.items())
        self.nodes: dict[int, Kafka] = {}
        for node in BROKER_IDS:
            port = free_port()
            own = {
                "node.id": str(node),
                "controller.quorum.voters": voters,
                "listeners": (
                    f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controllers[node]}"
                ),
            }
            kafka = Kafka(
                directory / f"kafka-{node}",
                heap=heap,
                properties=REPLICATED | dict(properties or {}) | own,
            )
            kafka.port = port
            self.nodes[node] = kafka

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(node.bootstrap_servers for node in self.nodes.values())

    def start(self) -> None:
        """Start all nodes at once: none serves before a majority runs."""
        with ThreadPoolExecutor(len(self.nodes)) as pool:
            for _ in pool.map(Kafka.start, self.nodes.values()):
                pass

    def stop(self) -> None:
        with ThreadPoolExecutor(len(self.nodes)) as pool:
            for _ in pool.map(_end, self.nodes.values()):
                pass

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


def _end(kafka: Kafka) -> None:
    try:
        kafka.__exit__(None, None, None)
    except subprocess.SubprocessError as error:
        raise RuntimeError(f"node at {kafka.bootstrap_servers} did not end") from error
