"""Single records: building batches from them, and decompressing batches into them."""

from codecs import getincrementaldecoder
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.records.batch import (
    ATTRIBUTES_AT,
    COMPRESSION_MASK,
    CONTROL,
    COVERED,
    DELETE_HORIZON,
    HEAD,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    CorruptRecordError,
    HeaderFields,
    set_header,
)
from barnabas.protocol.records.checksum import crc32c
from barnabas.protocol.records.compression import Compression, compress, decompress, inflate
from barnabas.protocol.records.varint import (
    CUT_OFF,
    MAX_VARINT,
    MAX_VARLONG,
    VARINTS,
    Buffer,
    read_raw,
    read_varint,
    read_varlong,
    unzigzag,
)

Headers = tuple[tuple[str, bytes | None], ...]

MAX_DECOMPRESSED = 256 * 1024 * 1024
"""Bytes that one batch may decompress to unless the caller gives a smaller bound."""

MIN_RECORD = 7
"""Bytes of the shortest record: a length, attributes, two deltas, no key, no value, no headers."""
MAX_RECORD = 2**31 - 1
LONG = 4096
"""The bytes of a record from which on `RecordReader.check` does not keep its content."""
_MIN_RAW_LENGTH = MIN_RECORD - 1 << 1
_RAW_NULL = 1
_NULL = VARINTS[-1]
_NO_HEADERS = VARINTS[0]
_BEGIN = b"\0" + VARINTS[0]
_NO_HEADER = bytes(HEADER_SIZE)
_CODECS = tuple(Compression)
"""By their numbers: `Compression(number)` costs as much as to read a short record."""
_ATTRIBUTES = BatchHeader._fields.index("attributes")
_HEADERS_PER_PAUSE = 128
_new = tuple.__new__


class RecordTooLargeError(ProtocolError):
    """A record of a compressed batch has more bytes than the topic allows."""


class Record(NamedTuple):
    """One record; `offset` is absolute, `timestamp` in ms since the epoch."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


Fields = tuple[int, int, bytes | None, bytes | None, Headers]
"""A record without its names: offset, timestamp, key, value and headers. It costs a fifth less."""

_record: Callable[[Fields], Record] = partial(tuple.__new__, Record)


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: int | None = None,
    leader_epoch: int = -1,
    compression: Compression = Compression.NONE,
    level: int | None = None,
    timestamp_type: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
) -> bytes:
    """Build a batch of `records`; `base_offset` defaults to the offset of the first."""
    if not records:
        raise ValueError("a batch needs a record")
    base = records[0].offset if base_offset is None else base_offset
    batch = BatchBuilder(records[0].timestamp)
    for offset, timestamp, key, value, headers in records:
        batch.add(key, value, timestamp, headers, offset=offset - base)
    attributes = (
        compression
        | (LOG_APPEND_TIME if timestamp_type else 0)
        | (TRANSACTIONAL if transactional else 0)
        | (CONTROL if control else 0)
    )
    header = BatchHeader(
        base_offset=base,
        batch_length=0,
        partition_leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=records[-1].offset - base,
        base_timestamp=batch.timestamp,
        max_timestamp=batch.max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    return bytes(batch.pack(header, level))


def batch_of(
    records: Sequence[tuple[bytes, bytes | None]], timestamp: int
) -> tuple[bytearray, HeaderFields]:
    """Build a batch of keys and values, with one timestamp and offsets from 0 on, and its header.

    The records are those of `BatchBuilder.add`, without a call for each.
    """
    body: list[bytes] = []
    for delta, (key, value) in enumerate(records):
        size = _NULL if value is None else VARINTS[len(value)]
        record = b"".join(
            (_BEGIN, VARINTS[delta], VARINTS[len(key)], key, size, value or b"", _NO_HEADERS)
        )
        body += VARINTS[len(record)], record
    count = len(records)
    covered = (
        0, count - 1, timestamp, timestamp, NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE, count,
    )  # fmt: skip
    tail = COVERED.pack(*covered) + b"".join(body)
    head = 0, len(tail) + ATTRIBUTES_AT - LOG_OVERHEAD, -1, MAGIC, crc32c(tail)
    return bytearray(HEAD.pack(*head) + tail), head + covered


class BatchBuilder:
    """A batch of records, which are added one by one.

    `timestamp` is the base of their timestamps, and the timestamp of records that have none.
    """

    __slots__ = ("_begin", "_latest", "_parts", "count", "max_timestamp", "size", "timestamp")

    def __init__(self, timestamp: int) -> None:
        self.timestamp = self.max_timestamp = self._latest = timestamp
        self._begin = _BEGIN
        """The attributes of a record, and the delta of the timestamp `_latest`."""
        self.count = 0
        self.size = HEADER_SIZE
        """The bytes of the batch before compression."""
        self._parts = [_NO_HEADER]
        """The pieces of the batch: each value is copied once, when the batch is whole."""

    def add(
        self,
        key: bytes | None,
        value: bytes | None,
        timestamp: int | None = None,
        headers: Headers = (),
        limit: int = MAX_RECORD,
        *,
        offset: int | None = None,
    ) -> int:
        """Add a record, and return its bytes.

        Returns 0 for a record behind the first with which the batch would exceed `limit` bytes
        before compression: it is not added. `offset` is the distance to the base offset, which
        grows by 1 with each record if it is not given.
        """
        count = self.count
        if timestamp is None:
            timestamp = self.timestamp
        if timestamp != self._latest:
            self._begin = b"\0" + VARINTS[timestamp - self.timestamp]
            self._latest = timestamp
        at = VARINTS[count if offset is None else offset]
        name = _NULL if key is None else VARINTS[len(key)] + key
        if type(value) is bytes:
            length = VARINTS[len(value)]
        elif value is None:
            length, value = _NULL, b""
        else:
            # Another buffer could change until it is copied, and what is no buffer is refused now.
            value = bytes(memoryview(value))
            length = VARINTS[len(value)]
        head = b"".join((self._begin, at, name, length))
        tail = _written_headers(headers) if headers else _NO_HEADERS
        size = len(head) + len(value) + len(tail)
        length = VARINTS[size]
        size += len(length)
        if count and self.size + size > limit:
            return 0
        self._parts += length, head, value, tail
        self.size += size
        self.count = count + 1
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        return size

    def build(
        self,
        *,
        compression: Compression = Compression.NONE,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        transactional: bool = False,
    ) -> bytearray:
        """Return the batch as `pack` does, with offsets from 0 on."""
        attributes = compression | (TRANSACTIONAL if transactional else 0)
        header = (
            0, 0, -1, MAGIC, 0, attributes, self.count - 1, self.timestamp, self.max_timestamp,
            producer_id, producer_epoch, base_sequence, self.count,
        )  # fmt: skip
        return self.pack(header)

    def pack(self, header: Sequence[int], level: int | None = None) -> bytearray:
        """Return the batch, to which a log gives its offset in place; no record can be added.

        `header` has the fields of a `BatchHeader`; length and CRC are computed.
        """
        batch = bytearray().join(self._parts)
        if codec := header[_ATTRIBUTES] & COMPRESSION_MASK:
            records = memoryview(batch)[HEADER_SIZE:]
            batch = bytearray(HEADER_SIZE)
            batch += compress(Compression(codec), records, level)
        set_header(batch, header)
        return batch


def rewrite_batch(
    header: BatchHeader, records: Iterable[Record], *, delete_horizon_ms: int | None = None
) -> bytes:
    """Return the batch of `header` with only these of its records, possibly none (log compaction).

    Offsets, sequences, epochs, flags and codec are kept. A delete horizon replaces the batch's own,
    and is stored as the base timestamp (KIP-534).
    """
    attributes = header.attributes
    base_timestamp = header.base_timestamp
    max_timestamp = header.max_timestamp
    if delete_horizon_ms is not None:
        attributes |= DELETE_HORIZON
        base_timestamp = delete_horizon_ms
    batch = BatchBuilder(base_timestamp)
    newest = NO_TIMESTAMP
    for offset, timestamp, key, value, headers in records:
        batch.add(key, value, timestamp, headers, offset=offset - header.base_offset)
        newest = max(newest, timestamp)
    if batch.count:
        if not header.timestamp_type:
            max_timestamp = newest
    else:
        attributes &= ~(COMPRESSION_MASK | DELETE_HORIZON)
        base_timestamp = max_timestamp
    fields = header._replace(
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        record_count=batch.count,
    )
    return bytes(batch.pack(fields))


def iter_records(
    buf: Buffer, pos: int, header: BatchHeader, *, max_bytes: int = MAX_DECOMPRESSED
) -> Iterator[Record]:
    """Return the records of the batch at `pos`, decompressed piece by piece to at most `max_bytes`.

    Their iterator raises ProtocolError if a record is damaged, or if their number differs from the
    header's.
    """
    return map(_record, iter_fields(buf, pos, header, max_bytes=max_bytes))


def iter_fields(
    buf: Buffer, pos: int, header: BatchHeader, *, max_bytes: int = MAX_DECOMPRESSED
) -> Iterator[Fields]:
    """Yield the fields of each record of a batch, as `iter_records` does."""
    reader = RecordReader(header)
    for piece in inflate(codec_of(header), records_part(buf, pos, header), max_bytes):
        yield from reader.fields(piece)
    reader.finish()


def decompress_records(
    buf: Buffer, pos: int, header: BatchHeader, *, max_bytes: int = MAX_DECOMPRESSED
) -> bytes:
    """Return the decompressed records of the batch at `pos` as bytes; raise ProtocolError."""
    return decompress(codec_of(header), records_part(buf, pos, header), max_bytes)


def iter_decompressed(body: bytes, header: BatchHeader) -> Iterator[Record]:
    """Yield the records of a decompressed body; raise ProtocolError as `iter_records` does."""
    if not 0 <= header.record_count * MIN_RECORD <= len(body):
        raise CorruptRecordError(f"{header.record_count} records do not fit {len(body)} bytes")
    reader = RecordReader(header)
    yield from map(_record, reader.fields(body))
    reader.finish()


def records_part(buf: Buffer, pos: int, header: BatchHeader) -> memoryview:
    """Return the records of the batch at `pos` as they are in it, compressed or not."""
    return memoryview(buf)[pos + HEADER_SIZE : pos + LOG_OVERHEAD + header.batch_length]


def codec_of(header: BatchHeader) -> Compression:
    """Return the codec of a batch; raise CorruptRecordError if it is unknown."""
    number = header.attributes & COMPRESSION_MASK
    if number >= len(_CODECS):
        raise CorruptRecordError(f"unknown compression codec {number}")
    return _CODECS[number]


class RecordReader:
    """The records of one batch, from its decompressed bytes piece by piece.

    In a compressed batch a record may have `max_record` bytes, without its length; another one
    raises RecordTooLargeError.
    """

    def __init__(self, header: BatchHeader, max_record: int = MAX_RECORD) -> None:
        if header.record_count < 0:
            raise CorruptRecordError(f"a batch of {header.record_count} records")
        attributes = header.attributes
        self._left = header.record_count
        self._max_record = max_record if attributes & COMPRESSION_MASK else MAX_RECORD
        self._base_offset = header.base_offset
        self._base_timestamp = header.base_timestamp
        self._stamp = header.max_timestamp if attributes & LOG_APPEND_TIME else None
        self._rest = bytearray()
        """The beginning of a record whose end is in a later piece."""
        self._missing = 0
        """The bytes by which that record is longer; 0 if its length is not complete either."""
        self._long: _LongRecord | None = None
        """The record of which a part has been checked."""

    def check(self, piece: bytes) -> Iterator[Record | None]:
        """Yield the records that end in `piece`, long ones without content; None is a pause.

        Memory and the time between two yields do not depend on the length of a record. Key and
        value of a record of more than LONG bytes are empty, unless they are null, and its headers
        are left out, but all of them are checked.
        """
        at = 0
        while True:
            if self._long is not None:
                part = piece[at : at + self._long.left]
                at += len(part)
                yield from self._long.feed(part)
                if self._long.record is None:
                    return
                yield self._long.record
                self._long = None
            yield from map(_record, self.fields(piece[at:] if at else piece, LONG))
            if not self._has_long():
                return
            piece, at = bytes(self._rest), 0
            self._rest.clear()

    def _has_long(self) -> bool:
        return self._long is not None

    def fields(self, piece: bytes, longest: int = MAX_RECORD) -> Iterator[Fields]:
        """Yield the records that end in `piece`; take all of them before the next piece.

        A record of more than `longest` bytes is left to `check`.
        """
        rest = self._rest
        if rest:
            if len(piece) < self._missing:
                # Added in place: a long record may come in very many pieces.
                rest += piece
                self._missing -= len(piece)
                return
            piece = bytes(rest) + piece
            rest.clear()
        at, size, self._missing = 0, len(piece), 0
        base, base_timestamp, stamp = self._base_offset, self._base_timestamp, self._stamp
        limit, left = min(longest, self._max_record), self._left
        try:
            while left and at < size:
                raw, start = piece[at], at + 1
                if raw > 0x7F:
                    if start < size and (byte := piece[start]) < 0x80:
                        raw, start = raw & 0x7F | byte << 7, at + 2
                    elif _is_cut_off(piece, at, size):
                        break
                    else:
                        raw, start = read_raw(piece, at, MAX_VARINT)
                if raw & 1 or raw < _MIN_RAW_LENGTH:
                    raise CorruptRecordError(f"a record of {unzigzag(raw)} bytes")
                end = start + (raw >> 1)
                if end - start > limit:
                    self._begin_long(piece, start, end, left - 1)
                    return
                if end > size:
                    self._missing = end - size
                    break
                left -= 1
                yield _read_fields(piece, start, end, base, base_timestamp, stamp)
                at = end
        except IndexError:
            raise ProtocolError(CUT_OFF) from None
        self._left = left
        if at < size:
            if not self._left:
                raise CorruptRecordError(f"{size - at} bytes follow the last record of a batch")
            rest += piece[at:]

    def _begin_long(self, piece: bytes, start: int, end: int, left: int) -> None:
        """Leave the record at `start` to `check`, and `left` records behind it."""
        if end - start > self._max_record:
            raise RecordTooLargeError(f"a record of {end - start} bytes")
        self._left = left
        self._long = _LongRecord(end - start, self._base_offset, self._base_timestamp, self._stamp)
        self._rest += piece[start:]

    def finish(self) -> None:
        """Raise CorruptRecordError if the pieces did not hold exactly the announced records."""
        missing = self._missing if self._long is None else self._long.left
        if self._rest or self._long is not None:
            raise CorruptRecordError(
                f"a record does not fit its batch: {missing or 'more'} bytes are missing"
            )
        if self._left:
            raise CorruptRecordError(f"{self._left} records are missing in a batch")


class _LongRecord:
    """A record that is checked while its bytes arrive, and not kept."""

    def __init__(self, size: int, base: int, base_timestamp: int, stamp: int | None) -> None:
        self.left = size
        """The bytes that have not arrived."""
        self.record: Record | None = None
        """The record without its content, once all of it is checked."""
        self._base = base
        self._base_timestamp = base_timestamp
        self._stamp = stamp
        self._data = b""
        self._at = 0
        self._steps = self._check()

    def feed(self, data: bytes) -> Iterator[None]:
        """Check the next bytes; yields None as a pause."""
        self._data = self._data[self._at :] + data
        self._at = 0
        self.left -= len(data)
        for is_pause in self._steps:
            if not is_pause:
                return
            yield None

    # The steps below yield True as a pause, and False if they need more bytes.

    def _check(self) -> Generator[bool, None, None]:
        yield from self._have(1)
        self._at += 1
        delta = yield from self._number(read_varlong)
        offset_delta = yield from self._number(read_varint)
        key = yield from self._skip_bytes()
        value = yield from self._skip_bytes()
        count = yield from self._number(read_varint)
        if not 0 <= count <= self._rest // 2:
            raise CorruptRecordError(f"{count} headers do not fit their record")
        for number in range(count):
            if number % _HEADERS_PER_PAUSE == 0:
                yield True
            yield from self._check_name()
            yield from self._skip_bytes()
        if self._rest:
            raise CorruptRecordError(f"a record ends {self._rest} bytes off its length")
        timestamp = self._base_timestamp + delta if self._stamp is None else self._stamp
        self.record = Record(self._base + offset_delta, timestamp, key, value)

    @property
    def _rest(self) -> int:
        """The bytes of the record that are not checked yet."""
        return len(self._data) - self._at + self.left

    def _have(self, size: int) -> Generator[bool, None, None]:
        while len(self._data) - self._at < size and self.left:
            yield False

    def _number(self, read: Callable[[bytes, int], tuple[int, int]]) -> Generator[bool, None, int]:
        yield from self._have(MAX_VARLONG)
        value, self._at = read(self._data, self._at)
        return value

    def _length(self) -> Generator[bool, None, int]:
        size = yield from self._number(read_varint)
        if not -1 <= size <= self._rest:
            raise CorruptRecordError(f"a field of {size} bytes does not fit its record")
        return size

    def _skip_bytes(self) -> Generator[bool, None, bytes | None]:
        size = yield from self._length()
        while size > (there := len(self._data) - self._at):
            size -= there
            self._at += there
            yield False
        self._at += max(size, 0)
        return None if size == -1 else b""

    def _check_name(self) -> Generator[bool, None, None]:
        size = yield from self._length()
        if size == -1:
            raise CorruptRecordError("a header has no name")
        decoder = getincrementaldecoder("utf-8")()
        while True:
            part = self._data[self._at : self._at + size]
            self._at += len(part)
            size -= len(part)
            try:
                decoder.decode(part, final=not size)
            except UnicodeDecodeError:
                raise CorruptRecordError("a header's name is not UTF-8") from None
            if not size:
                return
            yield False


def _written(data: bytes | None) -> bytes:
    """Return a length, and the bytes behind it."""
    return _NULL if data is None else VARINTS[len(data)] + data


def _written_headers(headers: Headers) -> bytes:
    parts = [VARINTS[len(headers)]]
    for name, data in headers:
        parts += (_written(name.encode()), _written(data))
    return b"".join(parts)


def _is_cut_off(piece: bytes, at: int, size: int) -> bool:
    """Return whether the number at `at` continues behind the piece."""
    return size - at < MAX_VARINT and all(byte > 0x7F for byte in piece[at:])


def _read_fields(
    body: bytes, at: int, end: int, base: int, base_timestamp: int, stamp: int | None
) -> Fields:
    """Return the record in [at, end); raise ProtocolError, or IndexError behind `body`."""
    # Every record that is read passes here, so the usual lengths of a number need no call: one
    # byte, or two. `raw` is a number before its zigzag is undone.
    at += 1
    raw = body[at]
    if raw < 0x80:
        at += 1
    elif (byte := body[at + 1]) < 0x80:
        raw, at = raw & 0x7F | byte << 7, at + 2
    else:
        raw, at = read_raw(body, at, MAX_VARLONG)
    timestamp = base_timestamp + (~(raw >> 1) if raw & 1 else raw >> 1) if stamp is None else stamp
    raw = body[at]
    if raw < 0x80:
        at += 1
    elif (byte := body[at + 1]) < 0x80:
        raw, at = raw & 0x7F | byte << 7, at + 2
    else:
        raw, at = read_raw(body, at, MAX_VARINT)
    offset = base + (~(raw >> 1) if raw & 1 else raw >> 1)
    raw, first = body[at], at + 1
    key: bytes | None = None
    if raw == _RAW_NULL:
        at = first
    elif not raw & 0x81 and (stop := first + (raw >> 1)) <= end:
        key, at = body[first:stop], stop
    else:
        key, at = _read_bytes(body, at, end)
    raw, first = body[at], at + 1
    if raw > 0x7F:
        if (byte := body[first]) < 0x80:
            raw, first = raw & 0x7F | byte << 7, at + 2
        else:
            raw, first = read_raw(body, at, MAX_VARINT)
    stop = first + (raw >> 1)
    value: bytes | None
    if raw & 1 or stop > end:
        value, at = _read_bytes(body, at, end)
    else:
        value, at = body[first:stop], stop
    headers: Headers = ()
    if body[at]:
        headers, at = _read_headers(body, at, end)
    else:
        at += 1
    if at != end:
        raise CorruptRecordError(f"a record ends {end - at} bytes off its length")
    return offset, timestamp, key, value, headers


def _read_headers(body: bytes, at: int, end: int) -> tuple[Headers, int]:
    count, at = read_varint(body, at)
    if count and not 0 < count <= (end - at) // 2:
        raise CorruptRecordError(f"{count} headers do not fit their record")
    headers = []
    for _ in range(count):
        name, at = _read_bytes(body, at, end)
        if name is None:
            raise CorruptRecordError("a header has no name")
        try:
            text = name.decode()
        except UnicodeDecodeError:
            raise CorruptRecordError("a header's name is not UTF-8") from None
        value, at = _read_bytes(body, at, end)
        headers.append((text, value))
    return tuple(headers), at


def _read_bytes(body: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    length, at = read_varint(body, at)
    if length == -1:
        return None, at
    if not 0 <= length <= end - at:
        raise CorruptRecordError(f"a field of {length} bytes does not fit its record")
    return body[at : at + length], at + length
