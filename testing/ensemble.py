"""Brokers that run side by side for a test: how they start, stop, die and come back."""

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine, Iterable, Mapping
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from barnabas.testing.ports import ReservedPorts
from barnabas.testing.processes import BrokerDied, ProcessNode
from barnabas.testing.standing import Standing
from barnabas.testing.thread import LoopThread

if TYPE_CHECKING:
    from barnabas.testing.node import Node
    from barnabas.testing.store import Store

T = TypeVar("T")
TIMEOUT = 30.0
"""Seconds that starting, stopping and every lever may take."""
RELEASE_TIMEOUT = 3.0
CLIENTS, BROKERS = "PLAINTEXT", "BROKERS"

DEFAULTS = {
    # As of one broker: tests wait for nobody, and few partitions load fast.
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    "log.segment.bytes": str(16 * 1024 * 1024),
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    # The clock of transactions is put forward, and seen to be.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}


class Ensemble:
    """The running part of a `Cluster`."""

    def __init__(
        self,
        configs: Mapping[str, str] | None = None,
        *,
        brokers: int = 3,
        processes: bool = False,
        data_dir: str | Path | None = None,
    ) -> None:
        factor = str(min(3, brokers))
        self._configs = {
            **DEFAULTS,
            "default.replication.factor": factor,
            "min.insync.replicas": str(min(2, brokers)),
            "offsets.topic.replication.factor": factor,
            "transaction.state.log.replication.factor": factor,
            "transaction.state.log.min.isr": str(min(2, brokers)),
            **(configs or {}),
        }
        self.broker_ids = list(range(1, brokers + 1))
        """The ids of all brokers, whether they run or not."""
        self._processes = processes
        self._data_dir = data_dir
        self._directory = Path()
        self._thread: LoopThread | None = None
        self._store: Store
        self._nodes: dict[int, Node | ProcessNode] = {}
        self._dead: dict[int, ProcessNode] = {}
        """Those that ended by themselves; who starts one again knows of it."""
        self._starting: dict[int, tuple[Node | ProcessNode, asyncio.Task[Any]]] = {}
        self._standing = Standing()
        self._changed = asyncio.Event()
        """Set where a broker comes or goes."""
        self._ports: dict[int, dict[str, int]] = {}
        self._reserved = ReservedPorts()
        self._numbers = count(1)

    # -- running ---------------------------------------------------------------------------------

    def start(self) -> Self:
        """Starts all brokers; returns once they know each other and have a controller."""
        if self._thread is not None:
            raise RuntimeError("this cluster is running")
        self._directory = Path(self._data_dir or tempfile.mkdtemp(prefix="barnabas-"))
        self._directory.mkdir(exist_ok=True, parents=True)
        self._thread = LoopThread("barnabas-cluster")
        try:
            self._do(self._start())
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stops what runs, and leaves nothing behind."""
        if self._thread is None:
            return
        try:
            self._do(self._stop())
        finally:
            self._thread.close()
            self._thread = None
            self._reserved.release()
            if self._data_dir is None:
                shutil.rmtree(self._directory, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        """What a client takes as `bootstrap.servers`: all brokers, also those that do not run."""
        return ",".join(self.address_of(broker) for broker in self.broker_ids)

    def address_of(self, broker: int) -> str:
        """Where clients reach one broker. It stays the same when the broker is started again."""
        self._require(broker)
        return f"127.0.0.1:{self._ports[broker][CLIENTS]}"

    @property
    def running(self) -> list[int]:
        """The ids of the brokers that were started, and have neither stopped nor died."""
        return sorted(self._nodes)

    def start_broker(self, broker: int) -> None:
        """Starts a broker that was stopped or killed, where it was and with what it had.

        Its lines are cut, and its requests touched, as was said of it; it counts them anew.
        """
        self._do(self._start_broker(broker))

    def stop_broker(self, broker: int) -> None:
        """Stops one broker in order: it hands over what it leads."""
        self._do(self._stop_broker(broker))

    def kill(self, broker: int) -> None:
        """kill -9. Needs `processes`."""
        self._do(self._kill(broker))

    def pause(self, broker: int) -> None:
        """SIGSTOP: it keeps its connections and says nothing. Needs `processes`.

        What other levers do meanwhile happens to it when it goes on.
        """
        self._do(self._process(broker).pause())

    def resume(self, broker: int) -> None:
        """SIGCONT; it has done then what it was told meanwhile. Needs `processes`."""
        self._do(self._process(broker).resume())

    async def _start(self) -> None:
        from barnabas.testing.store import Store

        self._standing, self._changed = Standing(), asyncio.Event()
        self._store = Store(self._directory)
        await self._store.start(self.broker_ids)
        starts = [asyncio.create_task(self._start_broker(each)) for each in self.broker_ids]
        try:
            await asyncio.gather(*starts)
        except BaseException:
            for start in starts:
                start.cancel()
            await asyncio.wait(starts)
            raise
        for node in self._nodes.values():
            await node.ask("knows", brokers=len(self.broker_ids))

    async def _start_broker(self, broker: int) -> None:
        self._require(broker)
        if self._reachable(broker) is not None:
            raise RuntimeError(f"broker {broker} is running")
        if broker not in self._ports:
            self._ports[broker] = {name: self._reserved.take() for name in (CLIENTS, BROKERS)}
        self._dead.pop(broker, None)
        node = self._make_node(broker)
        task = asyncio.current_task()
        assert task is not None
        self._starting[broker] = node, task
        self._changed.set()
        try:
            await node.start(self._standing.of(broker))
            self._nodes[broker] = node
        finally:
            del self._starting[broker]
            self._changed.set()
        if isinstance(node, ProcessNode):
            node.when_it_ends(partial(self._miss, broker, node))

    def _miss(self, broker: int, node: ProcessNode) -> None:
        """A broker has ended. It was not stopped or killed if it is still among those that run."""
        if self._nodes.get(broker) is node:
            del self._nodes[broker]
            self._dead[broker] = node
            self._changed.set()

    async def _stop_broker(self, broker: int) -> None:
        node = self._running(broker)
        del self._nodes[broker]
        self._changed.set()
        await node.stop()

    async def _kill(self, broker: int) -> None:
        node = self._process(broker)
        del self._nodes[broker]
        self._changed.set()
        await node.kill()

    def _make_node(self, broker: int) -> "Node | ProcessNode":
        properties = {
            "broker.id": str(broker),
            "listeners": ",".join(
                f"{name}://127.0.0.1:{port}" for name, port in self._ports[broker].items()
            ),
            "listener.security.protocol.map": f"{CLIENTS}:PLAINTEXT,{BROKERS}:PLAINTEXT",
            "inter.broker.listener.name": BROKERS,
            "metadata.socket": self._store.socket(broker),
            "log.dirs": str(self._directory / f"broker-{broker}"),
            **self._configs,
        }
        if self._processes:
            return ProcessNode(properties, self._directory / f"broker-{broker}.log")
        from barnabas.testing.node import Node

        return Node(properties)

    async def _tell(self, brokers: Iterable[int], method: str, **arguments: Any) -> None:
        """Have a method of `Node` done by those of the brokers that run or start, side by side."""
        nodes = [node for each in brokers if (node := self._reachable(each)) is not None]
        await asyncio.gather(*(_told(node, method, arguments) for node in nodes))

    def _reachable(self, broker: int) -> "Node | ProcessNode | None":
        """A broker that runs or starts."""
        node, _ = self._starting.get(broker, (None, None))
        return node or self._nodes.get(broker)

    async def _stop(self) -> None:
        """One after another: each hands over what it leads, and the last has nobody to."""
        errors: list[Exception] = []
        for broker in self.broker_ids:
            self._store.line(broker).mend()
        try:
            await self._stop_starting()
            await asyncio.gather(*map(_let_go, self._nodes.values()))
            while self._nodes:
                _, node = self._nodes.popitem()
                try:
                    await node.stop()
                except Exception as error:
                    errors.append(error)
        finally:
            await self._kill_all()
            await self._store.stop()
            errors += [node.death() for node in self._dead.values()]
            self._dead.clear()
        if errors:
            raise errors[0]

    async def _stop_starting(self) -> None:
        starts = [task for _, task in self._starting.values()]
        for start in starts:
            start.cancel()
        await asyncio.gather(*starts, return_exceptions=True)

    async def _kill_all(self) -> None:
        """Those that time was too short for: none outlives the test."""
        left = [node for node in self._nodes.values() if isinstance(node, ProcessNode)]
        self._nodes.clear()
        await asyncio.gather(*(node.kill() for node in left))

    def _process(self, broker: int) -> "ProcessNode":
        if not self._processes:
            raise RuntimeError("only a cluster of processes can do this: Cluster(processes=True)")
        return self._running(broker)  # type: ignore[return-value]

    def _require(self, *brokers: int) -> None:
        for broker in brokers:
            if broker not in self.broker_ids:
                raise ValueError(f"there is no broker {broker}")

    def _running(self, broker: int) -> "Node | ProcessNode":
        """Raises BrokerDied where it died by itself, RuntimeError where it does not run."""
        if broker in self._dead:
            raise self._dead[broker].death()
        if broker not in self._nodes:
            raise RuntimeError(f"broker {broker} does not run")
        return self._nodes[broker]

    def _do(self, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        if self._thread is None:
            work.close()
            raise RuntimeError("this cluster does not run")
        return self._thread.run(work, TIMEOUT if timeout is None else timeout)


async def _let_go(node: "Node | ProcessNode") -> None:
    """What is held would hold up its end. One that says nothing is stopped all the same."""
    with suppress(BrokerDied, TimeoutError):
        async with asyncio.timeout(RELEASE_TIMEOUT):
            await node.release()


async def _told(node: "Node | ProcessNode", method: str, arguments: Mapping[str, Any]) -> None:
    # Who has died needs to be told nothing.
    with suppress(BrokerDied):
        await node.tell(method, **arguments)
