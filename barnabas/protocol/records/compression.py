"""The compression codecs of record batches, in pieces and with bounded memory.

`inflate` returns a batch piece by piece, so a bomb costs the memory of one piece and ends with an
error at the bound. Pieces also bound the time of a call: every library releases the GIL.

Snappy is written with the framing of Java's xerial library, which Kafka's clients expect; both
framed and raw Snappy are read, because librdkafka may send it raw. LZ4 is written as frames of
independent blocks, because Kafka and the Java clients refuse other frames.
"""

import struct
import sys
from collections.abc import Callable, Iterator
from enum import IntEnum
from functools import cache, partial
from itertools import islice
from typing import Any, Protocol

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

PIECE = 64 * 1024
"""The bytes of a piece, compressed or decompressed. A codec takes less than a millisecond for it,
except zstd at its highest levels."""
MAX_RATIO = {
    Compression.NONE: 1,
    Compression.GZIP: 1032,
    Compression.SNAPPY: 22,
    Compression.LZ4: 255,
    Compression.ZSTD: 32 * 1024,
}
"""The most bytes that one compressed byte can become: a copy of 258 bytes in 2 bits, of 64 bytes in
3 bytes, of 255 more bytes in one, and a block of 128 KB of equal bytes in 4."""
_MIN_BOUND = 32 * 1024 * 1024
_BOUND_RATIO = 32

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK = 32 * 1024
_INT32 = struct.Struct(">i")
_INPUT = 16 * 1024
"""Compressed bytes that a stream gets at once: zlib copies what it has not used yet."""
_PIECES_AT_ONCE = 256
_BLOCKS_TO_SIZE = 512
"""The blocks of Snappy that are looked at in less than a millisecond: 16 MB of the Java clients."""
_LZ4_BLOCKS = 2 * 4 * 1024 * 1024
"""The largest block of LZ4, compressed and decompressed."""
_ZSTD_HEADER = struct.Struct("<IB")
_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_SINGLE_SEGMENT = 0x20
_ZSTD_LONGEST_HEADER = 18
_MIN_WINDOW_LOG, _MAX_WINDOW_LOG = 10, 27
"""The least that the library takes, and the most that the Java clients accept."""
_ZSTD_WINDOW_LOG = 20
"""The window of a zstd stream that is written: at level 22 the library takes 700 MB by itself."""
_GZIP = 31
"""zlib's `wbits` for a gzip header and trailer."""


class Compressor(Protocol):
    """A stream of one codec."""

    def compress(self, data: Any, /) -> bytes: ...

    def flush(self) -> bytes:
        """Return the rest; the stream cannot be used any more."""
        ...


def inflation_bound(batch_bytes: int) -> int:
    """Return the bytes that a batch may decompress to, if a batch may have `batch_bytes` bytes.

    That is 32 bytes for each byte, and at least 32 MiB.
    """
    return max(_BOUND_RATIO * batch_bytes, _MIN_BOUND)


def compressor(codec: Compression, level: int | None = None) -> Compressor:
    """Return a stream; `level` as in `compression.<codec>.level`, None for the codec's default."""
    if codec is Compression.NONE:
        return _Uncompressed()
    if codec is Compression.SNAPPY:
        return _XerialCompressor()
    if level is None or (codec is Compression.GZIP and level == -1):
        level = DEFAULT_LEVELS[codec]
    if codec is Compression.GZIP:
        compressing: Compressor = _zlib().compressobj(level, wbits=_GZIP)
    elif codec is Compression.LZ4:
        compressing = _Lz4Compressor(level)
    else:
        parameter = _zstd().CompressionParameter
        options = {parameter.compression_level: level, parameter.window_log: _ZSTD_WINDOW_LOG}
        compressing = _zstd().ZstdCompressor(options=options)
    return compressing


def compress(codec: Compression, data: Buffer, level: int | None = None) -> bytes:
    """Compress `data`; `level` as in `compressor`."""
    if codec is Compression.NONE:
        return bytes(data)
    if codec is Compression.ZSTD:
        whole: bytes = _zstd().compress(data, DEFAULT_LEVELS[codec] if level is None else level)
        return whole
    stream = compressor(codec, level)
    return stream.compress(data) + stream.flush()


def decompress(codec: Compression, data: Buffer, max_size: int) -> bytes:
    """Decompress `data`; raise ProtocolError if it is damaged or larger than `max_size` bytes."""
    pieces = list(inflate(codec, data, max_size))
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def inflate(codec: Compression, data: Buffer, max_size: int) -> Iterator[bytes]:
    """Yield the decompressed bytes in pieces of at most PIECE bytes; a piece may be empty.

    Raises ProtocolError if `data` is damaged, or before more than `max_size` bytes exist. The
    memory of the stream is that of `inflation_memory`: a block of Snappy is decompressed as a
    whole.
    """
    view = memoryview(data)
    if codec is Compression.NONE:
        if len(view) > max_size:
            raise _too_large(max_size)
        return (bytes(view[at : at + PIECE]) for at in range(0, len(view), PIECE))
    if codec is Compression.SNAPPY:
        return _inflate_snappy(view, max_size)
    if codec is Compression.GZIP:
        return _inflate_stream(_GzipDecompressor, _zlib().error, view, max_size)
    if codec is Compression.LZ4:
        frame = _lz4_frame()
        return _inflate_stream(frame.LZ4FrameDecompressor, RuntimeError, view, max_size)
    zstd = _zstd()
    # What is reserved is the window of the first frame: no later frame may have a larger one.
    log = (_zstd_window(view) - 1).bit_length()
    largest = zstd.DecompressionParameter.window_log_max
    options = {largest: min(max(log, _MIN_WINDOW_LOG), _MAX_WINDOW_LOG)}
    start = partial(zstd.ZstdDecompressor, options=options)
    return _inflate_stream(start, zstd.ZstdError, view, max_size)


def inflation_memory(codec: Compression, data: Buffer, max_size: int) -> int:
    """Return the bytes of memory that `inflate` takes at most, from the first bytes of `data`."""
    if codec is Compression.NONE:
        return 0
    if codec is Compression.SNAPPY:
        own = _largest_block(memoryview(data), max_size)
    elif codec is Compression.ZSTD:
        own = _zstd_window(memoryview(data))
    else:
        own = _LZ4_BLOCKS if codec is Compression.LZ4 else PIECE
    return min(own, MAX_RATIO[codec] * len(data), max_size) + PIECE


def joined(pieces: Iterator[bytes]) -> bytes | None:
    """Return about PIECE bytes of `inflate`; None at the end.

    A stream of very many empty or short pieces comes in parts too.
    """
    parts = []
    size = 0
    for piece in islice(pieces, _PIECES_AT_ONCE):
        parts.append(piece)
        size += len(piece)
        if size >= PIECE:
            break
    return b"".join(parts) if parts else None


def _too_large(max_size: int) -> ProtocolError:
    return ProtocolError(f"compressed records are larger than {max_size} bytes")


def _inflate_stream(
    start: Callable[[], Any], failure: type[Exception], view: memoryview, max_size: int
) -> Iterator[bytes]:
    """Yield the content of one or more frames, from streams that are alike in every codec."""
    left = max_size
    stream = start()
    for at in range(0, len(view), _INPUT):
        data: Buffer = view[at : at + _INPUT]
        while True:
            if stream.eof:
                if not data:
                    break
                stream = start()
            try:
                piece = stream.decompress(data, min(PIECE, left + 1))
            except failure as error:
                raise ProtocolError(f"compressed records are damaged: {error}") from None
            left -= len(piece)
            if left < 0:
                raise _too_large(max_size)
            yield piece
            if stream.eof:
                data = stream.unused_data or b""
            elif stream.needs_input:
                break
            else:
                data = b""
    if not stream.eof:
        raise ProtocolError("compressed records are damaged: cut off")


class _GzipDecompressor:
    """zlib's stream, with the interface of the others."""

    def __init__(self) -> None:
        self._stream = _zlib().decompressobj(_GZIP)
        self.needs_input = True

    @property
    def eof(self) -> bool:
        ended: bool = self._stream.eof
        return ended

    @property
    def unused_data(self) -> bytes:
        unused: bytes = self._stream.unused_data
        return unused

    def decompress(self, data: Buffer, max_length: int) -> bytes:
        piece: bytes = self._stream.decompress(data or self._stream.unconsumed_tail, max_length)
        self.needs_input = not self._stream.unconsumed_tail and len(piece) < max_length
        return piece


def _inflate_snappy(view: memoryview, max_size: int) -> Iterator[bytes]:
    if view[:8] != _XERIAL_MAGIC:
        yield from _pieces_of_block(view, max_size)
        return
    pos = len(_XERIAL_HEADER)
    while pos < len(view):
        if pos + 4 > len(view):
            raise ProtocolError("snappy block header is cut off")
        (length,) = _INT32.unpack_from(view, pos)
        pos += 4
        if not 0 <= length <= len(view) - pos:
            raise ProtocolError("snappy block is cut off")
        for piece in _pieces_of_block(view[pos : pos + length], max_size):
            max_size -= len(piece)
            yield piece
        pos += length


def _pieces_of_block(block: memoryview, max_size: int) -> Iterator[bytes]:
    """Yield the content of a block, which is in memory once: a copy of all of it would double it.

    An empty block is one empty piece.
    """
    whole = _decompress_block(block, max_size)
    for at in range(0, len(whole) or 1, PIECE):
        yield bytes(whole[at : at + PIECE])


def _decompress_block(block: memoryview, max_size: int) -> memoryview:
    try:
        # The size that the block announces is trusted only within the bounds.
        size = _cramjam().snappy.decompress_raw_len(block)
        if size > max_size:
            raise _too_large(max_size)
        if size > MAX_RATIO[Compression.SNAPPY] * len(block):
            raise ProtocolError(f"a snappy block of {len(block)} bytes announces {size}")
        return memoryview(_cramjam().snappy.decompress_raw(block))
    except _cramjam().DecompressionError as error:
        raise ProtocolError(f"snappy block is damaged: {error}") from None


def _largest_block(view: memoryview, max_size: int) -> int:
    """Return the size of the largest block of Snappy; `max_size` if there are very many."""
    if view[:8] != _XERIAL_MAGIC:
        return _announced(view)
    largest, pos = 0, len(_XERIAL_HEADER)
    for _ in range(_BLOCKS_TO_SIZE):
        if pos + 4 > len(view):
            return largest
        (length,) = _INT32.unpack_from(view, pos)
        largest = max(largest, _announced(view[pos + 4 : pos + 4 + max(length, 0)]))
        pos += 4 + max(length, 0)
    return max_size


def _announced(block: memoryview) -> int:
    try:
        size: int = _cramjam().snappy.decompress_raw_len(block)
    except _cramjam().DecompressionError:
        # Reported when the block is decompressed.
        size = 0
    return size


def _zstd_window(view: memoryview) -> int:
    """Return the window of a zstd frame in bytes (RFC 8878, 3.1.1.1); 0 if there is no header."""
    if len(view) < _ZSTD_LONGEST_HEADER:
        view = memoryview(bytes(view).ljust(_ZSTD_LONGEST_HEADER, b"\0"))
    magic, descriptor = _ZSTD_HEADER.unpack_from(view)
    if magic != _ZSTD_MAGIC:
        return 0
    if not descriptor & _ZSTD_SINGLE_SEGMENT:
        window = view[_ZSTD_HEADER.size]
        base = 1 << (10 + (window >> 3))
        return base + (base >> 3) * (window & 7)
    # The window is the whole content, whose size follows the id of the dictionary.
    at = _ZSTD_HEADER.size + (0, 1, 2, 4)[descriptor & 3]
    size = 1 << (descriptor >> 6)
    return int.from_bytes(view[at : at + size], "little") + (256 if size == 2 else 0)


class _Uncompressed:
    """The stream of no codec."""

    def compress(self, data: Buffer) -> bytes:
        return bytes(data)

    def flush(self) -> bytes:
        return b""


class _XerialCompressor:
    """Snappy in the framing of Java's xerial library."""

    def __init__(self) -> None:
        self._rest = b""
        self._head = _XERIAL_HEADER

    def compress(self, data: Buffer) -> bytes:
        view = memoryview(self._rest + bytes(data))
        whole = len(view) - len(view) % _XERIAL_BLOCK
        self._rest = bytes(view[whole:])
        return self._blocks(view[:whole])

    def flush(self) -> bytes:
        return self._blocks(memoryview(self._rest))

    def _blocks(self, view: memoryview) -> bytes:
        parts, self._head = [self._head], b""
        for start in range(0, len(view), _XERIAL_BLOCK):
            block = bytes(_cramjam().snappy.compress_raw(view[start : start + _XERIAL_BLOCK]))
            parts += (_INT32.pack(len(block)), block)
        return b"".join(parts)


class _Lz4Compressor:
    """An LZ4 frame of independent blocks."""

    def __init__(self, level: int) -> None:
        self._frame = _lz4_frame().LZ4FrameCompressor(compression_level=level, block_linked=False)
        self._head: bytes = self._frame.begin()

    def compress(self, data: Buffer) -> bytes:
        head, self._head = self._head, b""
        return head + bytes(self._frame.compress(data))

    def flush(self) -> bytes:
        return self._head + bytes(self._frame.flush())


# The libraries are imported when they are needed: a broker that passes batches through unchanged
# needs none of them.


@cache
def _zlib() -> Any:
    import zlib

    return zlib


@cache
def _lz4_frame() -> Any:
    from lz4 import frame

    return frame


@cache
def _zstd() -> Any:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd


@cache
def _cramjam() -> Any:
    import cramjam

    return cramjam
