"""The load during faults: `barnabas verify eos`, and for each partition of another topic a writer,
which shows how long no write was possible."""

import asyncio
import time
from pathlib import Path
from typing import Final, NamedTuple

from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from tests.chaos.cluster import ChaosCluster
from tests.support.checker import Checker

PROBE: Final = "probe"
PARTITIONS: Final = 6


class Ack(NamedTuple):
    """A record of the probe's, when its answer came."""

    t: float
    partition: int
    error: str


class Load(Checker):
    """The checker, and the writers of the probe."""

    def __init__(
        self,
        cluster: ChaosCluster,
        workload: str,
        directory: Path,
        seed: int,
        *,
        churn: bool = False,
    ) -> None:
        words = ["--workload", workload, "--seed", str(seed), *(["--churn"] if churn else [])]
        super().__init__(cluster, directory, *words)
        self._acks = directory / "acks"

    def start(self) -> None:
        at = self._cluster.bootstrap_servers
        asyncio.run(_create(at))
        super().start()
        self.run(["tests.chaos.probe", at, PROBE, str(PARTITIONS)], self._acks)

    def acks(self) -> list[Ack]:
        """Return the acknowledgements that the probe has received so far."""
        lines = self._acks.read_text().splitlines(keepends=True)
        found = (line.rstrip("\n").split(" ") for line in lines if line.endswith("\n"))
        return [Ack(float(t), int(partition), error) for t, partition, error in found]

    def longest_gaps(self, since: float, until: float) -> dict[int, float]:
        """Longest time without an acknowledged record between two instants, by partition, in s."""
        last = dict.fromkeys(range(PARTITIONS), since)
        gaps = dict.fromkeys(range(PARTITIONS), 0.0)
        ends = [Ack(until, partition, "") for partition in last]
        for ack in [*self.acks(), *ends]:
            if since < ack.t <= until and not ack.error:
                gaps[ack.partition] = max(gaps[ack.partition], ack.t - last[ack.partition])
                last[ack.partition] = ack.t
        return gaps

    def await_acks(self, within_s: float) -> None:
        """Until each partition has taken one more record."""
        now = time.monotonic()

        def all_written() -> bool:
            return {ack.partition for ack in self.acks() if ack.t > now and not ack.error} == set(
                range(PARTITIONS)
            )

        self._cluster.until(all_written, within_s, lambda: f"acknowledged: {self.acks()[-10:]}")


async def _create(bootstrap: str) -> None:
    async with Cluster(bootstrap) as cluster:
        known = (await cluster.refresh(None)).topics
        if PROBE not in {topic.name for topic in known}:
            await Admin(cluster).create_topic(PROBE, partitions=PARTITIONS, replication_factor=3)


def delete_topics(brokers: ChaosCluster, prefix: str) -> None:
    """Delete the topics that an earlier run has left."""

    async def delete() -> None:
        async with Cluster(brokers.bootstrap_servers) as cluster:
            for topic in (await cluster.refresh(None)).topics:
                if topic.name is not None and topic.name.startswith(prefix):
                    await Admin(cluster).delete_topic(topic.name)

    asyncio.run(delete())
