"""Fetched batches as Arrow: the rows of the stock connector, a column at a time.

Python makes one step for each record, to the start of the next one. NumPy reads the
variable-length integers of all records of several batches together. An Arrow array over the
decompressed bytes has a value as every second element, and Arrow copies the values out.

A length is believed only after it was compared with the end of its record, and an end only after
it was compared with the end of its batch.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from barnabas.client.batches import FetchedBatches
from barnabas.pipeline.columns.varints import FAR, VARLONG, Bytes, Ints, read_varints
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.records.batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    BatchHeader,
    CorruptRecordError,
)
from barnabas.protocol.records.record import (
    MAX_DECOMPRESSED,
    decompress_records,
    iter_decompressed,
)
from barnabas.protocol.records.varint import Buffer, read_varint

MAX_ROWS = 32 * 1024
"""Rows of the largest Arrow batch."""
MAX_BYTES = 4 * 1024 * 1024
"""Decompressed bytes after which an Arrow batch ends; one batch or one record may exceed it."""

_HEADERS = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)
_COLUMNS = [
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", pa.timestamp("us", tz="UTC")),
    pa.field("timestampType", pa.int32()),
]
SCHEMA = pa.schema(_COLUMNS)
SCHEMA_WITH_HEADERS = pa.schema([*_COLUMNS, pa.field("headers", _HEADERS)])

_MIN_RECORD = 7
_MAX_MS = (2**63 - 1) // 1000
"""The largest timestamp that Spark has in us."""
_FEW = 8


class DamagedBatchError(CorruptRecordError):
    """A batch that cannot be decoded, by its topic, partition and offset."""

    def __init__(self, topic: str, partition: int, header: BatchHeader, reason: str) -> None:
        super().__init__(
            f"{topic}-{partition}: the batch at offset {header.base_offset} is damaged: {reason}"
        )
        self.base_offset = header.base_offset
        self.next_offset = header.next_offset
        """The offset after the batch, where a reader that accepts the loss continues."""


def decode(
    chunks: Iterable[FetchedBatches],
    topic: str,
    partition: int,
    start: int,
    end: int,
    *,
    headers: bool,
    report: Callable[[str], None],
    max_bytes: int = MAX_DECOMPRESSED,
) -> Iterator[pa.RecordBatch]:
    """Yield the records from offset `start` to before `end` as Arrow batches, none of them empty.

    A timestamp that Spark cannot hold is null: `report` is called with a text that names it, before
    its rows are returned. A batch may decompress to at most `max_bytes`. Raise DamagedBatchError;
    the rows before the damaged record have been returned by then.
    """
    try:
        for chunk in chunks:
            for group in _groups(chunk, start, end, max_bytes):
                for rows in _slices(group):
                    if not rows.count:
                        continue
                    columns = rows.decode(with_headers=headers)
                    if text := _lost_times(columns.lost_times, start, end):
                        report(f"{topic}-{partition}: {text}")
                    batch = _build(columns, topic, partition)
                    found = _within(batch, columns.offset, start, end)
                    if found.num_rows:
                        yield found
                    if columns.damage is not None:
                        raise columns.damage
    except _Damage as damage:
        raise DamagedBatchError(topic, partition, damage.header, damage.reason) from None


def _lost_times(lost: list[tuple[int, int]], start: int, end: int) -> str:
    """Return the text of the offsets in the range whose timestamps, in ms, are lost; or nothing."""
    lost = [each for each in lost if start <= each[0] < end]
    if not lost:
        return ""
    (first, time), (last, _) = lost[0], lost[-1]
    if len(lost) == 1:
        return f"the record at offset {first} has a timestamp that Spark cannot hold, {time} ms"
    which = f"{len(lost)} records from offset {first} to {last}"
    return f"{which} have timestamps that Spark cannot hold, the first one {time} ms"


class _Damage(Exception):
    """A batch that cannot be decoded, without the name of its partition."""

    def __init__(self, header: BatchHeader, reason: str) -> None:
        super().__init__(reason)
        self.header = header
        self.reason = reason


class _Part(NamedTuple):
    """The records of one batch, from `at` to `end` in the buffer of their group."""

    header: BatchHeader
    at: int
    end: int


class _Group(NamedTuple):
    """Batches whose decompressed records are in one buffer."""

    buffer: Buffer
    parts: list[_Part]


def _groups(chunk: FetchedBatches, start: int, end: int, max_bytes: int) -> Iterator[_Group]:
    """Yield the batches that overlap the range, decompressed, in groups of about MAX_BYTES.

    Batches without compression stay where they are, if all are so.
    """
    wanted = [
        each for each in chunk.visible if each[1].last_offset >= start and each[1].base_offset < end
    ]
    if not any(header.compression for _, header in wanted):
        parts = [
            _Part(header, pos + HEADER_SIZE, pos + LOG_OVERHEAD + header.batch_length)
            for pos, header in wanted
        ]
        yield _Group(chunk.data, parts)
        return
    bodies: list[bytes] = []
    parts = []
    size = 0
    for pos, header in wanted:
        try:
            body = decompress_records(chunk.data, pos, header, max_bytes=max_bytes)
        except ProtocolError as error:
            yield _Group(b"".join(bodies), parts)
            raise _Damage(header, str(error)) from None
        parts.append(_Part(header, size, size + len(body)))
        bodies.append(body)
        size += len(body)
        if size >= MAX_BYTES:
            yield _Group(bodies[0] if len(bodies) == 1 else b"".join(bodies), parts)
            bodies, parts, size = [], [], 0
    yield _Group(b"".join(bodies), parts)


class _Piece(NamedTuple):
    """Consecutive records of one batch in a slice; `first` is the number of the first one."""

    part: _Part
    first: int
    length: int


def _slices(group: _Group) -> Iterator["_Slice"]:
    """Yield the records of a group in slices of at most MAX_ROWS rows and about MAX_BYTES."""
    rows = _Slice(group.buffer)
    for part in group.parts:
        count = part.header.record_count
        at, done = part.at, 0
        if not 0 <= count * _MIN_RECORD <= part.end - at:
            yield rows
            reason = f"{count} records do not fit {part.end - at} bytes"
            raise _Damage(part.header, reason)
        while done < count and at < part.end:
            stop = min(part.end, at + MAX_BYTES - rows.size)
            bounds = _walk(group.buffer, at, stop, min(count - done, MAX_ROWS - rows.count))
            rows.add(_Piece(part, done, len(bounds) - 1), bounds)
            at, done = bounds[-1], done + len(bounds) - 1
            if rows.count >= MAX_ROWS or rows.size >= MAX_BYTES:
                yield rows
                rows = _Slice(group.buffer)
        if done < count or at < part.end:
            yield rows
            missing = f"{count - done} of {count} records are missing"
            following = f"{part.end - at} bytes follow the last record"
            raise _Damage(part.header, missing if done < count else following)
    yield rows


def _walk(buffer: Buffer, at: int, stop: int, limit: int) -> list[int]:
    """Return the starts of up to `limit` records that begin before `stop`, and the last one's end.

    Only the size of the buffer is respected: `_Slice.decode` compares each end with its batch.
    """
    bounds = [at]
    append = bounds.append
    try:
        for _ in range(limit):
            if at >= stop:
                break
            byte = buffer[at]
            if byte < 0x80:
                at += (byte >> 1) + 1
            elif (second := buffer[at + 1]) < 0x80:
                at += ((byte & 0x7F) >> 1) + (second << 6) + 2
            else:
                length, after = read_varint(buffer, at)
                at = after + max(length, 0)
            append(at)
    except (IndexError, ProtocolError):
        append(FAR)
    return bounds


class _Fields(NamedTuple):
    """A byte string for each record: its position and length, -1 for null."""

    at: Ints
    length: Ints

    def upto(self, count: int) -> "_Fields":
        return _Fields(self.at[:count], self.length[:count])


class _HeaderFields(NamedTuple):
    """The headers of all records one after the other, and the number of each record's."""

    counts: Ints
    names: _Fields
    values: _Fields


class _Decoded(NamedTuple):
    """The columns of a slice up to its first damaged record, in NumPy, and the damage."""

    data: Bytes
    offset: Ints
    timestamp: Ints
    lost_times: list[tuple[int, int]]
    """The offset and the timestamp in ms of each row that has 0 in its place."""
    log_append_time: Ints
    keys: _Fields
    values: _Fields
    headers: pa.Array | None
    damage: _Damage | None


class _Slice:
    """Records whose columns are decoded together."""

    def __init__(self, buffer: Buffer) -> None:
        self.count = 0
        self.size = 0
        self._buffer = buffer
        self._pieces: list[_Piece] = []
        self._bounds: list[int] = []
        """The starts of each piece's records, and the end of its last one."""

    def add(self, piece: _Piece, bounds: list[int]) -> None:
        self._pieces.append(piece)
        self._bounds += bounds
        self.count += piece.length
        self.size += bounds[-1] - bounds[0]

    def decode(self, *, with_headers: bool) -> _Decoded:
        """Read the fields of every record, and cut the columns off at the first damaged one."""
        data = np.frombuffer(self._buffer, np.uint8)
        starts, ends = self._starts_and_ends()
        last, last_delta, log_append_time, base_time, base_offset = self._facts()
        length, at = read_varints(data, starts)
        # `_walk` takes a negative length for a positive one.
        broken = (length < _MIN_RECORD - 1) | (ends > last)
        ends = np.minimum(ends, last)
        timestamp, at = read_varints(data, at + 1, VARLONG)
        delta, at = read_varints(data, at)
        keys, at = _read_bytes(data, at, ends)
        values, at = _read_bytes(data, at, ends)
        counts, at = read_varints(data, at)
        headers, at = _read_headers(data, at, ends, counts)
        broken |= (at != ends) | (delta < 0) | (delta > last_delta)
        timestamp[log_append_time != 0] = 0
        timestamp, added = timestamp + base_time, timestamp
        lost = (timestamp ^ added) & (timestamp ^ base_time) < 0  # the sum has overflowed
        lost |= (timestamp > _MAX_MS) | (timestamp < -_MAX_MS)
        bad = int(broken.argmax()) if broken.any() else self.count
        column = None
        if with_headers:
            column, bad = _header_column(data, headers, bad)
        timestamp[lost] = 0
        return _Decoded(
            data,
            delta[:bad] + base_offset[:bad],
            timestamp[:bad],
            [
                (int(delta[row] + base_offset[row]), int(base_time[row]) + int(added[row]))
                for row in np.flatnonzero(lost[:bad])
            ],
            log_append_time[:bad],
            keys.upto(bad),
            values.upto(bad),
            column,
            self._damage(int(starts[bad]), bad) if bad < self.count else None,
        )

    def _starts_and_ends(self) -> tuple[Ints, Ints]:
        bounds = np.array(self._bounds, np.int64)
        lengths = np.array([piece.length for piece in self._pieces], np.int64)
        lasts = np.cumsum(lengths + 1) - 1
        return np.delete(bounds, lasts), np.delete(bounds, lasts - lengths)

    def _facts(self) -> Ints:
        """Return a column of every fact that a batch has for its records."""
        facts = [
            (
                part.end,
                part.header.last_offset_delta,
                part.header.timestamp_type,
                part.header.max_timestamp
                if part.header.timestamp_type
                else part.header.base_timestamp,
                part.header.base_offset,
            )
            for part, _, _ in self._pieces
        ]
        lengths = [piece.length for piece in self._pieces]
        return np.repeat(np.array(facts, np.int64).T, lengths, axis=1)

    def _damage(self, start: int, row: int) -> _Damage:
        """Return what is wrong with a row, in the words of the record-by-record decoder."""
        index = row
        piece = self._pieces[0]
        for piece in self._pieces:
            if index < piece.length:
                break
            index -= piece.length
        header = piece.part.header
        number = f"record {piece.first + index}"
        left = piece.part.end - start
        if left < _MIN_RECORD:
            return _Damage(header, f"{number}: only {left} bytes are left")
        body = bytes(memoryview(self._buffer)[start : piece.part.end])
        try:
            record = next(iter_decompressed(body, header._replace(record_count=1)))
        except ProtocolError as error:
            return _Damage(header, f"{number}: {error}")
        if not header.base_offset <= record.offset <= header.last_offset:
            return _Damage(header, f"{number}: offset {record.offset} is outside the batch")
        return _Damage(header, f"{number}: its fields do not fit its length")


def _read_bytes(data: Bytes, at: Ints, ends: Ints) -> tuple[_Fields, Ints]:
    """Read a byte string of each record; those that do not fit end at FAR."""
    length, at = read_varints(data, at)
    size = np.maximum(length, 0)
    after = at + size
    after[(length < -1) | (after > ends)] = FAR
    return _Fields(at, length), after


def _read_headers(data: Bytes, at: Ints, ends: Ints, counts: Ints) -> tuple[_HeaderFields, Ints]:
    """Read the headers of all records: the first of each record, then the second, and so on."""
    at[(counts < 0) | (counts > (ends - at) // 2)] = FAR
    counts[at >= FAR] = 0
    first = np.cumsum(counts) - counts
    total = int(counts.sum())
    names = _Fields(np.zeros(total, np.int64), np.zeros(total, np.int64))
    values = _Fields(np.zeros(total, np.int64), np.zeros(total, np.int64))
    rows = np.flatnonzero(counts)
    index = 0
    while rows.size >= _FEW or (rows.size and index < _FEW):
        name, position = _read_bytes(data, at[rows], ends[rows])
        position[name.length < 0] = FAR
        value, position = _read_bytes(data, position, ends[rows])
        slots = first[rows] + index
        for fields, found in ((names, name), (values, value)):
            fields.at[slots] = found.at
            fields.length[slots] = found.length
        at[rows] = position
        index += 1
        rows = rows[(counts[rows] > index) & (position < FAR)]
    for row in rows:
        # A few records with many headers: one at a time costs less than a round of NumPy for each.
        these = range(int(first[row]) + index, int(first[row] + counts[row]))
        at[row] = _read_more_headers(data.data, int(at[row]), int(ends[row]), names, values, these)
    return _HeaderFields(counts, names, values), at


def _read_more_headers(
    data: memoryview, at: int, end: int, names: _Fields, values: _Fields, slots: range
) -> int:
    """Read headers of one record into these slots; return the position after them, or FAR."""
    try:
        for slot in slots:
            for fields, shortest in ((names, 0), (values, -1)):
                length, at = read_varint(data, at)
                if not shortest <= length <= end - at:
                    return FAR
                fields.at[slot] = at
                fields.length[slot] = length
                at += max(length, 0)
    except ProtocolError:
        return FAR
    return at


def _header_column(data: Bytes, read: _HeaderFields, rows: int) -> tuple[pa.Array, int]:
    """Return the column of headers, and its rows: fewer than `rows` if a name is not UTF-8."""
    counts = read.counts[:rows]
    total = int(counts.sum())
    names = _take(data, read.names.upto(total))
    try:
        names = names.cast(pa.string())
    except pa.ArrowInvalid:
        rows = int(np.searchsorted(np.cumsum(counts), _first_not_utf8(names), "right"))
        return _header_column(data, read, rows)
    values = _take(data, read.values.upto(total))
    element = pa.StructArray.from_arrays([names, values], fields=list(_HEADERS.value_type))
    bounds = np.zeros(rows + 1, np.int32)
    np.cumsum(counts, out=bounds[1:])
    # A row without headers has null, as the stock connector gives it.
    present = pa.py_buffer(np.packbits(counts > 0, bitorder="little"))
    buffers = [present, pa.py_buffer(bounds)]
    return pa.Array.from_buffers(_HEADERS, rows, buffers, children=[element]), rows


def _first_not_utf8(names: pa.Array) -> int:
    for index, name in enumerate(names):
        try:
            name.as_py().decode()
        except UnicodeDecodeError:
            return index
    raise AssertionError("all names are UTF-8")


def _take(data: Bytes, fields: _Fields) -> pa.Array:
    """Copy byte strings out of `data`: they are every second element of an array over all of it."""
    count = fields.at.size
    null = fields.length < 0
    nulls = int(np.count_nonzero(null))
    if nulls == count:
        return pa.nulls(count, pa.binary())
    bounds = np.empty(2 * count, np.int32)
    bounds[0::2] = fields.at
    bounds[1::2] = fields.at + np.maximum(fields.length, 0)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    fields_and_gaps = pa.Array.from_buffers(pa.binary(), 2 * count - 1, buffers)
    every_second = pa.array(
        np.arange(0, 2 * count, 2, dtype=np.int32), mask=null if nulls else None
    )
    return fields_and_gaps.take(every_second)


def _build(rows: _Decoded, topic: str, partition: int) -> pa.RecordBatch:
    count = rows.offset.size
    present = None
    if rows.lost_times:
        lost = np.isin(rows.offset, [offset for offset, _ in rows.lost_times])
        present = pa.py_buffer(np.packbits(~lost, bitorder="little"))
    micros = [present, pa.py_buffer(rows.timestamp * 1000)]
    columns = [
        _take(rows.data, rows.keys),
        _take(rows.data, rows.values),
        pa.repeat(pa.scalar(topic, pa.string()), count),
        pa.array(np.full(count, partition, np.int32)),
        pa.array(rows.offset),
        pa.Array.from_buffers(pa.timestamp("us", tz="UTC"), count, micros),
        pa.array(rows.log_append_time.astype(np.int32)),
    ]
    if rows.headers is None:
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
    return pa.RecordBatch.from_arrays([*columns, rows.headers], schema=SCHEMA_WITH_HEADERS)


def _within(batch: pa.RecordBatch, offset: Ints, start: int, end: int) -> pa.RecordBatch:
    """Return the rows of a range of offsets."""
    wanted = (offset >= start) & (offset < end)
    return batch if wanted.all() else batch.filter(pa.array(wanted))
