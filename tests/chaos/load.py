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
from typing import Any, Final, NamedTuple

from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from tests.chaos.cluster import ChaosCluster
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


class Load:
    """A context manager around one run of the checker."""

    def __init__(
        self,
        cluster: ChaosCluster,
        workload: str,
        directory: Path,
        seed: int,
        *,
        churn: bool = False,
    ) -> None:
        directory.mkdir(parents=True)
        self._cluster = cluster
        self.history = directory / "history"
        self._verdict, self._acks = directory / "verdict", directory / "acks"
        self._words = ["--workload", workload, "--seed", str(seed), "--history", str(self.history)]
        self._words += ["--churn"] if churn else []
        self._running: list[subprocess.Popen[bytes]] = []
        self._checker: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Load":
        asyncio.run(_create(self._cluster.bootstrap_servers))
        at = self._cluster.bootstrap_servers
        words = ["barnabas", "verify", "eos", "-b", at, "-d", "7200", "--keep", "--json"]
        self._checker = self._run([*words, *self._words], self._verdict)
        self._run(["tests.chaos.probe", at, PROBE, str(PARTITIONS)], self._acks)
        self._cluster.until(lambda: self._count(b'"type":"ok"') >= WARM, _WARM_WITHIN_S, self._why)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._running:
            process.kill()
            process.wait()

    def _run(self, words: Sequence[str], to: Path) -> subprocess.Popen[bytes]:
        with to.open("wb") as output, to.with_suffix(".err").open("wb") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", *words],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdout=output,
                stderr=errors,
            )
        self._running.append(process)
        return process

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
        checker, probe = self._running
        checker.send_signal(signal.SIGINT)
        checker.wait(_JUDGED_WITHIN_S)
        probe.terminate()
        probe.wait(_JUDGED_WITHIN_S)
        try:
            verdict: dict[str, Any] = json.loads(self._verdict.read_text())
        except ValueError:
            raise AssertionError(self._verdict.with_suffix(".err").read_text()[-4000:]) from None
        return verdict

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
