"""Batches that cost more than their bytes suggest: bombs, and headers and records that lie."""

import struct
import sys
import zlib
from collections.abc import Callable
from functools import cache, partial

import cramjam
from lz4 import frame

from barnabas.protocol.records.batch import HEADER_SIZE, MAGIC, BatchHeader, pack_batch
from barnabas.protocol.records.compression import Compression, compressor

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

NOW = 1_700_000_000_000
SHORTEST = b"\x0c\0\0\0\0\0\0"
"""The shortest record, with an empty key and offset delta 0."""
CODECS = [codec for codec in Compression if codec]
ENDLESS = 1 << 28
"""More than a batch of 4 MB may decompress to."""
XERIAL = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
_ZEROS = bytes(1 << 16)


def raw_snappy(body: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(body))


def xerial_block(body: bytes) -> bytes:
    """Return a block for the framing of Java's xerial library, which begins with XERIAL."""
    block = raw_snappy(body)
    return struct.pack(">i", len(block)) + block


def _gzip(body: bytes) -> bytes:
    stream = zlib.compressobj(9, wbits=31)
    return stream.compress(body) + stream.flush()


_TOOLS: dict[Compression, Callable[[bytes], bytes]] = {
    Compression.NONE: bytes,
    Compression.GZIP: _gzip,
    Compression.SNAPPY: raw_snappy,
    # Without the option its blocks are linked.
    Compression.LZ4: partial(frame.compress, block_linked=False),
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
    head, tail = _around(size)
    return batch_of(packed(codec, head + bytes(size) + tail), 1, codec, max_timestamp=NOW + 9)


@cache
def endless_bomb(codec: Compression, most: int) -> bytes:
    """Return a batch of at most `most` bytes with one record that inflates to a quarter of a GB.

    Snappy shrinks to a 21st at best: its record is as long as `most` allows, in a single block.
    """
    if codec is Compression.SNAPPY:
        return bomb(codec, 20 * most)
    head, tail = _around(ENDLESS)
    stream = compressor(codec)
    parts = [stream.compress(head)]
    parts += [stream.compress(_ZEROS) for _ in range(ENDLESS // len(_ZEROS))]
    body = b"".join([*parts, stream.compress(tail), stream.flush()])
    batch = batch_of(body, 1, codec, max_timestamp=NOW + 9)
    assert len(batch) <= most
    return batch


def nested_bomb(codec: Compression, most: int) -> bytes:
    """Return a batch whose only record has the body of an endless bomb as its value."""
    value = endless_bomb(codec, most)[HEADER_SIZE:]
    head, tail = _around(len(value))
    return batch_of(packed(codec, head + value + tail), 1, codec, max_timestamp=NOW + 9)


def old_format(codec: Compression, body: bytes) -> bytes:
    """Return a message of format 1 around compressed ones, as Kafka had them before format 2."""
    fields = struct.pack(">bbqii", 1, int(codec), NOW, -1, len(body)) + body
    message = struct.pack(">I", zlib.crc32(fields)) + fields
    return struct.pack(">qi", 0, len(message)) + message


def _around(size: int) -> tuple[bytes, bytes]:
    """Return what is before and behind the value of `size` bytes of a record with an empty key."""
    fields = b"\0\0\0\0" + _varint(size)
    return _varint(len(fields) + size + 1) + fields, b"\0"


def _varint(value: int) -> bytes:
    out = bytearray()
    value <<= 1
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
