"""The rows of a task as Arrow columns: checked, routed to partitions, and encoded in batches."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from barnabas.pipeline.columns.encode import encode
from barnabas.pipeline.columns.partitioner import Partitioner
from barnabas.pipeline.sink.options import SinkOptions
from barnabas.pipeline.sink.protocol import SinkError
from barnabas.pipeline.sink.task import RoutedBatch, TaskLabel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Indexes = NDArray[np.int64]

GATHERED_BYTES = 4 * 1024 * 1024
GATHERED_ROWS = 64 * 1024


class _Topic(NamedTuple):
    partitioner: Partitioner
    partitions: int


class RowEncoder:
    """The encoder of one task: it numbers the rows, and keeps the partitioner of each topic."""

    def __init__(
        self, options: SinkOptions, label: TaskLabel, partitions_of: Callable[[str], int]
    ) -> None:
        self._options = options
        self._label = label
        self._partitions_of = partitions_of
        self._topics: dict[str, _Topic] = {}
        self._rows = 0
        """The number of rows before the batch at hand."""

    def encode(self, batch: pa.RecordBatch) -> list[RoutedBatch]:
        """Encode rows by partition. Raises SinkError that names the first wrong row."""
        given = {name: batch.column(name) for name in batch.schema.names}
        columns = {
            "key": _bytes(given["key"]) if "key" in given else pa.nulls(len(batch), pa.binary()),
            "value": _bytes(given["value"]),
            "timestamp": self._timestamps(given.get("timestamp"), len(batch)),
        }
        if "headers" in given:
            columns["headers"] = self._checked_headers(given["headers"])
        if "partition" in given:
            columns["partition"] = given["partition"]
        rows = pa.table(columns)
        encoded = [
            routed
            for topic, indexes in self._by_topic(given.get("topic"), len(batch))
            for routed in self._encode_topic(topic, rows, indexes)
        ]
        self._rows += len(batch)
        return encoded

    def _by_topic(self, topics: "pa.Array | None", count: int) -> Iterator[tuple[str, "Indexes"]]:
        """Yield each topic with the indexes of its rows; the option wins over the column."""
        if self._options.topic is not None:
            yield self._options.topic, np.arange(count)
            return
        assert topics is not None
        if topics.null_count:
            self._refuse(_first(topics.is_null()), "the topic is null: filter such rows out")
        named = topics.dictionary_encode()
        numbers = named.indices.to_numpy()
        for number, topic in enumerate(named.dictionary.to_pylist()):
            yield topic, np.flatnonzero(numbers == number)

    def _encode_topic(self, name: str, rows: pa.Table, indexes: "Indexes") -> Iterator[RoutedBatch]:
        """Yield the batches of a topic, each partition's rows in their order."""
        topic = self._topic(name)
        if len(indexes) < len(rows):
            rows = rows.take(indexes)
        chosen = self._choose(name, topic, rows, indexes)
        runs = _runs(chosen)
        if len(runs) > 1 and np.bincount(chosen[runs]).max() > 1:
            order = np.argsort(chosen, kind="stable")
            rows = rows.take(order)
            indexes, chosen = indexes[order], chosen[order]
            runs = _runs(chosen)
        at = 0
        for each in encode(
            _column(rows, "key"),
            _column(rows, "value"),
            _column(rows, "headers") if "headers" in rows.column_names else None,
            _column(rows, "timestamp"),
            compression=self._options.compression,
            max_batch_bytes=self._options.batch_size,
            runs=runs.tolist(),
        ):
            row = self._rows + int(indexes[at])
            yield RoutedBatch(name, int(chosen[at]), each, row)
            at += each.count

    def _choose(
        self, name: str, topic: _Topic, rows: pa.Table, indexes: "Indexes"
    ) -> "NDArray[np.int32]":
        """Return the partition of each row: the given one, else the one of its key."""
        keys, values = _column(rows, "key"), _column(rows, "value")
        if "partition" not in rows.column_names:
            return topic.partitioner.choose(keys, values)
        given = _column(rows, "partition")
        if given.null_count:
            chosen = topic.partitioner.choose(keys, values)
            given = given.fill_null(0) if given.null_count == len(given) else given
            given = pc.if_else(given.is_valid(), given, pa.array(chosen, pa.int32()))
        partitions: NDArray[np.int32] = given.to_numpy()
        wrong = (partitions < 0) | (partitions >= topic.partitions)
        if wrong.any():
            at = int(np.argmax(wrong))
            self._refuse(
                int(indexes[at]),
                f"partition {partitions[at]} is not there: {name} has {topic.partitions}",
            )
        return partitions

    def _topic(self, name: str) -> _Topic:
        if name not in self._topics:
            count = self._partitions_of(name)
            self._topics[name] = _Topic(Partitioner(count), count)
        return self._topics[name]

    def _timestamps(self, given: "pa.Array | None", count: int) -> pa.Array:
        """Return the timestamps in ms; a null is the time now."""
        now = pa.scalar(time.time_ns() // 1_000_000, pa.int64())
        if given is None:
            return pa.repeat(now, count)
        stamps = given.cast(pa.timestamp("ms", given.type.tz), safe=False).cast(pa.int64())
        stamps = stamps.fill_null(now)
        if pc.min(stamps).as_py() < 0:
            self._refuse(_first(pc.less(stamps, 0)), "the timestamp is before 1970")
        return stamps

    def _checked_headers(self, headers: pa.Array) -> pa.Array:
        flat = pc.list_flatten(headers)
        if len(flat) and (flat.null_count or flat.field("key").null_count):
            wrong = pc.or_(flat.is_null(), flat.field("key").is_null())
            row = pc.list_parent_indices(headers)[_first(wrong)].as_py()
            self._refuse(row, "a header has no key")
        return headers

    def _refuse(self, index: int, reason: str) -> NoReturn:
        raise SinkError(f"{self._label}: row {self._rows + index} was not written: {reason}")


def gather(batches: "Iterable[pa.RecordBatch]") -> Iterator[pa.RecordBatch]:
    """Yield the rows in fewer batches, of about GATHERED_BYTES or GATHERED_ROWS; none is empty.

    Each call of the encoder has a fixed cost, and ends a batch in each of its partitions.
    """
    held: list[pa.RecordBatch] = []
    size = count = 0
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
            size += batch.nbytes
            count += batch.num_rows
        if size >= GATHERED_BYTES or count >= GATHERED_ROWS:
            yield _concat(held)
            held, size, count = [], 0, 0
    if held:
        yield _concat(held)


def _concat(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    (joined,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined


def _runs(chosen: "NDArray[np.int32]") -> "Indexes":
    """Return the first row of each run of rows with the same partition."""
    return np.flatnonzero(np.diff(chosen, prepend=-1))


def _bytes(column: pa.Array) -> pa.Array:
    """Return strings as their UTF-8 bytes, and large types as the usual ones."""
    return column if column.type == pa.binary() else column.cast(pa.binary())


def _column(rows: pa.Table, name: str) -> pa.Array:
    chunks = rows.column(name)
    return chunks.chunk(0) if chunks.num_chunks == 1 else pa.concat_arrays(chunks.chunks)


def _first(wrong: pa.Array) -> int:
    """Return the index of the first true element."""
    return int(pc.index(wrong, pa.scalar(True)).as_py())
