"""Three complete brokers, their store and their clients on one loop."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from random import Random

from barnabas.broker.loop.offload import InlineOffload
from barnabas.broker.store.embedded import EmbeddedStore, open_store
from barnabas.broker.store.socket_server import StoreServer
from barnabas.client.cluster import Cluster
from barnabas.client.partition_admin import Outcomes, PartitionAdmin
from barnabas.protocol.errors import KafkaError
from tests.simulation.cluster.audit import Audit, partitions_of
from tests.simulation.cluster.hosts import CLIENTS, STORE, Host, HostedLoop, HostServer
from tests.simulation.cluster.node import BIRTHDAY_MS, STORE_PATH, Node
from tests.simulation.cluster.workload import PARTITIONS, PLAIN, PROCESSED, TRANSACTED, Workload
from tests.support.mem_files import MemFiles

BROKERS = (1, 2, 3)
KEYS = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "2",
    "metadata.session.timeout.ms": "3000",
    "replica.lag.time.max.ms": "4000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
}
FLUSHING = {"log.flush.interval.messages": "1"}
"""With it acknowledged records are on the disks of the whole ISR, and all brokers may lose
power."""
FAULTS = (
    "kill", "stop", "pause", "partition", "minority", "one way", "store", "expire", "lose power",
    "lose disk", "stalls", "prefer", "reassign",
)  # fmt: skip
WORN = ("bad disk", "wrong clock")
"""Drawn separately, so that the histories of seeds without them stay as they were."""
MOST_SKEW = 2.0
"""The largest error of a wrong clock, in s, in both directions."""
TWO_DISKS = {"log.dirs": "/data-0,/data-1"}
TOPICS = (PLAIN, TRANSACTED, PROCESSED)
_FLUSHING_SHARE = 0.25
WITHOUT_FAST_PATHS = {"fast.paths.enable": "false"}
GENERAL_SHARE = 0.25
"""The share of the histories whose brokers serve each request by its handler."""
CONVERGES_WITHIN = 60.0
CLIENTS_END_WITHIN = 300.0
"""A client waits for the whole timeout of each connection to a machine that lost power."""
COMPARE_EVERY = 0.25


class Stage:
    """The brokers, store and clients of a history, and checks of their state."""

    MORE_KEYS: Mapping[str, str] = {}
    """Further keys of the brokers."""
    FLUSHES = False
    """Whether the cluster of every seed flushes before it acknowledges, instead of some."""

    def __init__(self, seed: int, loop: HostedLoop, *, faulty_for: float = 15.0) -> None:
        self.random = Random(seed)
        self.loop = loop
        self.audit = Audit()
        self.faults: list[str] = []
        self._faulty_for = faulty_for
        self._enabled = [each for each in FAULTS if self.random.random() < 0.5] or ["kill"]
        keys = KEYS | self.MORE_KEYS
        if self.FLUSHES or Random(f"flushing {seed}").random() < _FLUSHING_SHARE:
            keys = keys | FLUSHING
            self._enabled.append("lose all power")
        self.has_fast_paths = Random(f"paths {seed}").random() >= GENERAL_SHARE
        if not self.has_fast_paths:
            keys = keys | WITHOUT_FAST_PATHS
        worn = Random(f"worn {seed}")
        self._enabled += [each for each in WORN if worn.random() < 0.5]
        if "bad disk" in self._enabled and worn.random() < 0.5:
            keys = keys | TWO_DISKS
        self._clients = Host(loop, CLIENTS)
        self._store_host = Host(loop, STORE)
        self._store: EmbeddedStore
        self._server: StoreServer
        self.nodes = [Node(loop, each, self.random.getrandbits(32), keys) for each in BROKERS]
        self.bootstrap = ",".join(node.address for node in self.nodes)
        self.workload = Workload(
            self.bootstrap,
            self.random.getrandbits(32),
            lambda: BIRTHDAY_MS / 1000 + loop.time(),
            clocks_differ=2 * MOST_SKEW if "wrong clock" in self._enabled else 0.0,
        )
        self._broken: BaseException | None = None

    @property
    def hosts(self) -> list[Host]:
        """Return all hosts that ever existed."""
        return [self._clients, self._store_host, *(h for n in self.nodes for h in n.hosts)]

    async def _serve_store(self) -> None:
        self._store = await open_store(MemFiles(), "/metadata", InlineOffload())
        self._server = StoreServer(self._store)
        factory = self._server.connection
        server = HostServer(self.loop, self._store_host, factory, STORE_PATH)
        server.serving = True
        self.loop.servers[STORE_PATH] = server  # type: ignore[index, assignment]

    def _note(self, what: str) -> None:
        self.faults.append(what)
        self.loop.note(f"fault: {what}")

    async def _administer(self, work: Callable[[PartitionAdmin], Awaitable[Outcomes]]) -> bool:
        try:
            async with Cluster(self.bootstrap, timeout=10.0) as cluster:
                outcomes = await work(PartitionAdmin(cluster))
        except (KafkaError, TimeoutError, OSError) as error:
            self.loop.note(f"refused: {error!r}")
            return False
        return not any(outcomes.values())

    async def _within(self, seconds: float, what: str, reached: Callable[[], bool]) -> None:
        end = self.loop.time() + seconds
        while not reached():
            assert self.loop.time() < end, f"not within {seconds:g} s: {what}"
            for node in self.nodes:
                if (failure := node.failure()) is not None:
                    raise AssertionError(f"{node.name} failed") from failure
            await asyncio.sleep(0.1)

    def _all_in_sync(self) -> bool:
        leading = [p for node in self.nodes if node.running for p in partitions_of(node)]
        led = [each for each in leading if each.is_leader]
        places = {(each.topic, each.index) for each in leading}
        return len(led) == len(places) >= len(TOPICS) * PARTITIONS and all(
            len(each.isr) == len(BROKERS) for each in led
        )

    def _nothing_open(self) -> bool:
        return all(
            each.log.last_stable_offset == each.log.log_end_offset
            for node in self.nodes
            for each in partitions_of(node)
            if each.is_leader and each.topic in TOPICS
        )

    def _all_know(self) -> bool:
        caches = [node.cache for node in self.nodes]
        return all(
            (known := cache.partition(each.topic, each.index)) is not None
            and (known.leader, known.leader_epoch) == (node.id, each.leader_epoch)
            for node in self.nodes
            for each in partitions_of(node)
            if each.is_leader
            for cache in caches
        )
