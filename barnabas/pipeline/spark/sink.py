"""The sink as Spark calls it: in tasks, and for each batch in a process next to the driver.

The planner process builds a writer for every batch, tasks run copies of it, and a third process
calls `commit` or `abort`. All of them are workers that Spark uses again: what is asked of the
cluster once per process is kept.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import unquote, urlsplit

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from barnabas.client.blocking import ClientLoop
from barnabas.client.cluster import Cluster
from barnabas.pipeline.sink.cluster_port import ClusterPort
from barnabas.pipeline.sink.options import (
    Delivery,
    SinkOptions,
    SinkOptionsError,
    check_columns,
    parse_options,
)
from barnabas.pipeline.sink.planning import SinkPlan, make_plan, partitions_of
from barnabas.pipeline.sink.port import SinkPort
from barnabas.pipeline.sink.protocol import (
    Batch,
    SinkError,
    SinkSettings,
    Winner,
    abort,
    check_owner,
    commit,
)
from barnabas.pipeline.sink.task import SinkProcess, TaskLabel, TaskOutput
from barnabas.pipeline.spark.sink_rows import RowEncoder, gather
from barnabas.pipeline.spark.worker_memory import spare_modules

if TYPE_CHECKING:
    from pyarrow import RecordBatch

T = TypeVar("T")

QUERY_OF_WRITES: Final = "write"
"""The query id of `df.write`, which has no query; its option batchId numbers the writes."""
_BATCH_ID: Final = "streaming.sql.batchId"
_QUERY_ID: Final = "sql.streaming.queryId"
_TAGS: Final = "spark.job.tags"
_REMEMBERED: Final = 100
"""Sinks whose plans a process keeps."""
_OF_CONNECT: Final = "SparkConnect_"
"""The begin of the tag of every job that a server of Spark Connect runs for a client."""


class SinkMessage(WriterCommitMessage):
    """A task's answer: its batch, and its transaction if it has written rows in one."""

    def __init__(self, label: TaskLabel, winner: Winner | None) -> None:
        self.label = label
        self.winner = winner


def plan_sink(
    options: Mapping[str, str], schema: StructType, *, streaming: bool, overwrite: bool
) -> SinkPlan:
    """Check options, columns and the cluster before anything is written.

    Raises SinkOptionsError, or SinkError if the cluster cannot serve the sink. Output mode
    complete writes all rows of a batch, as Spark's own Kafka sink does.
    """
    spare_modules("plan")
    parsed = parse_options(options, streaming=streaming)
    check_columns({each.name: each.dataType.simpleString() for each in schema.fields}, parsed.topic)
    if overwrite and not streaming:
        raise SinkOptionsError("mode overwrite is impossible, a topic only grows: use mode append")
    if parsed.is_transactional and os.environ.get("SPARK_REUSE_WORKER") != "1":
        raise SinkOptionsError(
            "spark.python.worker.reuse=false would use new transactional ids for every task:"
            " set it to true, or choose delivery=at-least-once"
        )
    # A number for each batch would be a plan for each batch, asked and kept.
    asked = parsed.model_copy(update={"batch_number": None})
    plan = _checked_plan(asked, query_of(parsed.checkpoint) if streaming else None)
    return plan._replace(options=parsed)


@lru_cache(_REMEMBERED)
def _checked_plan(options: SinkOptions, query: str | None) -> SinkPlan:
    """Ask the cluster once per process: what it serves, and whose sink it is."""

    async def check(cluster: Cluster) -> SinkPlan:
        plan = await make_plan(cluster, options)
        if options.is_transactional and query is not None:
            port = ClusterPort(cluster, options.sink_id, like=options.topic)
            await check_owner(port, settings_of(plan), query)
        return plan

    return run(options, check)


def settings_of(plan: SinkPlan) -> SinkSettings:
    """Return the settings of the protocol."""
    options = plan.options
    return SinkSettings(
        options.sink_id,
        plan.transaction_timeout_ms,
        options.delivery is Delivery.EXACTLY_ONCE_BOUNDED,
        plan.two_phase_tasks,
        options.take_over_from,
    )


class Driver:
    """The driver's side of a sink: it decides a batch by the protocol."""

    def __init__(self, plan: SinkPlan) -> None:
        self.plan = plan

    def port(self, cluster: Cluster) -> SinkPort:
        """Return the port of the protocol; a test wraps it."""
        return ClusterPort(cluster, self.plan.options.sink_id, like=self.plan.options.topic)

    def commit(self, batch: Batch, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit a batch. Raises SinkError."""
        if self.plan.options.is_transactional:
            winners = [each for each in _winners(batch, messages) if each is not None]
            self._run(lambda port: commit(port, settings_of(self.plan), batch, winners))

    def abort(self, batch: Batch, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Abort a batch; messages of tasks without an answer are None. Raises SinkError."""
        if self.plan.options.is_transactional:
            winners = _winners(batch, messages)
            self._run(lambda port: abort(port, settings_of(self.plan), batch, winners))

    def _run(self, call: Callable[[SinkPort], Coroutine[Any, Any, None]]) -> None:
        run(self.plan.options, lambda cluster: call(self.port(cluster)))


class StreamWriter(DataSourceStreamArrowWriter):
    """The writer of one batch of a streaming query."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver

    def write(self, iterator: "Iterator[RecordBatch]") -> SinkMessage:
        """Write a task's rows, and leave its transaction open."""
        context = _context()
        batch = context.getLocalProperty(_BATCH_ID)
        query = context.getLocalProperty(_QUERY_ID)
        if not batch or not query:
            raise SinkError(
                f"Spark has not passed {_BATCH_ID} and {_QUERY_ID} to the task: use a micro-batch"
                " trigger of PySpark 4.2 or newer"
            )
        return _write(self.driver.plan, _label(context, query, int(batch)), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Commit a batch. Raises SinkError, and Spark calls `abort`."""
        if None in messages:
            # A batch is committed when all tasks have answered. Continuous processing drops the
            # rows of a sink in Python, and commits one epoch after the other.
            raise SinkError(
                "Spark has given its tasks no rows for the sink, as with the trigger continuous:"
                " use trigger(processingTime='0 seconds')"
            )
        self.driver.commit(self._batch(messages, batchId), messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Abort a batch; messages of tasks without an answer are None."""
        self.driver.abort(self._batch(messages, batchId), messages)

    def _batch(self, messages: Sequence[WriterCommitMessage | None], number: int) -> Batch:
        checkpoint = self.driver.plan.options.checkpoint
        query = _query_in(messages) or query_of(checkpoint) or ""
        return Batch(query, number, digest_of(checkpoint, number))


class BatchWriter(DataSourceArrowWriter):
    """The writer of `df.write`: its rows appear together, or not at all.

    It is the batch with the number of the option batchId, so a repeated write changes nothing, and
    a smaller number is refused. Without the option the number is the time in ms. In `foreachBatch`
    it is a batch of that query, with its digest if the option checkpointLocation is given too.
    Through Spark Connect this option alone names the query: tasks are not told of it there.
    """

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        options = driver.plan.options
        given = options.batch_number
        self.number = time.time_ns() // 1_000_000 if given is None else given
        self.query = query_of(options.checkpoint) or QUERY_OF_WRITES

    def write(self, iterator: "Iterator[RecordBatch]") -> SinkMessage:
        """Write a task's rows, and leave its transaction open."""
        options = self.driver.plan.options
        context = _context()
        query = context.getLocalProperty(_QUERY_ID)
        of_connect = _OF_CONNECT in (context.getLocalProperty(_TAGS) or "")
        if options.is_transactional and options.batch_number is None and (query or of_connect):
            also = ". Through Spark Connect every write needs it" if of_connect else ""
            raise SinkError(
                "a repeated batch of foreachBatch would be written again: give the option batchId,"
                f" the second argument of the function{also}"
            )
        label = _label(context, query or self.query, self.number)
        return _write(self.driver.plan, label, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the rows of all tasks. Raises SinkError, and Spark calls `abort`."""
        self.driver.commit(self._batch(messages), messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Abort the rows of all tasks."""
        self.driver.abort(self._batch(messages), messages)

    def _batch(self, messages: Sequence[WriterCommitMessage | None]) -> Batch:
        digest = digest_of(self.driver.plan.options.checkpoint, self.number)
        return Batch(_query_in(messages) or self.query, self.number, digest)


def _query_in(messages: Sequence[WriterCommitMessage | None]) -> str | None:
    """Return the query of a batch's tasks; None if no task has answered."""
    queries = (each.label.query_id for each in messages if isinstance(each, SinkMessage))
    return next(queries, None)


def run(options: SinkOptions, call: Callable[[Cluster], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine of the client on the loop of this process."""
    loop, cluster = _client(options)
    return loop.run(call(cluster))


def _client(options: SinkOptions) -> tuple[ClientLoop, Cluster]:
    loop = ClientLoop.of_process()
    return loop, loop.cluster(
        options.bootstrap_servers,
        client_id=options.client_id,
        timeout=options.api_timeout_ms / 1000,
        request_timeout=options.request_timeout_ms / 1000,
        security=options.security.keys,
        check_cluster=options.check_cluster,
    )


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise SinkError("the sink's rows can only be written by a task of Spark")
    return context


def _label(context: TaskContext, query: str, batch: int) -> TaskLabel:
    return TaskLabel(query, batch, context.partitionId(), context.attemptNumber())


def _write(plan: SinkPlan, label: TaskLabel, batches: "Iterator[RecordBatch]") -> SinkMessage:
    spare_modules("write")
    options = plan.options
    loop, cluster = _client(options)
    ask = partial(partitions_of, cluster)
    # Asked while Spark reads the first rows.
    count = None if options.topic is None else loop.submit(ask(options.topic))
    encoder = RowEncoder(
        options, label, lambda topic: loop.run(ask(topic)) if count is None else count.result()
    )
    output = TaskOutput(cluster, plan, SinkProcess.current().ids(options), label)
    try:
        for batch in gather(batches):
            loop.run(output.send(encoder.encode(batch)))
        return SinkMessage(label, loop.run(output.finish()))
    except BaseException:
        loop.run(output.abort())
        raise


def _winners(batch: Batch, messages: Sequence[WriterCommitMessage | None]) -> list[Winner | None]:
    """Return the transactions of a batch's tasks. Raises SinkError for a message of another."""
    winners: list[Winner | None] = []
    for each in messages:
        if not isinstance(each, SinkMessage):
            winners.append(None)
            continue
        if (each.label.query_id, each.label.batch) != (batch.query_id, batch.number):
            raise SinkError(f"{each.label} has answered for batch {batch.number}: start again")
        winners.append(each.winner)
    return winners


# -- the checkpoint ------------------------------------------------------------------------------


def digest_of(checkpoint: str | None, number: int) -> str | None:
    """Return a digest of a batch's offsets in the checkpoint; None if they cannot be read here."""
    data = _read(checkpoint, f"offsets/{number}")
    return None if data is None else hashlib.sha256(data).hexdigest()


def query_of(checkpoint: str | None) -> str | None:
    """Return the query's id, as the checkpoint has it; None if it cannot be read here."""
    data = _read(checkpoint, "metadata")
    try:
        return None if data is None else str(json.loads(data)["id"])
    except (ValueError, KeyError, TypeError):
        return None


def _read(checkpoint: str | None, name: str) -> bytes | None:
    if checkpoint is None:
        return None
    parts = urlsplit(checkpoint)
    if parts.scheme not in ("", "file"):
        return None
    try:
        return (Path(unquote(parts.path) if parts.scheme else checkpoint) / name).read_bytes()
    except OSError:
        return None
