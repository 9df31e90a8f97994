"""Three brokers, each a process of its own, on a real ZooKeeper: to be killed and started again."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from barnabas.broker.metadata import znodes
from barnabas.broker.metadata.znodes import LeaderAndIsr
from barnabas.protocol.java_hash import partition_for
from tests.integration.adversary.process import BrokerProcess
from tests.ports import free_port
from tests.zookeeper import ZooKeeperServer

T = TypeVar("T")

BROKERS = (1, 2, 3)
GROUPS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
IN_TIME_S = 60.0
KEYS = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "transaction.state.log.num.partitions": "3",
    "offsets.topic.num.partitions": "3",
    # Who comes back leads again what it led: every kill finds leaders on the broker it is for.
    "leader.imbalance.check.interval.seconds": "1",
    "leader.imbalance.per.broker.percentage": "0",
}


class ThreeOnZooKeeper:
    """A context manager; brokers keep their addresses and directories over all their processes."""

    def __init__(
        self,
        directory: Path,
        zookeeper: ZooKeeperServer,
        *,
        session_timeout_ms: int = 6000,
        **keys: str,
    ) -> None:
        self._ports = {each: free_port() for each in BROKERS}
        self._client: KazooClient = zookeeper.client()
        common = {
            "zookeeper.connect": zookeeper.connect,
            "zookeeper.session.timeout.ms": str(session_timeout_ms),
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BROKERS:PLAINTEXT",
            "inter.broker.listener.name": "BROKERS",
            **KEYS,
            **{key.replace("_", "."): value for key, value in keys.items()},
        }
        self.processes = {
            each: BrokerProcess(
                directory / f"broker-{each}",
                **common,
                listeners=f"PLAINTEXT://{self.address_of(each)},BROKERS://127.0.0.1:{free_port()}",
                broker_id=str(each),
            )
            for each in BROKERS
        }

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(map(self.address_of, BROKERS))

    def address_of(self, broker: int) -> str:
        return f"127.0.0.1:{self._ports[broker]}"

    def __enter__(self) -> Self:
        for process in self.processes.values():
            process.launch()
        for process in self.processes.values():
            process.wait_until_serving()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for process in self.processes.values():
            process.kill()
        self._client.stop()
        self._client.close()

    def kill(self, broker: int) -> None:
        """kill -9."""
        self.processes[broker].kill()

    def start(self, broker: int) -> None:
        """Again; returns when it serves."""
        self.processes[broker].launch()
        self.processes[broker].wait_until_serving()

    def errors(self) -> str:
        """What all of them said so far on standard error."""
        return "".join(process.errors() for process in self.processes.values())

    # -- what stands in ZooKeeper ----------------------------------------------------------------

    def controller(self) -> int:
        """Waits until there is one."""
        return self._seen(lambda: znodes.decode_controller(self._client.get(znodes.CONTROLLER)[0]))

    def state(self, topic: str, partition: int) -> LeaderAndIsr:
        """Waits until the partition has one."""

        def see() -> LeaderAndIsr:
            data, about = self._client.get(znodes.state_path(topic, partition))
            return znodes.decode_state(data, about.version)

        return self._seen(see)

    def states(self) -> Iterator[tuple[str, int, LeaderAndIsr]]:
        """Of every partition of every topic."""
        for topic in self._client.get_children(znodes.TOPICS):
            for partition in range(self._partitions(topic)):
                yield topic, partition, self.state(topic, partition)

    def group_coordinator(self, group: str) -> int:
        return self.state(GROUPS, partition_for(group, self._partitions(GROUPS))).leader

    def transaction_coordinator(self, transactional_id: str) -> int:
        index = partition_for(transactional_id, self._partitions(TRANSACTIONS))
        return self.state(TRANSACTIONS, index).leader

    def wait_until_whole(self) -> None:
        """Every replica of every partition is in sync, and the preferred one leads."""
        give_up = time.monotonic() + IN_TIME_S
        while missing := [
            (topic, partition, state)
            for topic, partition, state in self.states()
            if len(state.isr) < len(BROKERS) or state.leader != self._replicas(topic)[partition][0]
        ]:
            assert time.monotonic() < give_up, missing
            time.sleep(0.05)

    def _partitions(self, topic: str) -> int:
        return len(self._replicas(topic))

    def _replicas(self, topic: str) -> Mapping[int, tuple[int, ...]]:
        data = self._seen(lambda: self._client.get(znodes.topic_path(topic))[0])
        return znodes.decode_topic(data).replicas

    def _seen(self, see: Callable[[], T]) -> T:
        give_up = time.monotonic() + IN_TIME_S
        while time.monotonic() < give_up:
            with contextlib.suppress(NoNodeError):
                return see()
            time.sleep(0.02)
        raise TimeoutError
