"""One run of the checker against one broker process, correct or with a fault."""

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from io import StringIO
from pathlib import Path
from typing import Final, NamedTuple
from unittest.mock import patch

from barnabas.verify import runner
from barnabas.verify.history import read_history
from barnabas.verify.judge import Verdict, judge
from barnabas.verify.options import BOTH, NEWER, OLDER, Options
from barnabas.verify.wire.recorder import Recorder
from tests.support.brokers.process import BrokerProcess

KEYS: Final = {
    "transaction.state.log.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "log.cleaner.backoff.ms": "50",
    "log.cleaner.threads": "1",
}

DEATHS_WITHIN_S: Final = 60.0
"""Seconds after the duration in which the broker must have died as often as it shall."""
STUCK_AFTER_S: Final = 10.0
"""The same for a broker with a fault, which may refuse all writes, and would never die. Operations
are retried as long."""
SWEEP_S: Final = 5.0
"""Seconds in which a broker with a fault has to abort a transaction whose time is over: by its
keys it looks for them ten times a second, and one that hangs never ends."""
LOAD_AFTER_DEATH_S: Final = 0.5
"""Seconds of load on a broker that has come back from its last death."""


@dataclass(frozen=True)
class Hunt:
    """The conditions under which a fault is looked for."""

    workload: str = "queue"
    duration: float = 1.5
    """The load lasts at least so many seconds, and until the last death has been survived."""
    protocol: str = BOTH
    deaths: int = 0
    """The number of crashes of the broker, each after a random number of appends."""
    appends: tuple[int, int] = (200, 600)
    delayed_ends: bool = False
    partitions: int = 4
    timeout: float = 2.0
    """The transaction timeout in s."""
    keys: dict[str, str] = field(default_factory=dict)


class Result(NamedTuple):
    """The result of a run."""

    verdict: Verdict
    problems: Mapping[str, int]
    injections: int = 0
    """The number of faults that were injected into a cluster."""

    @property
    def names(self) -> set[str]:
        return {anomaly.name for anomaly in self.verdict.anomalies}


HUNTS: Final = {
    "unverified": Hunt(protocol=OLDER, duration=3),
    "marker_refused_again": Hunt(protocol=NEWER, deaths=4),
    "endless_epochs": Hunt(protocol=NEWER),
    "spent_epochs": Hunt(workload="hijack", protocol=OLDER, duration=5),
    "late_offsets": Hunt(workload="pipeline"),
    "forgetful_coordinator": Hunt(deaths=2),
    "window_of_one": Hunt(workload="idempotent", deaths=4, duration=3, appends=(100, 300)),
    "forgotten_sequences": Hunt(deaths=4),
    "short_memory": Hunt(
        workload="idempotent",
        duration=5,
        keys={"producer.id.expiration.check.interval.ms": "50"},
    ),
    "inclusive_last_stable_offset": Hunt(),
    "short_aborted_index": Hunt(),
    "hasty_coordinator": Hunt(workload="pipeline", deaths=2),
    "hasty_metadata": Hunt(deaths=2),
    "reused_buffer": Hunt(protocol=NEWER),
    "expired_offsets": Hunt(workload="pipeline", deaths=2),
    "aborted_records_compact": Hunt(workload="compacted"),
    "skipped_marker": Hunt(),
    "offsets_of_aborted": Hunt(workload="pipeline"),
    "unfenced": Hunt(workload="hijack"),
    "revived_ids": Hunt(
        workload="hijack",
        duration=6,
        timeout=0.5,
        keys={
            "transaction.max.timeout.ms": "500",
            "transactional.id.expiration.ms": "600",
            "transaction.remove.expired.transaction.cleanup.interval.ms": "50",
        },
    ),
    "unguarded_connections": Hunt(
        protocol=OLDER,
        delayed_ends=True,
        keys={"transaction.fence.older.connections": "false"},
    ),
}
"""By mutant; a fault that is a key of the broker has no patch."""


def hunt(how: Hunt, directory: Path, seed: int, mutant: str = "") -> Result:
    """Run the checker; a mutant without a patch is a broker with other keys."""
    keys = {**KEYS, **how.keys}
    if mutant:
        keys["mutant"] = mutant
    within = STUCK_AFTER_S if mutant else DEATHS_WITHIN_S
    options = Options(
        bootstrap="",
        workload=how.workload,
        duration=how.duration + within,
        seed=seed,
        partitions=how.partitions,
        protocol=how.protocol,
        transaction_timeout=how.timeout,
        delayed_ends=how.delayed_ends,
        keep=True,
    )
    directory.mkdir(parents=True, exist_ok=True)
    lives = directory / "die"
    if how.deaths:
        lives.write_text("{} {}".format(*how.appends))
    with BrokerProcess(
        directory, program="tests.integration.adversary.mutant_broker", **keys
    ) as broker:
        stop = threading.Event()
        restarter = threading.Thread(
            target=_restart_after_crashes, args=(broker, how.deaths, lives, stop)
        )
        restarter.start()
        try:
            file = StringIO()
            where = replace(options, bootstrap=broker.bootstrap_servers)
            with soon_given_up() if mutant else nullcontext():
                problems = asyncio.run(_run(where, file, how.duration, restarter, within))
        finally:
            stop.set()
            restarter.join()
    file.seek(0)
    return Result(judge(read_history(file)), problems)


@contextmanager
def soon_given_up() -> Iterator[None]:
    """Wait less long for transactions that hang: at the end, and for their next InitProducerId."""
    defaults = Recorder.__init__.__kwdefaults__
    with patch.object(runner, "SWEEP", SWEEP_S), patch.dict(defaults, patience=STUCK_AFTER_S):
        yield


async def _run(
    options: Options,
    file: StringIO,
    duration: float,
    restarter: threading.Thread,
    within: float,
) -> Mapping[str, int]:
    """Run the load until its duration is over and the broker has died as often as it must."""
    enough = asyncio.Event()

    async def end() -> None:
        await asyncio.sleep(duration)
        if restarter.is_alive():
            await asyncio.to_thread(restarter.join, within)
            await asyncio.sleep(LOAD_AFTER_DEATH_S)
        enough.set()

    ends = asyncio.create_task(end())
    try:
        return await runner.run(options, file, enough=enough)
    finally:
        ends.cancel()


def _restart_after_crashes(
    broker: BrokerProcess, deaths: int, lives: Path, stop: threading.Event
) -> None:
    """Restart the broker each time it has crashed; the last run is a long one."""
    while deaths and not stop.is_set():
        if not broker.has_ended(0.05):
            continue
        deaths -= 1
        if not deaths:
            lives.unlink()
        broker.kill()
        broker.start()


RUNS = 30
"""Every fault must be found within that many runs."""


TORN_APART = {
    "G1a",
    "hanging-transaction",
    "lost-write",
    "precommitted-read",
    "torn",
    "undecided-transaction",
    "unjust-refusal",
    "unseen",
}
"""A transaction that has lost a marker shows in any of these ways, at random."""
