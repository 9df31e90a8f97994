"""The load during faults: `barnabas verify eos`, and for each partition of another topic a writer,
which shows how long no write was possible."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from tests.chaos.cluster import ChaosCluster
from tests.support.brokers.cluster import ProcessCluster
from tests.support.brokers.process import ROOT

PROBE: Final = "probe"
PARTITIONS: Final = 6
WARM: Final = 200
"""Operations that went well before a fault strikes."""
_WARM_WITHIN_S: Final = 60.0
_JUDGED_WITHIN_S: Final = 300.0


class Ack(NamedTuple):
    """A record of the probe's, when its answer came."""

    t: float
    partition: int
    error: str


class Checker:
    """A context manager around one run of `barnabas verify eos`, with further options."""

    def __init__(self, cluster: ProcessCluster, directory: Path, *words: str) -> None:
        directory.mkdir(parents=True)
        self._cluster = cluster
        self.directory = directory
        self.history = directory / "history"
        self._verdict = directory / "verdict"
        self._words = [*words, "--history", str(self.history)]
        self._running: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._running:
            process.kill()
            process.wait()

    def start(self) -> None:
        """Start the load, and return when it is warm."""
        at = self._cluster.bootstrap_servers
        words = ["barnabas", "verify", "eos", "-b", at, "-d", "7200", "--keep", "--json"]
        self.run([*words, *self._words], self._verdict)
        self._cluster.until(lambda: self._count(b'"type":"ok"') >= WARM, _WARM_WITHIN_S, self._why)

    def run(self, words: Sequence[str], to: Path) -> None:
        """Run a module beside the load, with its output in a file."""
        with to.open("wb") as output, to.with_suffix(".err").open("wb") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", *words],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdout=output,
                stderr=errors,
            )
        self._running.append(process)

    def _why(self) -> str:
        return (
            f"{self.ended()} transactions are over\n{self._verdict.with_suffix('.err').read_text()}"
        )

    def ended(self) -> int:
        """Transactions that are surely over, so far."""
        return self._count(b'"f":"end","type":"ok"')

    def _count(self, what: bytes) -> int:
        return self.history.read_bytes().count(what) if self.history.exists() else 0

    def judge(self) -> dict[str, Any]:
        """End the load; the checker's verdict, as `barnabas verify eos --json` prints it."""
        checker, *others = self._running
        checker.send_signal(signal.SIGINT)
        checker.wait(_JUDGED_WITHIN_S)
        for other in others:
            other.terminate()
            other.wait(_JUDGED_WITHIN_S)
        try:
            verdict: dict[str, Any] = json.loads(self._verdict.read_text())
        except ValueError:
            raise AssertionError(self._verdict.with_suffix(".err").read_text()[-4000:]) from None
        return verdict


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
