"""One run of the checker against three brokers, whole or with a fault, while things go wrong."""

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
from barnabas.testing import Cluster
from barnabas.testing.ensemble import TIMEOUT
from barnabas.testing.processes import BrokerDied, ProcessNode
from barnabas.verify.history import read_history
from barnabas.verify.judge import judge
from barnabas.verify.options import BOTH, NEWER, Options
from barnabas.verify.runner import run
from tests.integration.mutation.hunt import Result

if TYPE_CHECKING:
    from barnabas.testing.node import Node

SESSION_S: Final = 2.0
CALM_S: Final = 0.5
"""At the beginning and between two strokes."""
SLOW_FETCH_S: Final = 0.25
KEYS: Final = {
    "transaction.state.log.num.partitions": "3",
    "offsets.topic.num.partitions": "3",
    "metadata.session.timeout.ms": str(int(SESSION_S * 1000)),
    "replica.lag.time.max.ms": "3000",
    "replica.fetch.backoff.ms": "100",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}


class Trio(Cluster):
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
        """The topic that the checker writes to; waits until it is there."""

        async def ask() -> str:
            async with Client(self.bootstrap_servers) as client, asyncio.timeout(TIMEOUT):
                while True:
                    await client.refresh()
                    for name in sorted(client.topics):
                        if name.startswith("verify-"):
                            return name
                    await asyncio.sleep(CALM_S / 10)

        return asyncio.run(ask())


Stroke = Callable[[Trio, Random], None]
"""Something that goes wrong, and is over when it returns."""


def kill(trio: Trio, chance: Random) -> None:
    """One broker dies and comes back at once, or after the others have noticed."""
    broker = chance.choice(trio.running)
    trio.kill(broker)
    time.sleep(chance.choice((0.0, 0.3, SESSION_S + 1)))
    trio.start_broker(broker)


def lag(trio: Trio, chance: Random) -> None:
    """One follower falls behind for a moment, still in sync, and another broker dies then."""
    slow, dying = chance.sample(trio.running, 2)
    trio.pause(slow)
    time.sleep(0.2 + 0.6 * chance.random())
    trio.kill(dying)
    trio.resume(slow)
    time.sleep(chance.choice((0.5, SESSION_S + 1)))
    trio.start_broker(dying)


def pause(trio: Trio, chance: Random) -> None:
    """One broker sleeps past its session."""
    broker = chance.choice(trio.running)
    trio.pause(broker)
    time.sleep(2 * SESSION_S)
    trio.resume(broker)


def oust(trio: Trio, chance: Random) -> None:
    """One broker sleeps until it is out of sync, and when it is back, another one dies."""
    slow, dying = chance.sample(trio.running, 2)
    trio.pause(slow)
    time.sleep(SESSION_S + 1)
    trio.resume(slow)
    time.sleep(0.2 * chance.random())
    trio.kill(dying)
    time.sleep(0.5)
    trio.start_broker(dying)


def cut(trio: Trio, chance: Random) -> None:
    """One broker loses the others and the metadata, but no client."""
    broker = chance.choice(trio.running)
    trio.cut_store(broker)
    trio.partition([broker], [each for each in trio.running if each != broker])
    time.sleep(SESSION_S + 3)
    trio.heal()


def black_out(trio: Trio, chance: Random) -> None:
    """Two brokers lose power while the third cannot say so: one is back before that is noticed."""
    first, second, awake = chance.sample(trio.running, 3)
    trio.pause(awake)
    time.sleep(0.2)
    for broker in (first, second):
        trio.kill(broker)
    trio.start_broker(first)
    trio.resume(awake)
    trio.start_broker(second)


def depose(trio: Trio, chance: Random) -> None:
    """A leader hands over while its followers are behind, and the new one dies at once.

    Coordinators are slow then too, and transactions few.
    """
    topic = trio.topic_of_run()
    partition = chance.choice((0, 1))
    replicas = trio.in_sync_of(topic, partition)
    others = [each for each in replicas if each != trio.leader_of(topic, partition)]
    if not others:
        return
    with trio.delay("Fetch", SLOW_FETCH_S):
        time.sleep(0.3)
        trio.move_leader(topic, partition, others[0])
        # After the first Fetch of the old leader has come, and before the second.
        time.sleep(SLOW_FETCH_S * (1 + chance.random()))
        trio.kill(others[0])
    time.sleep(0.3)
    trio.start_broker(others[0])


def tell_late(trio: Trio, chance: Random) -> None:
    """What a controller has said comes to a broker when there is another one already."""
    speaker = trio.controller
    hearer, dying = chance.sample([each for each in trio.running if each != speaker], 2)
    late = trio.hold("UpdateMetadata", broker=hearer)
    trio.kill(dying)
    late.wait()
    trio.expire_session(speaker)
    trio.start_broker(dying)
    trio.wait_until_in_sync()
    late.release()


@dataclass(frozen=True)
class ClusterHunt:
    """How a fault is looked for."""

    workload: str = "queue"
    duration: float = 8.0
    strokes: tuple[Stroke, ...] = (kill,)
    churn: bool = False
    lossy: bool = False
    protocol: str = BOTH
    recovery: float = 60.0
    partitions: int = 4
    replicas: int = 3
    keys: dict[str, str] = field(default_factory=dict)


LEADERS_MOVE: Final = ClusterHunt(strokes=(), churn=True)
CLUSTER_HUNTS: Final = {
    "commits_alone": ClusterHunt(strokes=(lag,)),
    "counts_the_fastest": ClusterHunt(strokes=(lag,)),
    "shrinks_alone": ClusterHunt(strokes=(cut,), duration=10, keys={"min.insync.replicas": "1"}),
    "elects_anybody": ClusterHunt(strokes=(oust,), duration=12),
    "never_invites": ClusterHunt(recovery=5),
    "shows_too_much": ClusterHunt(strokes=(lag,), partitions=2),
    "stores_other_bytes": ClusterHunt(strokes=(), duration=2),
    "followers_miss_aborts": ClusterHunt(strokes=(), duration=2),
    "followers_remember_one_batch": ClusterHunt(workload="idempotent"),
    "gives_up_markers": ClusterHunt(strokes=(), churn=True, protocol=NEWER),
    "hasty_coordinator": ClusterHunt(workload="pipeline"),
    "cuts_to_its_high_watermark": ClusterHunt(workload="idempotent", strokes=(depose,)),
    "counts_who_diverges": ClusterHunt(
        workload="idempotent",
        strokes=(depose,),
        replicas=2,
        recovery=15,
        keys={"min.insync.replicas": "1"},
    ),
    "never_cuts": ClusterHunt(strokes=(lag,), recovery=10),
    "trusts_what_lost_power": ClusterHunt(
        strokes=(black_out,), lossy=True, keys={"metadata.session.timeout.ms": "6000"}
    ),
    "obeys_anybody": ClusterHunt(strokes=(tell_late,), duration=4, recovery=10),
    "followers_forget_producers": ClusterHunt(workload="idempotent"),
}


def hunt_in_cluster(how: ClusterHunt, directory: Path, seed: int, mutant: str = "") -> Result:
    """Runs the checker on a cluster of its own, which is gone afterwards."""
    trio = Trio(directory, mutant, lossy=how.lossy, keys=how.keys).start()
    try:
        return check(how, trio, seed)
    finally:
        # Some faults are such that a broker stops by itself.
        with suppress(BrokerDied) if mutant else nullcontext():
            trio.stop()


def check(how: ClusterHunt, trio: Trio, seed: int) -> Result:
    """Runs the checker, and lets things go wrong until shortly before the end of the load."""
    options = Options(
        bootstrap=trio.bootstrap_servers,
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
        strokes = nemesis.submit(_strike, how, trio, Random(seed))
        problems = asyncio.run(run(options, file))
    file.seek(0)
    return Result(judge(read_history(file)), problems, strokes.result())


def _strike(how: ClusterHunt, trio: Trio, chance: Random) -> int:
    """How often; a cluster with a fault may not come to rest again, and no stroke waits for that
    for ever."""
    until = time.monotonic() + how.duration - CALM_S
    time.sleep(CALM_S)
    count = 0
    while how.strokes and time.monotonic() < until:
        count += 1
        try:
            chance.choice(how.strokes)(trio, chance)
            trio.wait_until_in_sync(SESSION_S + 3)
        except (BrokerDied, TimeoutError):
            # The end of the run will show what it means.
            continue
        time.sleep(CALM_S * chance.random())
    return count
