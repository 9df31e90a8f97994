"""The sink with faults, as the drivers of the matrix register it: workers of Spark import it.

A fault names a site, and strikes there once. Sites are the methods of the protocol's port, before
and after their call, and the callbacks of Spark. The file of a fault that has struck is the
evidence.
"""

import asyncio
import inspect
import json
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from pathlib import Path
from typing import Any, NamedTuple

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

from barnabas.client.cluster import Cluster
from barnabas.pipeline.sink.planning import SinkPlan
from barnabas.pipeline.sink.port import SinkPort
from barnabas.pipeline.sink.protocol import Batch
from barnabas.pipeline.spark.format import BarnabasDataSource
from barnabas.pipeline.spark.sink import BatchWriter, Driver, SinkMessage, StreamWriter
from barnabas.protocol.errors import ErrorCode, KafkaError

FAULTS = "faults.json"


class InjectedError(Exception):
    """The exception of a fault."""


class Faults(NamedTuple):
    """The faults of one query: a folder that the matrix, drivers and workers share."""

    folder: str
    driver: str
    """The name of the driver, which a fault may ask for."""
    processes: str
    """The process ids of the driver's Python and its JVM."""

    def strike(self, site: str, when: str, **facts: object) -> bool:
        """Let the faults of a site strike; return whether the answer of the call is to be lost."""
        lost = False
        for fault in json.loads((Path(self.folder) / FAULTS).read_text()):
            wanted = {**fault["facts"], "site": site, "when": when}
            known = {**facts, "site": fault["site"], "when": fault["when"], "driver": self.driver}
            if all(known.get(name) == value for name, value in wanted.items()) and self._fire(
                fault["name"]
            ):
                lost = self._act(fault) or lost
        return lost

    def _fire(self, name: str) -> bool:
        """Return whether the fault has not struck yet, and leave the evidence."""
        path = Path(self.folder) / name
        try:
            with path.open("x") as evidence:
                evidence.write(str(os.getpid()))
        except FileExistsError:
            return False
        return True

    def _act(self, fault: dict[str, Any]) -> bool:
        match fault["action"]:
            case "kill driver":
                for process in map(int, self.processes.split()):
                    os.kill(process, signal.SIGKILL)
                os.kill(os.getpid(), signal.SIGKILL)
            case "kill client":
                for process in map(int, self.processes.split()):
                    os.kill(process, signal.SIGKILL)
            case "kill executor" | "kill server":
                # The worker's parent is the daemon, and the daemon's is the executor.
                os.kill(_parent(os.getppid()), signal.SIGKILL)
                os._exit(1)
            case "exit":
                os._exit(1)
            case "raise":
                raise InjectedError(f"fault {fault['name']}")
            case "stop":
                # Sent to the process, the signal may reach another thread later.
                signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
            case "wait":
                self._wait_for(Path(self.folder) / f"{fault['name']}.go")
            case "lose answer":
                return True
        return False

    def _wait_for(self, go: Path) -> None:
        give_up = time.monotonic() + 120
        while not go.exists():
            assert time.monotonic() < give_up, f"{go} has not come"
            time.sleep(0.02)


def _parent(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


class FaultyPort:
    """The port of the protocol, with faults before and after each of its requests."""

    def __init__(self, port: SinkPort, faults: Faults, facts: dict[str, object]) -> None:
        self._port = port
        self._faults = faults
        self._facts = facts

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._port, name)
        if name == "sleep" or not inspect.iscoroutinefunction(method):
            return method

        async def call(*arguments: Any, **named: Any) -> Any:
            site = _site(name, arguments, named)
            self._strike(site, "before")
            result = await self._called(method(*arguments, **named))
            if self._strike(site, "after"):
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the answer was lost by a fault")
            return result

        return call

    def _strike(self, site: str, when: str) -> bool:
        return self._faults.strike(site, when, **self._facts)

    async def _called(self, answer: Awaitable[Any]) -> Any:
        return await asyncio.ensure_future(answer)


def _site(name: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> str:
    """Return the name of a request; the ends of transactions are named by their outcome."""
    if name == "end":
        ends = arguments[0]
        if not ends:
            return "end nothing"
        return "carry out" if all(each.committed for each in ends) else "abort tasks"
    if name == "end_decision":
        return "decide" if named["committed"] else "drop decision"
    return name


class FaultyDriver(Driver):
    """The driver's side of the sink, with faults."""

    def __init__(self, plan: SinkPlan, faults: Faults) -> None:
        super().__init__(plan)
        self.faults = faults
        self.facts: dict[str, object] = {}

    def port(self, cluster: Cluster) -> SinkPort:
        return FaultyPort(super().port(cluster), self.faults, self.facts)  # type: ignore[return-value]

    def commit(self, batch: Batch, messages: Any) -> None:
        self._around("commit", batch, lambda: super(FaultyDriver, self).commit(batch, messages))

    def abort(self, batch: Batch, messages: Any) -> None:
        self._around("abort", batch, lambda: super(FaultyDriver, self).abort(batch, messages))

    def _around(self, callback: str, batch: Batch, call: Callable[[], None]) -> None:
        self.facts = {"batch": batch.number, "callback": callback}
        self.faults.strike(callback, "before", **self.facts)
        call()
        self.faults.strike(callback, "after", **self.facts)


def _write(
    faults: Faults,
    batch: int,
    rows: Iterator[Any],
    write: Callable[[Iterator[Any]], SinkMessage],
) -> SinkMessage:
    """Write the rows of a task, with faults before, while and after."""
    context = TaskContext.get()
    assert context is not None
    facts = {
        "batch": batch,
        "task": context.partitionId(),
        "attempt": context.attemptNumber(),
        "speculative": context.attemptNumber() > 0,
    }

    def with_faults() -> Iterator[Any]:
        for each in rows:
            yield each
            faults.strike("rows", "after", **facts)

    faults.strike("task", "before", **facts)
    message = write(with_faults())
    faults.strike("task", "after", **facts)
    return message


class FaultyStreamWriter(StreamWriter):
    """The writer of a batch of a stream, with faults in its tasks."""

    def __init__(self, driver: FaultyDriver) -> None:
        super().__init__(driver)
        self.faults = driver.faults

    def write(self, iterator: Iterator[Any]) -> SinkMessage:
        context = TaskContext.get()
        assert context is not None
        batch = int(context.getLocalProperty("streaming.sql.batchId") or -1)
        return _write(self.faults, batch, iterator, super().write)


class FaultyBatchWriter(BatchWriter):
    """The writer of foreachBatch, with faults in its tasks."""

    def __init__(self, driver: FaultyDriver) -> None:
        super().__init__(driver)
        self.faults = driver.faults

    def write(self, iterator: Iterator[Any]) -> SinkMessage:
        return _write(self.faults, self.number, iterator, super().write)


class FaultySink(BarnabasDataSource):
    """The data source that drivers of the matrix register; it takes the options of the faults."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self.faults = Faults(
            options.pop("test.folder"), options.pop("test.driver"), options.pop("test.processes")
        )
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        return "faulty"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        writer = super().streamWriter(schema, overwrite)
        assert isinstance(writer, StreamWriter)
        return FaultyStreamWriter(FaultyDriver(writer.driver.plan, self.faults))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        writer = super().writer(schema, overwrite)
        assert isinstance(writer, BatchWriter)
        return FaultyBatchWriter(FaultyDriver(writer.driver.plan, self.faults))
