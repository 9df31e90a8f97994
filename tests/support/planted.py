"""Batches that cost more than their bytes suggest: bombs, and headers and records that lie."""

import struct
import zlib
from collections.abc import Callable
from functools import cache

import cramjam
from backports import zstd
from lz4 import frame

from barnabas.protocol.records.batch import MAGIC, BatchHeader, pack_batch
from barnabas.protocol.records.compression import Compression

NOW = 1_700_000_000_000
SHORTEST = b"\x0c\0\0\0\0\0\0"
"""The shortest record, with an empty key and offset delta 0."""
CODECS = [codec for codec in Compression if codec]


def raw_snappy(body: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(body))


def _gzip(body: bytes) -> bytes:
    stream = zlib.compressobj(9, wbits=31)
    return stream.compress(body) + stream.flush()


_TOOLS: dict[Compression, Callable[[bytes], bytes]] = {
    Compression.NONE: bytes,
    Compression.GZIP: _gzip,
    Compression.SNAPPY: raw_snappy,
    Compression.LZ4: frame.compress,
    Compression.ZSTD: zstd.compress,
}


def packed(codec: Compression, body: bytes) -> bytes:
    """Compress with another implementation than ours, as a producer would."""
    return _TOOLS[codec](body)


def batch_of(
    body: bytes, count: int, codec: Compression = Compression.NONE, **fields: int
) -> bytes:
    """Return a batch of records that are compressed already; `fields` of the header."""
    header = BatchHeader(0, 0, -1, MAGIC, 0, int(codec), count - 1, NOW, NOW, -1, -1, -1, count)
    return pack_batch(header._replace(**fields), body)


@cache
def crowd(codec: Compression, count: int) -> bytes:
    """Return a batch of very many short records, none of which has the header's last timestamp."""
    return batch_of(packed(codec, SHORTEST * count), count, codec, max_timestamp=NOW + 9)


@cache
def bomb(codec: Compression, size: int) -> bytes:
    """Return a batch with one record of about `size` bytes of zeros."""
    value = struct.pack(">B", 0) * size
    fields = b"\0\0\0\0" + _varint(size) + value + b"\0"
    return batch_of(packed(codec, _varint(len(fields)) + fields), 1, codec, max_timestamp=NOW + 9)


def _varint(value: int) -> bytes:
    out = bytearray()
    value <<= 1
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
