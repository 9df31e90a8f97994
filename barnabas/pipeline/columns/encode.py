"""Arrow columns as whole record batches, without a Python object for each record.

NumPy writes the variable-length integers of all records, and Arrow joins them with the keys,
values and headers: the bytes of the joined column, one row after the other, are the records.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from barnabas.client.producer import EncodedBatch
from barnabas.pipeline.columns.varints import Ints, varint_sizes, write_varints
from barnabas.protocol.records.batch import (
    HEADER_SIZE,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    BatchHeader,
    pack_mutable_batch,
)
from barnabas.protocol.records.compression import Compression, compress

_STRETCH = 4 * 1024 * 1024
"""Bytes of the batches that are built together; a batch that is larger is built alone."""
_LARGEST = 2**31 - 1 - HEADER_SIZE


class RecordTooLargeError(ValueError):
    """A record that no batch can hold; `row` counts from 0."""

    def __init__(self, row: int, size: int) -> None:
        super().__init__(f"row {row} has {size} bytes, a batch has at most {_LARGEST}")
        self.row = row


class _Columns(NamedTuple):
    """The columns of all rows, and the bytes of their parts; -1 for a null."""

    keys: pa.Array
    values: pa.Array
    headers: pa.Array
    times: Ints
    key_sizes: Ints
    value_sizes: Ints
    header_sizes: Ints

    @property
    def sizes(self) -> Ints:
        """Bytes of the keys, values and headers of each row."""
        return np.maximum(self.key_sizes, 0) + np.maximum(self.value_sizes, 0) + self.header_sizes

    def rows(self, start: int, end: int) -> "_Columns":
        return _Columns(*(column[start:end] for column in self))


def encode(
    keys: pa.Array,
    values: pa.Array,
    headers: pa.Array | None,
    timestamps: pa.Array,
    *,
    compression: Compression,
    max_batch_bytes: int,
    level: int | None = None,
    runs: Sequence[int] = (0,),
) -> Iterator[EncodedBatch]:
    """Yield the rows, in their order, as batches of at most `max_batch_bytes`.

    `runs` has the first row of each run of rows for one partition, in order and from 0 on: a batch
    has rows of one run. A call for many partitions costs little more than a call for one. The bound
    is for a batch before its compression; a row that exceeds it alone has a separate batch. Keys
    and values are binary or string, headers are lists of structs of key and value, and timestamps
    are int64 in ms without nulls. Raise ValueError for a header without a key, and
    RecordTooLargeError.
    """
    if not len(values):
        return
    times = timestamps.to_numpy(zero_copy_only=True)
    blobs = _encode_headers(headers) if headers is not None else pa.repeat(b"\0", len(values))
    keys, values = _binary(keys), _binary(values)
    sizes = (_sizes(column) for column in (keys, values, blobs))
    columns = _Columns(keys, values, blobs, times, *sizes)
    starts = _batch_starts(columns, max_batch_bytes - HEADER_SIZE, runs)
    for bounds in _stretches(starts, columns.sizes):
        stretch = columns.rows(int(bounds[0]), int(bounds[-1]))
        yield from _build(stretch, bounds - bounds[0], compression, level)


def _batch_starts(columns: _Columns, limit: int, runs: Sequence[int]) -> Ints:
    """Return the first row of each batch, and the number of rows at the end."""
    count = len(columns.times)
    span = int(columns.times.max()) - int(columns.times.min())
    deltas = varint_sizes(np.array([min(span, 2**63 - 1), count], np.int64)).sum()
    # An attribute byte, and four lengths of at most five bytes. The number of headers is in theirs.
    overhead = 1 + int(deltas) + sum(_longest(sizes) for sizes in columns[4:6])
    inside = columns.sizes + overhead
    if inside.max() > _LARGEST - 5:
        row = int(inside.argmax())
        raise RecordTooLargeError(row, int(inside[row]))
    ends = np.cumsum(inside + varint_sizes(inside))
    starts: list[int] = []
    for start, end in pairwise([*runs, count]):
        while start < end:
            starts.append(start)
            before = int(ends[start - 1]) if start else 0
            start = max(int(np.searchsorted(ends, before + limit, "right")), start + 1)
    return np.array([*starts, count], np.int64)


def _longest(sizes: Ints) -> int:
    return int(varint_sizes(sizes[[sizes.argmax()]])[0])


def _stretches(starts: Ints, sizes: Ints) -> Iterator[Ints]:
    """Yield the bounds of consecutive batches of about _STRETCH bytes together."""
    ends = np.cumsum(sizes)[starts[1:] - 1]
    first = 0
    before = 0
    for index, end in enumerate(ends.tolist(), 1):
        if end - before >= _STRETCH or index == len(ends):
            yield starts[first : index + 1]
            first, before = index, end


def _build(
    columns: _Columns, bounds: Ints, codec: Compression, level: int | None
) -> Iterator[EncodedBatch]:
    """Build the batches between these bounds."""
    joined = _join_records(columns, bounds)
    positions = _offsets(joined)[bounds].tolist()
    body = memoryview(joined.buffers()[2]).cast("B")
    times = columns.times
    latest = np.maximum.reduceat(times, bounds[:-1]).tolist()
    for index in range(len(bounds) - 1):
        first, end = int(bounds[index]), int(bounds[index + 1])
        records = body[positions[index] : positions[index + 1]]
        header = BatchHeader(
            base_offset=0,
            batch_length=0,
            partition_leader_epoch=-1,
            magic=MAGIC,
            crc=0,
            attributes=codec,
            last_offset_delta=end - first - 1,
            base_timestamp=int(times[first]),
            max_timestamp=latest[index],
            producer_id=NO_PRODUCER_ID,
            producer_epoch=NO_PRODUCER_EPOCH,
            base_sequence=NO_SEQUENCE,
            record_count=end - first,
        )
        packed = compress(codec, records, level) if codec else records
        yield EncodedBatch(pack_mutable_batch(header, packed), end - first)


def _join_records(columns: _Columns, bounds: Ints) -> pa.Array:
    """Return the bytes of each row's record."""
    first = np.repeat(bounds[:-1], np.diff(bounds))
    offsets = np.arange(len(first), dtype=np.int64) - first
    deltas = columns.times - columns.times[first]
    size = 1 + columns.sizes
    for numbers in (deltas, offsets, columns.key_sizes, columns.value_sizes):
        size += varint_sizes(numbers)
    attributes = np.zeros(len(first), np.int64)
    before = _varints(size, attributes, deltas, offsets, columns.key_sizes)
    return _join(
        before, columns.keys, _varints(columns.value_sizes), columns.values, columns.headers
    )


def _encode_headers(headers: pa.Array) -> pa.Array:
    """Return the number of headers of each row, and the headers, in bytes."""
    counts = pc.list_value_length(headers).fill_null(0).to_numpy().astype(np.int64)
    flat = pc.list_flatten(headers)
    keys, values = _binary(pc.struct_field(flat, "key")), _binary(pc.struct_field(flat, "value"))
    if keys.null_count:
        raise ValueError("a header has no key")
    each = _join(_varints(_sizes(keys)), keys, _varints(_sizes(values)), values)
    bounds = np.zeros(len(headers) + 1, np.int64)
    np.cumsum(counts, out=bounds[1:])
    buffers = [None, pa.py_buffer(_offsets(each)[bounds]), each.buffers()[2]]
    of_rows = pa.Array.from_buffers(pa.binary(), len(headers), buffers)
    return _join(_varints(counts), of_rows)


def _join(*columns: pa.Array) -> pa.Array:
    """Concatenate the byte strings of each row; a null is empty."""
    empty = pa.scalar(b"", pa.binary())
    return pc.binary_join_element_wise(
        *columns, empty, null_handling="replace", null_replacement=b""
    )


def _varints(*columns: Ints) -> pa.Array:
    """Return the bytes of each row's integers."""
    data, sizes = write_varints(columns)
    bounds = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=bounds[1:])
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(sizes), buffers)


def _offsets(column: pa.Array) -> npt.NDArray[np.int32]:
    bounds = np.frombuffer(column.buffers()[1], np.int32)
    return bounds[column.offset : column.offset + len(column) + 1]


def _sizes(column: pa.Array) -> Ints:
    """Return the bytes of each element, -1 for null."""
    sizes: Ints = pc.binary_length(column).fill_null(-1).to_numpy().astype(np.int64)
    return sizes


def _binary(column: pa.Array) -> pa.Array:
    return column if column.type == pa.binary() else column.cast(pa.binary())
