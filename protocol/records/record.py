"""Single records: building batches, and *inflating* them again where somebody must look inside."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from barnabas.protocol.records.batch import (
    COMPRESSION_MASK,
    CONTROL,
    DELETE_HORIZON,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL,
    BatchHeader,
    CorruptRecordError,
    pack_batch,
)
from barnabas.protocol.records.compression import Compression, compress, decompress
from barnabas.protocol.records.varint import Buffer, read_varint, read_varlong, write_varint

Headers = tuple[tuple[str, bytes | None], ...]

MAX_INFLATED = 256 * 1024 * 1024
"""Bytes one batch may inflate to unless the caller knows a smaller bound."""

_MIN_RECORD = 7


class Record(NamedTuple):
    """One record; `offset` is absolute, `timestamp` in ms since the epoch."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


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
    """A batch of `records`, with offsets that rise from `base_offset` (or the first)."""
    if not records:
        raise ValueError("a batch needs a record")
    base = records[0].offset if base_offset is None else base_offset
    base_timestamp = records[0].timestamp
    body = bytearray()
    for record in records:
        _write_record(body, record, base, base_timestamp)
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
        base_timestamp=base_timestamp,
        max_timestamp=max(record.timestamp for record in records),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    return pack_batch(header, compress(compression, body, level) if compression else body)


def rewrite_batch(
    header: BatchHeader, records: Sequence[Record], *, delete_horizon_ms: int | None = None
) -> bytes:
    """The batch of `header` with only these of its records, maybe none (log compaction).

    Offsets, sequences, epochs, flags and codec stay. With a delete horizon, which replaces the one
    the batch may have, the base timestamp is that horizon (KIP-534).
    """
    attributes = header.attributes
    base_timestamp = header.base_timestamp
    max_timestamp = header.max_timestamp
    body = b""
    if records:
        if delete_horizon_ms is not None:
            attributes |= DELETE_HORIZON
            base_timestamp = delete_horizon_ms
        if not header.timestamp_type:
            max_timestamp = max(record.timestamp for record in records)
        out = bytearray()
        for record in records:
            _write_record(out, record, header.base_offset, base_timestamp)
        codec = Compression(header.compression)
        body = compress(codec, out) if codec else bytes(out)
    else:
        attributes &= ~(COMPRESSION_MASK | DELETE_HORIZON)
        base_timestamp = max_timestamp
    return pack_batch(
        header._replace(
            attributes=attributes,
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
            record_count=len(records),
        ),
        body,
    )


def iter_records(
    buf: Buffer, pos: int, header: BatchHeader, *, max_bytes: int = MAX_INFLATED
) -> Iterator[Record]:
    """The records of the batch at `pos`, inflated to at most `max_bytes`.

    Raises ProtocolError at damaged records, and where they are not as many as the header counts.
    """
    return iter_inflated(inflate(buf, pos, header, max_bytes=max_bytes), header)


def inflate(buf: Buffer, pos: int, header: BatchHeader, *, max_bytes: int = MAX_INFLATED) -> bytes:
    """The body of the batch at `pos`, its records one after another; raises ProtocolError."""
    if header.compression > Compression.ZSTD:
        raise CorruptRecordError(f"unknown compression codec {header.compression}")
    body: Buffer = memoryview(buf)[pos + HEADER_SIZE : pos + LOG_OVERHEAD + header.batch_length]
    return decompress(Compression(header.compression), body, max_bytes)


def iter_inflated(body: bytes, header: BatchHeader) -> Iterator[Record]:
    """The records of a body that is inflated; raises as `iter_records` does."""
    if not 0 <= header.record_count * _MIN_RECORD <= len(body):
        raise CorruptRecordError(f"{header.record_count} records do not fit {len(body)} bytes")
    stamp = header.max_timestamp if header.timestamp_type else None
    base_timestamp = header.base_timestamp
    at = 0
    for _ in range(header.record_count):
        record, at = _read_record(body, at, header.base_offset, base_timestamp, stamp)
        yield record
    if at != len(body):
        raise CorruptRecordError(f"{len(body) - at} bytes follow the last record of a batch")


def _write_record(out: bytearray, record: Record, base: int, base_timestamp: int) -> None:
    body = bytearray(1)
    write_varint(body, record.timestamp - base_timestamp)
    write_varint(body, record.offset - base)
    _write_bytes(body, record.key)
    _write_bytes(body, record.value)
    write_varint(body, len(record.headers))
    for name, value in record.headers:
        _write_bytes(body, name.encode())
        _write_bytes(body, value)
    write_varint(out, len(body))
    out += body


def _write_bytes(out: bytearray, data: bytes | None) -> None:
    if data is None:
        write_varint(out, -1)
    else:
        write_varint(out, len(data))
        out += data


def _read_record(
    body: bytes, at: int, base: int, base_timestamp: int, stamp: int | None
) -> tuple[Record, int]:
    length, at = read_varint(body, at)
    end = at + length
    if length < _MIN_RECORD - 1 or end > len(body):
        raise CorruptRecordError(f"a record of {length} bytes does not fit its batch")
    at += 1
    delta, at = read_varlong(body, at)
    offset_delta, at = read_varint(body, at)
    key, at = _read_bytes(body, at, end)
    value, at = _read_bytes(body, at, end)
    count, at = read_varint(body, at)
    headers: Headers = ()
    if count:
        headers, at = _read_headers(body, at, end, count)
    if at != end:
        raise CorruptRecordError(f"a record ends {end - at} bytes off its length")
    timestamp = base_timestamp + delta if stamp is None else stamp
    return Record(base + offset_delta, timestamp, key, value, headers), end


def _read_headers(body: bytes, at: int, end: int, count: int) -> tuple[Headers, int]:
    if not 0 < count <= (end - at) // 2:
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
