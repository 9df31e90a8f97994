"""The bench of the matrix: three brokers, drivers, and the queries of a cell with their verdict."""

import json
import os
import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from barnabas.client.blocking import ClientLoop
from barnabas.client.transaction_admin import TransactionAdmin
from barnabas.pipeline.sink.protocol import is_task_id
from barnabas.testing import Cluster
from tests.pipeline.connect import ConnectServer
from tests.pipeline.drivers import ANSWER_WITHIN_S, DriverDied, DriverProcess, Drivers
from tests.pipeline.standalone import SETTINGS, standalone
from tests.support.kafka.jars import POM, ZOOKEEPER_POM
from tests.support.kafka.node import Kafka
from tests.support.waiting import until

MASTER = "local[2,4]"
"""Two cores; a task is tried four times, as in a cluster."""
PARTITIONS = 3
KEYS = 4
"""The keys of a state."""
CONFIGS = {
    "transaction.two.phase.commit.enable": "true",
    "transaction.max.timeout.ms": "900000",
}
ADMIN_WITHIN_S = 30.0
OPEN_STATES = {"Ongoing", "PrepareCommit", "PrepareAbort"}
_SOON = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
_SWITCHES = {
    "unstable.api.versions.enable": "true",
    "transaction.two.phase.commit.enable": "true",
}
KAFKAS = {
    "older": (_SOON, {"transaction.version": 1}, POM),
    "newer": (_SOON, {"transaction.version": 2}, POM),
    "two-phase": (_SOON | _SWITCHES, {"transaction.version": 2}, POM),
    "3.9": (_SOON, {}, ZOOKEEPER_POM),
}
"""The properties, features and jars of Apache Kafka by protocol.

Transactions of tasks have no timeout with "two-phase" (KIP-939). "3.9" is that release with KRaft.
"""


class Evidence:
    """The facts that show that a cell's faults have struck."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def saw(self, holds: object, what: str, *, error: str = "") -> None:
        """Note a fact; AssertionError, with the error of the query, if it does not hold."""
        assert holds, f"the fault did not strike: {what} {error}".rstrip()
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
            properties, features, pom = KAFKAS[protocol]
            folder = self.folder / f"kafka-{protocol}"
            kafka = Kafka(folder, properties=properties, features=features, pom=pom)
            self._kafkas[protocol] = self.ending.enter_context(kafka).bootstrap_servers
        return self._kafkas[protocol]

    @cached_property
    def on_executors(self) -> Drivers:
        """Drivers whose tasks run on executors, which are processes with addresses of their own."""
        master = self.ending.enter_context(standalone(self.folder / "standalone"))
        drivers = Drivers(self.folder / "drivers-of-executors", master, SETTINGS)
        self.ending.callback(drivers.kill_all)
        return drivers

    @cached_property
    def connect_server(self) -> ConnectServer:
        """A server of Spark Connect."""
        server = ConnectServer(self.folder / "connect", master=MASTER)
        self.ending.callback(server.kill)
        server.start()
        return server

    @cached_property
    def clients(self) -> Drivers:
        """Clients of the Spark Connect server."""
        clients = Drivers(self.folder / "clients", self.connect_server.address)
        self.ending.callback(clients.kill_all)
        return clients

    def kill_drivers(self) -> None:
        """Kill all drivers: one in an unknown state would spoil the next cell."""
        for name in ("drivers", "on_executors", "clients"):
            if name in vars(self):
                vars(self)[name].kill_all()

    @property
    def servers(self) -> str:
        """The bootstrap servers."""
        return self.cluster.bootstrap_servers


class Fault:
    """A fault of a query, which strikes once."""

    def __init__(self, stream: "Stream", name: str) -> None:
        self.name = name
        self._stream = stream
        self._path = stream.folder / name

    @property
    def has_struck(self) -> bool:
        """Whether the fault has struck."""
        return self._path.exists()

    def wait(self) -> int:
        """Wait until it has struck, and return the process that it has struck.

        If it cannot, AssertionError with the error of the query and the end of its driver's log.
        """
        error = self.struck_or_error()
        assert error is None, f"{self.name}: no strike\n{self._log()}\nThe query ended: {error}"
        return int(self._path.read_text())

    def struck_or_error(self) -> str | None:
        """Wait until it has struck, and return None; or the error of the query that has ended."""
        errors: list[str] = []

        def has_struck() -> bool:
            return self.has_struck and bool(self._path.read_text())

        def is_over() -> bool:
            if not has_struck() and (error := self._stream.error()) is not None:
                errors.append(error)
            return bool(errors) or has_struck()

        until(is_over, lambda: f"{self.name}: no strike\n{self._log()}", within_s=ANSWER_WITHIN_S)
        return None if has_struck() else errors[0]

    def _log(self) -> str:
        return "" if self._stream.driver is None else self._stream.driver.log()

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
        topics: int = 1,
        is_join: bool = False,
        for_each: bool = False,
        from_topic: bool = False,
        counts: bool = False,
        **options: str,
    ) -> None:
        """`servers` are those of another cluster than the bench's; `options` are of each run.

        `for_each` writes by foreachBatch. With several topics each value goes to all of them. A
        join is of two streams of files: the second has the values of a batch in the next one, so
        that they come from the state. `from_topic` reads a topic by our source in place of files,
        and `counts` numbers the records of each key there, by a state that Python keeps.
        """
        self.bench = bench
        self.servers = servers or bench.servers
        self.options = options
        self.name = name
        self.sink_id = sink_id or name
        self.topics = [f"{name}-out{number or ''}" for number in range(topics)]
        self.topic = self.topics[0]
        self.is_join = is_join
        self.for_each = for_each
        self.counts: Counter[str] | None = Counter() if counts else None
        self.records = f"{name}-in" if from_topic or counts else None
        """The topic of the input."""
        self.folder = bench.folder / name
        self.input = self.folder / "input"
        self.checkpoint = self.folder / "checkpoint"
        for each in (self.input, self.folder / "matches"):
            each.mkdir(parents=True)
        if is_join:
            (self.folder / "matches" / "000000").touch()
        self.partitions = PARTITIONS
        self.values: list[str] = []
        self.driver: DriverProcess | None = None
        """The driver that has started the query last."""
        self._files = 0
        self._faults: list[dict[str, Any]] = []
        self._write_faults()
        self._admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        wanted = [NewTopic(topic, PARTITIONS) for topic in self.topics]
        if self.records is not None:
            wanted.append(NewTopic(self.records, 1))
        for done in self._admin.create_topics(wanted).values():
            done.result(ADMIN_WITHIN_S)

    def add(self, files: int = 1, rows: int = 20) -> None:
        """Add input: each file, and each 20 records of a topic, is a batch."""
        for _ in range(files):
            values = [f"{self._files}-{row}" for row in range(rows)]
            if self.records is not None:
                values = self._produce(values)
            else:
                text = "".join(f"{value}\n" for value in values)
                self._put(self.input, self._files, text)
                if self.is_join:
                    self._put(self.folder / "matches", self._files + 1, text)
            self.values += values
            self._files += 1

    def _produce(self, values: Sequence[str]) -> list[str]:
        """Write records to the topic of the input; return the values of the output."""
        assert self.records is not None
        producer = Producer({"bootstrap.servers": self.servers, "log_level": 0})
        found = []
        for number, value in enumerate(values):
            key = value if self.counts is None else f"key-{number % KEYS}"
            producer.produce(self.records, value, key)
            if self.counts is not None:
                self.counts[key] += 1
                value = f"{key}={self.counts[key]}"
            found.append(value)
        assert producer.flush(ADMIN_WITHIN_S) == 0
        return found

    def _put(self, folder: Path, number: int, text: str) -> None:
        temporary = self.folder / "next"
        temporary.write_text(text)
        # Spark reads files in the order of their times.
        os.utime(temporary, (number, number))
        temporary.rename(folder / f"{number:06}")

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
        return Fault(self, name)

    def start(self, driver: DriverProcess, *, tasks: int = 3, **options: str) -> None:
        """Start the query over the files that are there."""
        self.driver = driver
        error = driver.order("start", **self.order(tasks=tasks, **options))
        assert error is None, error

    def error(self) -> str | None:
        """Return the error of the query, "no error" if it ended without one; None if it runs."""
        assert self.driver is not None
        return self.driver.order("look", query=self.name)

    def order(self, *, tasks: int = 3, **options: str) -> dict[str, Any]:
        """Return the details of the order to start the query."""
        return {
            "query": self.name,
            "input": str(self.input),
            "matches": str(self.folder / "matches") if self.is_join else None,
            "topics": self.topics,
            "checkpoint": str(self.checkpoint),
            "folder": str(self.folder),
            "tasks": tasks,
            "for_each": self.for_each,
            "records": self.records,
            "counts": self.counts is not None,
            "options": {
                "kafka.bootstrap.servers": self.servers,
                **({"topic": self.topic} if len(self.topics) == 1 else {}),
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

    def has_finished(self, batch: int) -> bool:
        """Return whether the checkpoint has a batch as finished."""
        return (self.checkpoint / "commits" / str(batch)).exists()

    def copy_checkpoint(self, to: str) -> Path:
        """Copy the checkpoint as it is now."""
        target = self.folder / to
        shutil.copytree(self.checkpoint, target)
        return target

    def problems(self, *, expected: Sequence[str] | None = None) -> list[str]:
        """Return what is wrong with the output: values lost, twice or unknown; what is open."""
        wanted = Counter(self.values if expected is None else expected)
        told = []
        for topic in self.topics:
            found = Counter(read_committed(self.servers, topic, self.partitions))
            for word, difference in (("lost", wanted - found), ("too many", found - wanted)):
                if difference:
                    some = ", ".join(sorted(difference)[:5])
                    told.append(f"{topic}: {sum(difference.values())} {word}: {some}")
        states = self._states()
        if not self._has_tasks(states):
            told.append("nothing shows that no transaction is open: no coordinator knows a task")
        return told + [f"open: {each}" for each in _open(states)]

    def open_transactions(self) -> list[str]:
        """Return the transactions of the sink that are not ended."""
        return _open(self._states())

    def have_ended(self) -> bool:
        """Return whether the coordinators know the sink's tasks, and none has a transaction."""
        states = self._states()
        return self._has_tasks(states) and not _open(states)

    def _states(self) -> dict[str, str]:
        """Return the states of the sink's transactional ids at their coordinators."""
        loop = ClientLoop.of_process()
        rows = loop.run(TransactionAdmin(loop.cluster(self.servers)).transactions())
        own = f"{self.sink_id}."
        return {
            each.transactional_id: each.state
            for each in rows
            if each.transactional_id.startswith(own)
        }

    def _has_tasks(self, states: Iterable[str]) -> bool:
        return any(is_task_id(self.sink_id, each) for each in states)

    def _write_faults(self) -> None:
        temporary = self.folder / "faults.new"
        temporary.write_text(json.dumps(self._faults))
        temporary.rename(self.folder / "faults.json")


def _open(states: Mapping[str, str]) -> list[str]:
    """Return the ids whose transactions are ongoing, or decided and not complete."""
    return [each for each, state in states.items() if state in OPEN_STATES]


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
