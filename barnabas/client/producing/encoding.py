"""Record batches of many records with one timestamp and the same headers, encoded fast."""

from collections.abc import Iterable, Iterator
from typing import Final

from barnabas.client.producing.partition_queue import EncodedBatch
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
from barnabas.protocol.records.record import Headers
from barnabas.protocol.records.varint import varint

_LIMIT: Final = 1 << 13
_SMALL: Final = tuple(
    bytes([value << 1]) if value < 64 else bytes([value << 1 & 0x7F | 0x80, value >> 6])
    for value in range(_LIMIT)
)
"""The encodings of 0 to 8191, so that most lengths and offsets need no call."""
_NULL: Final = varint(-1)
_OVERHEAD: Final = 24
"""The most bytes of a record beside its key, value and headers."""


def encode_batches(
    values: Iterable[bytes | None],
    keys: Iterable[bytes | None],
    timestamp: int,
    *,
    batch_size: int,
    headers: Headers = (),
    compression: Compression = Compression.NONE,
) -> Iterator[EncodedBatch]:
    """Yield batches of at most `batch_size` bytes before compression, or of one larger record.

    `keys` may be endless. The timestamp of all records is in ms.
    """
    tail = varint(len(headers)) + b"".join(
        [_field(name.encode()) + _field(data) for name, data in headers]
    )
    small, limit = _SMALL, _LIMIT
    room = batch_size - HEADER_SIZE - len(tail) - _OVERHEAD
    body, delta = bytearray(), 0
    for value, key in zip(values, keys, strict=False):
        head = _NULL if key is None else _field(key)
        if value is None:
            text = _NULL
        else:
            size = len(value)
            text = (small[size] if size < limit else varint(size)) + value
        if delta and len(body) + len(head) + len(text) > room:
            yield _batch(body, delta, timestamp, compression)
            body, delta = bytearray(), 0
        offset = small[delta] if delta < limit else varint(delta)
        record = b"\0\0%b%b%b%b" % (offset, head, text, tail)
        size = len(record)
        body += small[size] if size < limit else varint(size)
        body += record
        delta += 1
    if delta:
        yield _batch(body, delta, timestamp, compression)


def _field(data: bytes | None) -> bytes:
    return _NULL if data is None else varint(len(data)) + data


def _batch(body: bytearray, count: int, timestamp: int, compression: Compression) -> EncodedBatch:
    header = BatchHeader(
        base_offset=0,
        batch_length=0,
        partition_leader_epoch=-1,
        magic=MAGIC,
        crc=0,
        attributes=compression,
        last_offset_delta=count - 1,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
        record_count=count,
    )
    packed = compress(compression, body) if compression else body
    return EncodedBatch(pack_mutable_batch(header, packed), count)
