"""One run of the checker against three brokers, correct or with a fault, while faults are
injected."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

from barnabas.client.cluster import Cluster as Client
from barnabas.faults.remote import BrokerDied
from barnabas.testing import Cluster
from barnabas.testing.calls import TIMEOUT
from barnabas.testing.processes import ProcessNode
from barnabas.verify.history import read_history
from barnabas.verify.judge import judge
from barnabas.verify.options import BOTH, NEWER, Options
from barnabas.verify.runner import run
from tests.integration.mutation.hunt import Result, soon_given_up

if TYPE_CHECKING:
    from barnabas.testing.node import Node

SESSION_S: Final = 2.0
CALM_S: Final = 0.5
"""Seconds without injected faults at the beginning and between two of them."""
SLOW_FETCH_S: Final = 0.25
KEYS: Final = {
    "transaction.state.log.num.partitions": "3",
    "offsets.topic.num.partitions": "3",
    "metadata.session.timeout.ms": str(int(SESSION_S * 1000)),
    "replica.lag.time.max.ms": "3000",
    "replica.fetch.backoff.ms": "100",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}


class MutantCluster(Cluster):
    """Three brokers that all have the same fault, on disks that may lose power."""

    def __init__(self, directory: Path, mutant: str, *, lossy: bool, keys: dict[str, str]) -> None:
        super().__init__({**KEYS, **keys}, processes=True, data_dir=directory)
        self._mutant = mutant
        self._lossy = lossy

    def _make_node(self, broker: int) -> "Node | ProcessNode":
        node = super()._make_node(broker)
        assert isinstance(node, ProcessNode)
        node.program = ["-m", "tests.integration.adversary.mutant_node", self._mutant]
        if self._lossy:
            node.program.append(str(self._directory / f"device-{broker}"))
        return node

    def topic_of_run(self) -> str:
        """Return the topic that the checker writes to; wait until it exists."""

        async def ask() -> str:
            async with Client(self.bootstrap_servers) as client, asyncio.timeout(TIMEOUT):
                while True:
                    await client.refresh()
                    for name in sorted(client.topics):
                        if name.startswith("verify-"):
                            return name
                    await asyncio.sleep(CALM_S / 10)

        return asyncio.run(ask())


Injection = Callable[[MutantCluster, Random], None]
"""An injected fault, which has ended when the call returns."""


def kill(cluster: MutantCluster, chance: Random) -> None:
    """Kill one broker; restart it at once, or after the others have noticed."""
    broker = chance.choice(cluster.running)
    cluster.kill(broker)
    time.sleep(chance.choice((0.0, 0.3, SESSION_S + 1)))
    cluster.start_broker(broker)


def lag(cluster: MutantCluster, chance: Random) -> None:
    """Delay one follower that stays in sync, then kill another broker."""
    slow, dying = chance.sample(cluster.running, 2)
    cluster.pause(slow)
    time.sleep(0.2 + 0.6 * chance.random())
    cluster.kill(dying)
    cluster.resume(slow)
    time.sleep(chance.choice((0.5, SESSION_S + 1)))
    cluster.start_broker(dying)


def pause(cluster: MutantCluster, chance: Random) -> None:
    """Pause one broker until its session expires."""
    broker = chance.choice(cluster.running)
    cluster.pause(broker)
    time.sleep(2 * SESSION_S)
    cluster.resume(broker)


def oust(cluster: MutantCluster, chance: Random) -> None:
    """Pause one broker until it is out of sync, resume it, and kill another one."""
    slow, dying = chance.sample(cluster.running, 2)
    cluster.pause(slow)
    time.sleep(SESSION_S + 1)
    cluster.resume(slow)
    time.sleep(0.2 * chance.random())
    cluster.kill(dying)
    time.sleep(0.5)
    cluster.start_broker(dying)


def cut(cluster: MutantCluster, chance: Random) -> None:
    """Cut one broker off from the others and the metadata, but from no client."""
    broker = chance.choice(cluster.running)
    cluster.cut_store(broker)
    cluster.partition([broker], [each for each in cluster.running if each != broker])
    time.sleep(SESSION_S + 3)
    cluster.heal()


def black_out(cluster: MutantCluster, chance: Random) -> None:
    """Cut the power of two brokers while the third is paused; restart one before this is
    noticed."""
    first, second, awake = chance.sample(cluster.running, 3)
    cluster.pause(awake)
    time.sleep(0.2)
    for broker in (first, second):
        cluster.kill(broker)
    cluster.start_broker(first)
    cluster.resume(awake)
    cluster.start_broker(second)


def depose(cluster: MutantCluster, chance: Random) -> None:
    """Move a leadership while the followers lag, and kill the new leader at once.

    Coordinators are slow then too, and transactions few.
    """
    topic = cluster.topic_of_run()
    partition = chance.choice((0, 1))
    replicas = cluster.in_sync_of(topic, partition)
    others = [each for each in replicas if each != cluster.leader_of(topic, partition)]
    if not others:
        return
    with cluster.delay("Fetch", SLOW_FETCH_S):
        time.sleep(0.3)
        cluster.move_leader(topic, partition, others[0])
        # After the first Fetch of the old leader has arrived, and before the second.
        time.sleep(SLOW_FETCH_S * (1 + chance.random()))
        cluster.kill(others[0])
    time.sleep(0.3)
    cluster.start_broker(others[0])


def tell_late(cluster: MutantCluster, chance: Random) -> None:
    """Deliver a controller's message to a broker after another controller was elected."""
    speaker = cluster.controller
    hearer, dying = chance.sample([each for each in cluster.running if each != speaker], 2)
    late = cluster.hold("UpdateMetadata", broker=hearer)
    cluster.kill(dying)
    late.wait()
    cluster.expire_session(speaker)
    cluster.start_broker(dying)
    cluster.wait_until_in_sync()
    late.release()


@dataclass(frozen=True)
class ClusterHunt:
    """The conditions under which a fault is looked for."""

    workload: str = "queue"
    duration: float = 8.0
    injections: tuple[Injection, ...] = (kill,)
    churn: bool = False
    lossy: bool = False
    protocol: str = BOTH
    recovery: float = 60.0
    partitions: int = 4
    replicas: int = 3
    keys: dict[str, str] = field(default_factory=dict)


LEADERS_MOVE: Final = ClusterHunt(injections=(), churn=True)
CLUSTER_HUNTS: Final = {
    "commits_alone": ClusterHunt(injections=(lag,)),
    "counts_the_fastest": ClusterHunt(injections=(lag,)),
    "shrinks_alone": ClusterHunt(injections=(cut,), duration=10, keys={"min.insync.replicas": "1"}),
    "elects_anybody": ClusterHunt(injections=(oust,), duration=12),
    "never_invites": ClusterHunt(recovery=5),
    "shows_too_much": ClusterHunt(injections=(lag,), partitions=2),
    "stores_other_bytes": ClusterHunt(injections=(), duration=2),
    "followers_miss_aborts": ClusterHunt(injections=(), duration=2),
    "followers_remember_one_batch": ClusterHunt(workload="idempotent"),
    "gives_up_markers": ClusterHunt(injections=(), churn=True, protocol=NEWER),
    "hasty_coordinator": ClusterHunt(workload="pipeline"),
    "cuts_to_its_high_watermark": ClusterHunt(workload="idempotent", injections=(depose,)),
    "counts_who_diverges": ClusterHunt(
        workload="idempotent",
        injections=(depose,),
        replicas=2,
        recovery=15,
        keys={"min.insync.replicas": "1"},
    ),
    "never_cuts": ClusterHunt(injections=(lag,), recovery=10),
    "trusts_what_lost_power": ClusterHunt(
        injections=(black_out,), lossy=True, keys={"metadata.session.timeout.ms": "6000"}
    ),
    "obeys_anybody": ClusterHunt(injections=(tell_late,), duration=4, recovery=10),
    "followers_forget_producers": ClusterHunt(workload="idempotent"),
}


def hunt_in_cluster(how: ClusterHunt, directory: Path, seed: int, mutant: str = "") -> Result:
    """Run the checker on its own cluster, which is removed afterwards."""
    cluster = MutantCluster(directory, mutant, lossy=how.lossy, keys=how.keys).start()
    try:
        with soon_given_up() if mutant else nullcontext():
            return check(how, cluster, seed)
    finally:
        # Some faults make a broker stop by itself.
        with suppress(BrokerDied) if mutant else nullcontext():
            cluster.stop()


def check(how: ClusterHunt, cluster: MutantCluster, seed: int) -> Result:
    """Run the checker, and inject faults until shortly before the end of the load."""
    options = Options(
        bootstrap=cluster.bootstrap_servers,
        workload=how.workload,
        duration=how.duration,
        seed=seed,
        partitions=how.partitions,
        protocol=how.protocol,
        transaction_timeout=3.0,
        replication_factor=how.replicas,
        churn=how.churn,
        recovery=how.recovery,
    )
    file = StringIO()
    with ThreadPoolExecutor(1) as nemesis:
        injections = nemesis.submit(_inject_faults, how, cluster, Random(seed))
        problems = asyncio.run(run(options, file))
    file.seek(0)
    return Result(judge(read_history(file)), problems, injections.result())


def _inject_faults(how: ClusterHunt, cluster: MutantCluster, chance: Random) -> int:
    """Inject faults; return how many. A cluster with a fault may never recover, so no wait is
    endless."""
    until = time.monotonic() + how.duration - CALM_S
    time.sleep(CALM_S)
    count = 0
    while how.injections and time.monotonic() < until:
        count += 1
        try:
            chance.choice(how.injections)(cluster, chance)
            cluster.wait_until_in_sync(SESSION_S + 3)
        except (BrokerDied, TimeoutError):
            # The end of the run shows the consequences.
            continue
        time.sleep(CALM_S * chance.random())
    return count
