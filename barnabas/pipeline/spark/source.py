"""The source as Spark calls it: a batch reader and a stream reader.

Spark calls a reader's plan in one process next to the driver, where a stream's reader lives as long
as its query. A copy of the reader goes to each task, in Python workers that many tasks use. Clients
therefore belong to the process (`ClientLoop.of_process`), and a reader holds its options only,
until its first call.
"""

import logging
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from barnabas.client.blocking import ClientLoop
from barnabas.client.cluster import Cluster
from barnabas.client.connection import BrokerUnreachable
from barnabas.client.groups.offsets import commit_offsets
from barnabas.pipeline.source.offsets import Offsets, from_json, to_json
from barnabas.pipeline.source.option_values import OptionError
from barnabas.pipeline.source.options import NO_END, Fetching, SourceOptions, read_options
from barnabas.pipeline.source.planning import (
    Delay,
    Range,
    available,
    limit,
    plan,
    split,
)
from barnabas.pipeline.source.positions import NO_ID, Positions, created_again
from barnabas.pipeline.source.reading import Losses, RangeReader, fetch_settings
from barnabas.pipeline.spark.worker_memory import spare_modules
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

_LOG = logging.getLogger("barnabas.pipeline")
PROGRESS_TIMEOUT = 5.0
"""Seconds for which the end of a query waits for its last progress to be committed."""

_COLUMNS = (
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
)
_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])


def columns(*, headers: bool) -> StructType:
    """Return the columns of the stock Kafka source."""
    last = [StructField("headers", ArrayType(_HEADER))] if headers else []
    return StructType([*_COLUMNS, *last])


class RangeTask(InputPartition):
    """The work of one task: a range of offsets, and the id of the topic that it was planned for."""

    def __init__(self, wanted: Range, topic_id: bytes) -> None:
        super().__init__(None)
        self.wanted = wanted
        self.topic_id = topic_id


def read_task(options: SourceOptions, task: InputPartition) -> "Iterator[pa.RecordBatch]":
    """Yield the rows of a task as Arrow batches. Raises DataLoss."""
    from barnabas.pipeline.columns.decode import DamagedBatchError, decode

    if not isinstance(task, RangeTask):
        # Spark plans one empty task for a batch without ranges.
        return
    spare_modules("read")
    loop, cluster = _client(options.fetching)
    losses = Losses(fail=options.fail_on_data_loss)
    wanted = task.wanted
    reader = RangeReader(
        cluster, wanted, fetch_settings(options.fetching), losses, topic_id=task.topic_id
    )
    try:
        while not reader.is_at_end and (chunk := loop.run(reader.take())) is not None:
            start: int | None = chunk.start
            while start is not None:
                rows = decode(
                    [chunk.fetched],
                    *wanted.partition,
                    start,
                    wanted.end,
                    headers=options.include_headers,
                    report=losses.report,
                )
                start = None
                try:
                    yield from rows
                except DamagedBatchError as error:
                    losses.report(str(error))
                    start = error.next_offset
    finally:
        if not reader.is_at_end:
            # A process that ends closes its loop before it drops this generator.
            with suppress(RuntimeError):
                loop.run(reader.close())


def _client(fetching: Fetching) -> tuple[ClientLoop, Cluster]:
    """Return this process's loop, and its connections to the cluster."""
    loop = ClientLoop.of_process()
    cluster = loop.cluster(
        fetching.servers,
        client_id=fetching.client_id,
        timeout=fetching.timeout,
        request_timeout=fetching.request_timeout,
        security=fetching.security.keys,
        check_cluster=fetching.check_cluster,
    )
    return loop, cluster


def _tasks(
    options: SourceOptions, ranges: list[Range], topic_ids: Mapping[str, bytes]
) -> list[InputPartition]:
    return [
        RangeTask(each, topic_ids.get(each.partition.topic, NO_ID))
        for each in split(ranges, options.min_partitions, options.max_records)
    ]


def _check_schema(schema: StructType, options: SourceOptions) -> None:
    wanted = columns(headers=options.include_headers).simpleString()
    if schema.simpleString() != wanted:
        raise OptionError(f"the columns are fixed, {wanted}: remove .schema(...)")


class BatchReader(DataSourceReader):
    """The reader of a batch: its ranges are planned once, against the log as it is then."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        self._options = read_options(given, stream=False)
        _check_schema(schema, self._options)

    def partitions(self) -> list[InputPartition]:
        """Return the tasks, in order of topic, partition and offset."""
        options = self._options
        loop, cluster = _client(options.fetching)
        positions = Positions(
            cluster, options.selection, read_committed=options.fetching.read_committed
        )
        losses = Losses(fail=options.fail_on_data_loss)
        start = loop.run(
            positions.start(options.start, error_without_match=options.error_without_match)
        )
        end = loop.run(positions.end(options.end))
        for text in (*start.losses, *end.losses):
            losses.report(text)
        # A partition that is new since the start was looked up belongs to no batch.
        shared = {each: end.offsets[each] for each in start.offsets if each in end.offsets}
        planned = plan(start.offsets, shared, {})
        for text in planned.losses:
            losses.report(text)
        return _tasks(options, planned.ranges, positions.topic_ids)

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """Yield the rows of a task."""
        return read_task(self._options, partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of a stream; its offsets are those of the stock connector."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        self._options = read_options(given, stream=True)
        _check_schema(schema, self._options)
        self._losses = Losses(fail=self._options.fail_on_data_loss)
        self._delay = Delay(self._options.max_delay)
        self._positions: Positions | None = None
        self._progress: _Progress | None = None
        self._topic_ids: dict[str, bytes] = {}
        self._initial: Offsets | None = None
        self._from_end: frozenset[TopicPartition] = frozenset()
        """Partitions whose initial offset is the end of the log, while no batch is planned."""
        self._new: Offsets = {}
        """The first offsets of partitions that were found during the query."""
        self._latest: Offsets = {}
        self._only_available = False
        self._target: Offsets | None = None
        """The end of the whole query, with Trigger.AvailableNow."""

    def initialOffset(self) -> dict[str, Any]:
        """Return the offsets at which a new query begins: the same ones at each call.

        Spark asks again when it plans the first batch.
        """
        if self._initial is None:
            loop, positions = self._ask()
            options = self._options
            found = loop.run(
                positions.start(options.start, error_without_match=options.error_without_match)
            )
            for text in found.losses:
                self._losses.report(text)
            self._initial = found.offsets
            self._from_end = frozenset(found.at_end)
        return to_json(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of a trigger; Spark has no limit of two sides, ours applies both."""
        if self._options.max_offsets is not None:
            return ReadMaxRows(self._options.max_offsets)
        if self._options.min_offsets is not None:
            return ReadMinRows(self._options.min_offsets)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Let the query end at the offsets that the log has at the first trigger."""
        self._only_available = True

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next batch; `start` itself if there is no batch yet."""
        begin = from_json(start)
        self._show_progress(begin)
        latest = self._find_latest(begin)
        end = self._hold_first(begin, self._end(begin, latest, limit))
        if self._options.fail_on_data_loss:
            # A loss ends the query before the checkpoint has this end.
            for text in plan(begin, end, self._first_offsets(end.keys() - begin.keys())).losses:
                self._losses.report(text)
        return start if end == begin else to_json(end)

    def _find_latest(self, begin: Offsets) -> Offsets:
        """Return the ends of all partitions, or those of the query with Trigger.AvailableNow."""
        loop, positions = self._ask()
        latest = self._target
        if latest is None:
            if self._options.end != NO_END and not self._only_available:
                text = "a stream has no end: use the trigger availableNow, or remove the option"
                raise OptionError(f"the options of an end need a trigger that ends: {text}")
            latest = loop.run(positions.latest_from(begin))
            for topic in created_again(self._topic_ids, positions.topic_ids):
                self._losses.report(f"topic {topic} was deleted and created again")
            self._topic_ids |= positions.topic_ids
            if self._only_available:
                latest = self._target = self._ended(begin, latest)
        self._latest = latest
        return latest

    def _ended(self, begin: Offsets, latest: Offsets) -> Offsets:
        """Return the ends of the partitions as the options of the end have them."""
        if self._options.end == NO_END:
            return latest
        loop, positions = self._ask()
        found = loop.run(positions.end(self._options.end))
        for text in found.losses:
            self._losses.report(text)
        first = {**self._first_offsets(latest.keys() - begin.keys()), **begin}
        return {
            each: max(first.get(each, 0), min(offset, found.offsets.get(each, offset)))
            for each, offset in latest.items()
        }

    def _end(self, begin: Offsets, latest: Offsets, limited: ReadLimit) -> Offsets:
        if isinstance(limited, ReadAllAvailable):
            return latest
        first = self._first_offsets(latest.keys() - begin.keys())
        least = limited.min_rows if isinstance(limited, ReadMinRows) else self._options.min_offsets
        # With Trigger.AvailableNow nothing more arrives: a wait would leave the rest unread.
        if least is not None and not self._only_available:
            count = available(begin, latest, first)
            if self._delay.must_wait(count, least, time.monotonic()):
                return begin
        if isinstance(limited, ReadMaxRows):
            return limit(begin, latest, first, limited.max_rows)
        return latest

    def _hold_first(self, begin: Offsets, end: Offsets) -> Offsets:
        """Let the first batch have no rows from partitions that begin at the end of the log.

        Spark keeps the end of the first batch, not its start. A process that repeats the batch
        finds a later start, and would lose the rows between.
        """
        held = {
            partition: offset
            for partition, offset in begin.items()
            if partition in self._from_end and partition in end
        }
        return end | held if self._initial == begin else end

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the ends that the last trigger has seen: Spark's progress shows them."""
        return to_json(self._latest) if self._latest else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the tasks of a batch; the same offsets always give the same rows."""
        begin, finish = from_json(start), from_json(end)
        for partition in self._from_end:
            # The first batch of a process that ended: its start was its end.
            if self._initial is not None and begin.get(partition) == self._initial[partition]:
                begin[partition] = min(begin[partition], finish.get(partition, begin[partition]))
        self._from_end = frozenset()
        planned = plan(begin, finish, self._first_offsets(finish.keys() - begin.keys()))
        for text in planned.losses:
            self._losses.report(text)
        if not self._topic_ids and planned.ranges:
            # A batch that is repeated is planned before the first trigger.
            loop, positions = self._ask()
            loop.run(positions.partitions())
            self._topic_ids = dict(positions.topic_ids)
        return _tasks(self._options, planned.ranges, self._topic_ids)

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """Yield the rows of a task."""
        return read_task(self._options, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Show the progress to lag tools; only the checkpoint decides where a query continues."""
        self._show_progress(from_json(end))

    def stop(self) -> None:
        """Wait for the last offsets to be shown."""
        if self._progress is not None:
            self._progress.close()

    def _ask(self) -> tuple[ClientLoop, Positions]:
        loop, cluster = _client(self._options.fetching)
        if self._positions is None:
            self._positions = Positions(
                cluster,
                self._options.selection,
                read_committed=self._options.fetching.read_committed,
            )
        return loop, self._positions

    def _first_offsets(self, partitions: set[TopicPartition]) -> Offsets:
        """Return the first offsets of new partitions, as they were when they were found."""
        unknown = partitions - self._new.keys()
        if unknown:
            loop, positions = self._ask()
            there = unknown.intersection(loop.run(positions.partitions(unknown)))
            self._new |= loop.run(positions.earliest(there))
        return {each: self._new[each] for each in partitions if each in self._new}

    def _show_progress(self, offsets: Offsets) -> None:
        group = self._options.progress_group
        if group is None:
            return
        if self._progress is None:
            self._progress = _Progress(*_client(self._options.fetching), group)
        self._progress.show(offsets)


class _Progress:
    """The progress of a query as committed offsets of a group without members.

    Only tools that show lag read them: a failure is logged, and delays no batch.
    """

    def __init__(self, loop: ClientLoop, cluster: Cluster, group: str) -> None:
        self._loop = loop
        self._cluster = cluster
        self._group = group
        self._wanted: Offsets = {}
        self._running: Future[None] | None = None
        self._shown: Offsets = {}
        self._has_failed = False
        """Whether the last commit failed: each trigger tries again, and the first is logged."""

    def show(self, offsets: Offsets) -> None:
        """Commit offsets, unless they are committed or another commit runs."""
        self._wanted = offsets
        if self._running is not None and not self._running.done():
            return
        if offsets and offsets != self._shown:
            self._running = self._loop.submit(self._commit(offsets))

    def close(self) -> None:
        """Commit the last offsets, and wait 5 s at most."""
        try:
            if self._running is not None:
                self._running.result(PROGRESS_TIMEOUT)
            if self._wanted != self._shown:
                self._loop.run(self._commit(self._wanted), PROGRESS_TIMEOUT)
        except TimeoutError:
            _LOG.warning("the offsets of group %s are not committed: timeout", self._group)

    async def _commit(self, offsets: Offsets) -> None:
        try:
            await commit_offsets(self._cluster, self._group, offsets)
        except (KafkaError, BrokerUnreachable, TimeoutError) as error:
            if not self._has_failed:
                _LOG.warning("the offsets of group %s are not committed: %s", self._group, error)
            self._has_failed = True
        else:
            self._has_failed = False
            self._shown = offsets
