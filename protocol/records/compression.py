"""The codecs of record batches. Output is bounded: a bomb costs an error, not memory.

Snappy is written with the framing of Java's xerial library, which Kafka's clients expect, and read
both so framed and raw, as librdkafka may send it.
"""

import struct
from collections.abc import Callable
from enum import IntEnum
from functools import cache
from typing import Any

from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.records.varint import Buffer


class Compression(IntEnum):
    """The codec in the low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


DEFAULT_LEVELS = {Compression.GZIP: 6, Compression.LZ4: 9, Compression.ZSTD: 3}

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK = 32 * 1024
_INT32 = struct.Struct(">i")
_LZ4_PIECE = 64 * 1024
_FIRST_GUESS = 64 * 1024


def compress(codec: Compression, data: Buffer, level: int | None = None) -> bytes:
    """`data` under `codec`; `level` as Kafka's `compression.<codec>.level`, its default if None."""
    if codec is Compression.NONE:
        return bytes(data)
    if codec is Compression.SNAPPY:
        return _compress_xerial(data)
    if level is None or (codec is Compression.GZIP and level == -1):
        level = DEFAULT_LEVELS[codec]
    if codec is Compression.LZ4:
        return _compress_lz4(data, level)
    return bytes(_library(codec).compress(data, level=level))


def decompress(codec: Compression, data: Buffer, max_size: int) -> bytes:
    """The inflated bytes; ProtocolError if they are damaged or more than `max_size`."""
    if codec is Compression.NONE:
        if len(data) > max_size:
            raise _too_large(max_size)
        return bytes(data)
    if codec is Compression.SNAPPY:
        return _decompress_snappy(data, max_size)
    return _grow(_library(codec).decompress_into, data, max_size)


def _grow(into: Callable[[Buffer, bytearray], int], data: Buffer, max_size: int) -> bytes:
    """Inflates into a buffer that grows fourfold up to the bound: the codecs never allocate."""
    size = min(max(4 * len(data), _FIRST_GUESS), max_size)
    while True:
        out = bytearray(size)
        try:
            return bytes(memoryview(out)[: into(data, out)])
        except _cramjam().DecompressionError as error:
            if "whole buffer" not in str(error):
                raise ProtocolError(f"compressed records are damaged: {error}") from None
            if size >= max_size:
                raise _too_large(max_size) from None
            size = min(size * 4, max_size)


def _too_large(max_size: int) -> ProtocolError:
    return ProtocolError(f"compressed records inflate to more than {max_size} bytes")


def _compress_xerial(data: Buffer) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = bytes(_cramjam().snappy.compress_raw(view[start : start + _XERIAL_BLOCK]))
        parts += (_INT32.pack(len(block)), block)
    return b"".join(parts)


def _compress_lz4(data: Buffer, level: int) -> bytes:
    # Kafka and the Java clients refuse frames whose blocks refer to the blocks before them.
    frame = _cramjam().lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    view = memoryview(data)
    for start in range(0, len(view), _LZ4_PIECE):
        # The library keeps the interpreter's lock meanwhile: other threads have their turns here.
        frame.compress(bytes(view[start : start + _LZ4_PIECE]))
    return bytes(frame.finish())


def _decompress_snappy(data: Buffer, max_size: int) -> bytes:
    view = memoryview(data)
    if view[:8] != _XERIAL_MAGIC:
        return _decompress_block(view, max_size)
    out = bytearray()
    pos = len(_XERIAL_HEADER)
    while pos < len(view):
        if pos + 4 > len(view):
            raise ProtocolError("snappy block header is cut off")
        (length,) = _INT32.unpack_from(view, pos)
        pos += 4
        if not 0 <= length <= len(view) - pos:
            raise ProtocolError("snappy block is cut off")
        out += _decompress_block(view[pos : pos + length], max_size - len(out))
        pos += length
    return bytes(out)


def _decompress_block(block: memoryview, max_size: int) -> bytes:
    try:
        # The block announces its size: believed only within the bound.
        if _cramjam().snappy.decompress_raw_len(block) > max_size:
            raise _too_large(max_size)
        return bytes(_cramjam().snappy.decompress_raw(block))
    except _cramjam().DecompressionError as error:
        raise ProtocolError(f"snappy block is damaged: {error}") from None


def _library(codec: Compression) -> Any:
    return getattr(_cramjam(), codec.name.lower())


@cache
def _cramjam() -> Any:
    # Here and not above: a broker that passes batches through as they are has no use for it.
    import cramjam

    return cramjam
