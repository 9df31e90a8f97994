"""The bench of the matrix: three brokers, drivers, and the queries of a cell with their verdict."""

import json
import os
import shutil
import signal
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from barnabas.client.blocking import ClientLoop
from barnabas.client.transaction_admin import TransactionAdmin
from barnabas.testing import Cluster
from tests.pipeline.drivers import DriverDied, DriverProcess, Drivers
from tests.pipeline.standalone import SETTINGS, standalone
from tests.support.kafka.node import Kafka
from tests.support.waiting import until

PARTITIONS = 3
CONFIGS = {
    "transaction.two.phase.commit.enable": "true",
    "transaction.max.timeout.ms": "900000",
}
ADMIN_WITHIN_S = 30.0
_SOON = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
_SWITCHES = {
    "unstable.api.versions.enable": "true",
    "transaction.two.phase.commit.enable": "true",
}
KAFKAS = {
    "older": (_SOON, {"transaction.version": 1}),
    "newer": (_SOON, {"transaction.version": 2}),
    "two-phase": (_SOON | _SWITCHES, {"transaction.version": 2}),
}
"""The properties and features of Apache Kafka by protocol; the last has no timeouts (KIP-939)."""


class Evidence:
    """The facts that show that a cell's faults have struck."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def saw(self, holds: object, what: str) -> None:
        """Note a fact; AssertionError if it does not hold."""
        assert holds, f"the fault did not strike: {what}"
        self.seen.append(what)


class Bench:
    """The brokers and drivers of a run."""

    def __init__(self, folder: Path, cluster: Cluster, drivers: Drivers) -> None:
        self.folder = folder
        self.cluster = cluster
        self.drivers = drivers
        self.ending = ExitStack()
        """The programs that end with the run."""
        self._kafkas: dict[str, str] = {}

    def kafka(self, protocol: str) -> str:
        """Return the servers of an Apache Kafka, one node, that speaks a protocol."""
        if protocol not in self._kafkas:
            properties, features = KAFKAS[protocol]
            folder = self.folder / f"kafka-{protocol}"
            kafka = Kafka(folder, properties=properties, features=features)
            self._kafkas[protocol] = self.ending.enter_context(kafka).bootstrap_servers
        return self._kafkas[protocol]

    @cached_property
    def on_executors(self) -> Drivers:
        """Drivers whose tasks run on executors, which are processes with addresses of their own."""
        master = self.ending.enter_context(standalone(self.folder / "standalone"))
        drivers = Drivers(self.folder / "drivers-of-executors", master, SETTINGS)
        self.ending.callback(drivers.kill_all)
        return drivers

    @property
    def servers(self) -> str:
        """The bootstrap servers."""
        return self.cluster.bootstrap_servers


class Fault:
    """A fault of a query, which strikes once."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self._path = folder / name

    @property
    def has_struck(self) -> bool:
        """Whether the fault has struck."""
        return self._path.exists()

    def wait(self) -> int:
        """Wait until it has struck, and return the process that it has struck."""
        until(lambda: self.has_struck and self._path.read_text(), lambda: f"{self.name}: no strike")
        return int(self._path.read_text())

    def go(self) -> None:
        """Let a process go on that waits."""
        self._path.with_name(f"{self.name}.go").touch()

    def resume(self) -> None:
        """Let a process go on that was stopped."""
        os.kill(self.wait(), signal.SIGCONT)


class Stream:
    """A streaming query of a cell: its input files, its checkpoint and its output topic."""

    def __init__(
        self,
        bench: Bench,
        name: str,
        *,
        sink_id: str | None = None,
        servers: str | None = None,
        **options: str,
    ) -> None:
        """`servers` are those of another cluster than the bench's; `options` are of each run."""
        self.bench = bench
        self.servers = servers or bench.servers
        self.options = options
        self.name = name
        self.sink_id = sink_id or name
        self.topic = f"{name}-out"
        self.folder = bench.folder / name
        self.input = self.folder / "input"
        self.checkpoint = self.folder / "checkpoint"
        self.input.mkdir(parents=True)
        self.partitions = PARTITIONS
        self.values: list[str] = []
        self._files = 0
        self._faults: list[dict[str, Any]] = []
        self._write_faults()
        self._admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        for done in self._admin.create_topics([NewTopic(self.topic, PARTITIONS)]).values():
            done.result(ADMIN_WITHIN_S)

    def add(self, files: int = 1, rows: int = 20) -> None:
        """Add input: each file is a batch."""
        for _ in range(files):
            values = [f"{self._files}-{row}" for row in range(rows)]
            path = self.input / f"{self._files:06}"
            temporary = self.folder / "next"
            temporary.write_text("".join(f"{value}\n" for value in values))
            # Spark reads files in the order of their times.
            os.utime(temporary, (self._files, self._files))
            temporary.rename(path)
            self.values += values
            self._files += 1

    def grow(self, partitions: int) -> None:
        """Add partitions to the output."""
        wanted = [NewPartitions(self.topic, partitions)]
        for done in self._admin.create_partitions(wanted).values():
            done.result(ADMIN_WITHIN_S)
        self.partitions = partitions

    def fault(self, site: str, when: str, action: str, **facts: object) -> Fault:
        """Add a fault; `facts` are the batch, the task, the attempt, the callback, the driver."""
        name = f"fault-{len(self._faults)}"
        self._faults.append(
            {"name": name, "site": site, "when": when, "action": action, "facts": facts}
        )
        self._write_faults()
        return Fault(self.folder, name)

    def start(self, driver: DriverProcess, *, tasks: int = 3, **options: str) -> None:
        """Start the query over the files that are there."""
        error = driver.order("start", **self.order(tasks=tasks, **options))
        assert error is None, error

    def order(self, *, tasks: int = 3, **options: str) -> dict[str, Any]:
        """Return the details of the order to start the query."""
        return {
            "query": self.name,
            "input": str(self.input),
            "checkpoint": str(self.checkpoint),
            "folder": str(self.folder),
            "tasks": tasks,
            "options": {
                "kafka.bootstrap.servers": self.servers,
                "topic": self.topic,
                "sinkId": self.sink_id,
                **self.options,
                **options,
            },
        }

    def run(self, driver: DriverProcess, *, tasks: int = 3, **options: str) -> str | None:
        """Run the query until no file is left; return its error. Raises DriverDied."""
        self.start(driver, tasks=tasks, **options)
        return driver.order("await", query=self.name)

    def run_well(self, driver: DriverProcess, *, tasks: int = 3, **options: str) -> None:
        """Run the query until no file is left, without an error."""
        error = self.run(driver, tasks=tasks, **options)
        assert error is None, error

    def run_until_killed(self, driver: DriverProcess, *, tasks: int = 3, **options: str) -> bool:
        """Run the query; return whether its driver was killed meanwhile."""
        try:
            self.run(driver, tasks=tasks, **options)
        except DriverDied:
            driver.kill()
            return True
        return False

    def copy_checkpoint(self, to: str) -> Path:
        """Copy the checkpoint as it is now."""
        target = self.folder / to
        shutil.copytree(self.checkpoint, target)
        return target

    def problems(self, *, expected: Sequence[str] | None = None) -> list[str]:
        """Return what is wrong with the output: values lost, twice or unknown; what is open."""
        wanted = Counter(self.values if expected is None else expected)
        found = Counter(read_committed(self.servers, self.topic, self.partitions))
        told = []
        for word, difference in (("lost", wanted - found), ("too many", found - wanted)):
            if difference:
                some = ", ".join(sorted(difference)[:5])
                told.append(f"{sum(difference.values())} {word}: {some}")
        return told + [f"open: {each}" for each in self.open_transactions()]

    def open_transactions(self) -> list[str]:
        """Return the transactions of the sink that are not ended."""
        loop = ClientLoop.of_process()
        admin = TransactionAdmin(loop.cluster(self.servers))
        states = ["Ongoing", "PrepareCommit", "PrepareAbort"]
        rows = loop.run(admin.transactions(states=states))
        own = f"{self.sink_id}."
        return [each.transactional_id for each in rows if each.transactional_id.startswith(own)]

    def _write_faults(self) -> None:
        temporary = self.folder / "faults.new"
        temporary.write_text(json.dumps(self._faults))
        temporary.rename(self.folder / "faults.json")


def read_committed(servers: str, topic: str, partitions: int) -> list[str]:
    """Return the values of a topic as another family's read_committed consumer sees them."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(partitions)])
        ended: set[int] = set()
        values: list[str] = []
        give_up = time.monotonic() + 60
        while len(ended) < partitions:
            assert time.monotonic() < give_up, f"{topic} cannot be read to its end"
            for each in consumer.consume(1000, 0.2):
                if each.error() is None:
                    values.append(each.value().decode())
                elif each.error().name() == "_PARTITION_EOF":
                    ended.add(each.partition())
        return values
    finally:
        consumer.close()
