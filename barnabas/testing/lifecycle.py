"""The lifecycle of the brokers of a test cluster: start, stop, crash and restart."""

import asyncio
import shutil
import tempfile
import threading
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from barnabas.client.settings import ClientSettings
from barnabas.faults.levers import Levers
from barnabas.faults.ports import ReservedPorts
from barnabas.faults.remote import BrokerDied
from barnabas.testing.calls import TIMEOUT, checked_timeout
from barnabas.testing.configs import Configs, checked_config, texts
from barnabas.testing.helpers import HelperWork
from barnabas.testing.processes import ProcessNode
from barnabas.testing.security import ADMIN, CERTIFICATES, PASSWORDS, security_of, settings_of

if TYPE_CHECKING:
    from barnabas.client.cluster import Cluster as Client
    from barnabas.faults.store import Store
    from barnabas.security.acl.rules import AclBinding
    from barnabas.testing.node import Node

RELEASE_TIMEOUT = 3.0
_JOIN_TIMEOUT = 30.0
CLIENTS, BROKERS = "PLAINTEXT", "BROKERS"

DEFAULTS = {
    # A group rebalances without waiting for more members, and few partitions load fast.
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    "log.segment.bytes": str(16 * 1024 * 1024),
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    # The coordinator notices soon that the clock of transactions has jumped.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}


class ClusterLifecycle(HelperWork):
    """The brokers of a `Cluster`, their processes, ports and directories."""

    def __init__(
        self,
        configs: Configs | None = None,
        *,
        brokers: int = 3,
        processes: bool = False,
        data_dir: str | Path | None = None,
        secure: bool = False,
        users: Iterable[str] | Mapping[str, str] = (),
        rules: "Iterable[AclBinding]" = (),
        start_timeout: float = TIMEOUT,
    ) -> None:
        if brokers < 1:
            raise ValueError(f"a cluster has at least one broker, not {brokers}")
        self._start_timeout = checked_timeout(start_timeout)
        self._security = security_of(secure, users, rules)
        self._listeners = [CLIENTS, BROKERS]
        """The listeners; the first one is that of `bootstrap_servers`."""
        if self._security is not None:
            self._listeners = [PASSWORDS, BROKERS, CERTIFICATES]
        factor = str(min(3, brokers))
        self._configs = {
            **DEFAULTS,
            "default.replication.factor": factor,
            "min.insync.replicas": str(min(2, brokers)),
            "offsets.topic.replication.factor": factor,
            "transaction.state.log.replication.factor": factor,
            "transaction.state.log.min.isr": str(min(2, brokers)),
            **texts(configs),
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
        """Brokers that died by themselves, until they are started again."""
        self._starting: dict[int, tuple[Node | ProcessNode, asyncio.Task[Any]]] = {}
        self._changed = asyncio.Event()
        """Set when a broker starts or ends."""
        self._levers = Levers(_LeverBrokers(self))
        self._exits = AsyncExitStack()
        self._ports: dict[int, dict[str, int]] = {}
        self._reserved = ReservedPorts()

    # -- running ---------------------------------------------------------------------------------

    def _begin(self) -> None:
        if self._thread is not None:
            raise RuntimeError("this cluster is running")
        self._directory = Path(self._data_dir or tempfile.mkdtemp(prefix="barnabas-"))
        self._directory.mkdir(exist_ok=True, parents=True)
        self._thread = LoopThread("barnabas-cluster")
        try:
            self._do(self._start(), self._start_timeout, "the cluster did not start")
        except BaseException:
            # The error of the start says more than one of the stop.
            with suppress(Exception):
                self._end()
            raise

    def _end(self) -> None:
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

    @property
    def bootstrap_servers(self) -> str:
        """The value of `bootstrap.servers` for clients: all brokers, also those that do not run."""
        return ",".join(self.address_of(broker) for broker in self.broker_ids)

    def address_of(self, broker: int) -> str:
        """Return the address of one broker for clients. It stays the same over restarts."""
        self._levers.require(broker)
        if broker not in self._ports:
            raise RuntimeError("this cluster does not run")
        return f"127.0.0.1:{self._ports[broker][self._listeners[0]]}"

    def settings(self, user: str = ADMIN) -> ClientSettings:
        """Return the settings of a client with the password of a user, for each library.

        Raises ValueError if the cluster has no such user.
        """
        return settings_of(self._security, self.bootstrap_servers, user)

    def certificate_settings(self, user: str) -> ClientSettings:
        """Return the settings of a client with a certificate of a user, who needs no password.

        Raises ValueError without `secure`.
        """
        if self._security is None:
            raise ValueError("only a cluster with secure=True takes certificates")
        servers = ",".join(f"127.0.0.1:{ports[CERTIFICATES]}" for ports in self._ports.values())
        return self._security.certificate(servers, user)

    @property
    def running(self) -> list[int]:
        """The ids of the brokers that were started, and have neither stopped nor died."""
        return sorted(self._nodes)

    def kill(self, broker: int) -> None:
        """Send SIGKILL to a broker. Raises RuntimeError without `processes`."""
        self._do(self._kill(broker))

    def pause(self, broker: int) -> None:
        """Send SIGSTOP: the broker keeps its connections and is silent.

        Faults that are set meanwhile apply to it when it is resumed. Raises RuntimeError without
        `processes`.
        """
        self._do(self._process(broker).pause())

    def resume(self, broker: int) -> None:
        """Send SIGCONT, and return when faults set meanwhile apply to it.

        Raises RuntimeError without `processes`.
        """
        self._do(self._process(broker).resume())

    async def _start(self) -> None:
        self._levers.forget()
        self._changed = asyncio.Event()
        await self._open_store()
        starts = [asyncio.create_task(self._start_broker(each)) for each in self.broker_ids]
        try:
            await asyncio.gather(*starts)
        except BaseException:
            for start in starts:
                start.cancel()
            await asyncio.wait(starts)
            raise
        for node in self._nodes.values():
            await node.ask("wait_for_brokers", count=len(self.broker_ids))

    async def _open_store(self) -> None:
        from barnabas.broker.loop.offload import ThreadOffload
        from barnabas.broker.store.embedded import open_store
        from barnabas.broker.store.socket_server import StoreServer
        from barnabas.faults.store import Store
        from barnabas.storage.files.files import OsFiles

        offload = ThreadOffload()
        self._exits.callback(offload.close)
        opened = await open_store(OsFiles(), str(self._directory / "metadata"), offload)
        self._exits.push_async_callback(opened.close)
        server = StoreServer(opened)
        self._exits.push_async_callback(server.close)
        self._store = Store(opened, server, self._directory)
        await self._store.serve(self.broker_ids)
        if self._security is not None:
            self._security.write(self._directory / "secure")
            session = opened.session()
            await self._security.store(session)
            await session.close()

    async def _start_broker(self, broker: int) -> None:
        self._levers.require(broker)
        if self._reachable(broker) is not None:
            raise RuntimeError(f"broker {broker} is running")
        if broker not in self._ports:
            self._ports[broker] = {name: self._reserved.take() for name in self._listeners}
        self._dead.pop(broker, None)
        node = self._make_node(broker)
        task = asyncio.current_task()
        assert task is not None
        self._starting[broker] = node, task
        self._changed.set()
        try:
            await node.start(self._levers.calls_before_start(broker))
            self._nodes[broker] = node
        finally:
            del self._starting[broker]
            self._changed.set()
        if isinstance(node, ProcessNode):
            node.when_it_ends(partial(self._mark_dead, broker, node))

    def _mark_dead(self, broker: int, node: ProcessNode) -> None:
        """Note that a broker has ended: it has died by itself if it still counts as running."""
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
        from barnabas.faults.store import store_socket

        properties = {
            "broker.id": str(broker),
            "listeners": ",".join(
                f"{name}://127.0.0.1:{port}" for name, port in self._ports[broker].items()
            ),
            **self._protocols(),
            "inter.broker.listener.name": BROKERS,
            "metadata.socket": store_socket(self._directory, broker),
            "log.dirs": str(self._directory / f"broker-{broker}"),
            **self._configs,
        }
        # A child would report the error in its log alone.
        checked_config(properties)
        if self._processes:
            return ProcessNode(properties, self._directory / f"broker-{broker}.log")
        from barnabas.testing.node import Node

        return Node(properties)

    def _protocols(self) -> dict[str, str]:
        if self._security is not None:
            return self._security.properties({BROKERS: "PLAINTEXT"})
        return {"listener.security.protocol.map": f"{CLIENTS}:PLAINTEXT,{BROKERS}:PLAINTEXT"}

    def _reachable(self, broker: int) -> "Node | ProcessNode | None":
        """Return a broker; None if it neither runs nor starts."""
        node, _ = self._starting.get(broker, (None, None))
        return node or self._nodes.get(broker)

    async def _stop(self) -> None:
        """Stop one broker after another: each but the last hands over the partitions it leads."""
        errors: list[Exception] = []
        if self._nodes or self._starting:
            self._store.mend()
        try:
            await self._stop_starting()
            await asyncio.gather(*map(_release, self._nodes.values()))
            while self._nodes:
                _, node = self._nodes.popitem()
                try:
                    await node.stop()
                except Exception as error:
                    errors.append(error)
        finally:
            await self._kill_all()
            await self._exits.aclose()
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
        """Kill the processes that are left: none outlives the test."""
        left = [node for node in self._nodes.values() if isinstance(node, ProcessNode)]
        self._nodes.clear()
        await asyncio.gather(*(node.kill() for node in left))

    def _process(self, broker: int) -> "ProcessNode":
        self._levers.require(broker)
        if not self._processes:
            raise RuntimeError("only a cluster of processes can do this: Cluster(processes=True)")
        return self._running(broker)  # type: ignore[return-value]

    def _running(self, broker: int) -> "Node | ProcessNode":
        """Return a broker that runs.

        Raises BrokerDied if it died by itself, RuntimeError if it does not run.
        """
        self._levers.require(broker)
        if broker in self._dead:
            raise self._dead[broker].death()
        if broker not in self._nodes:
            raise RuntimeError(f"broker {broker} does not run")
        return self._nodes[broker]

    def _loop_of_brokers(self) -> asyncio.AbstractEventLoop:
        if self._thread is None:
            raise RuntimeError("this cluster does not run")
        return self._thread.loop

    def _reachable_servers(self) -> str:
        # A connection to a broker that is paused is not answered.
        awake = [broker for broker in self.running if not self._nodes[broker].paused]
        return ",".join(self.address_of(broker) for broker in awake or self.running)


class _LeverBrokers:
    """The brokers of a test cluster, as its levers reach them."""

    def __init__(self, cluster: ClusterLifecycle) -> None:
        self._cluster = cluster

    @property
    def broker_ids(self) -> list[int]:
        return self._cluster.broker_ids

    @property
    def changed(self) -> asyncio.Event:
        return self._cluster._changed

    @property
    def store(self) -> "Store":
        return self._cluster._store

    def reachable(self, broker: int) -> "Node | ProcessNode | None":
        return self._cluster._reachable(broker)

    def port_for_brokers(self, broker: int) -> int:
        return self._cluster._ports[broker][BROKERS]

    def client(self) -> "Client":
        return self._cluster._client()


async def _release(node: "Node | ProcessNode") -> None:
    """Release held requests, which would delay the stop; continue if the broker does not answer."""
    with suppress(BrokerDied, TimeoutError):
        async with asyncio.timeout(RELEASE_TIMEOUT):
            await node.release()


class LoopThread:
    """A thread with an event loop: a blocking client in the test's thread does not stop it."""

    def __init__(self, name: str) -> None:
        # Imported here: an error in the thread would not reach the caller.
        from uvloop import new_event_loop

        self._new_loop = new_event_loop
        started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(started,), name=name, daemon=True)
        self._thread.start()
        started.wait()

    def close(self) -> None:
        """Stop the loop and the thread."""
        self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_JOIN_TIMEOUT)

    def _run(self, started: threading.Event) -> None:
        with asyncio.Runner(loop_factory=self._new_loop) as runner:
            self.loop = runner.get_loop()
            runner.run(self._wait(started))

    async def _wait(self, started: threading.Event) -> None:
        self._stop = asyncio.Event()
        started.set()
        await self._stop.wait()
