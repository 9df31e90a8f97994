"""The compression codecs of record batches, in pieces and with bounded memory.

`inflate` returns a batch piece by piece, so a bomb costs the memory of one piece and ends with an
error at the bound. Pieces also bound the time of a call: every library releases the GIL.

A stream is read as Kafka's Java libraries read it, in all that they skip and refuse, because what
they cannot read stops a Java consumer for good (`tests/referee/test_codecs.py` compares both).

Snappy is written with the framing of Java's xerial library, which Kafka's clients expect; both
framed and raw Snappy are read, because librdkafka may send it raw. LZ4 is written as frames of
independent blocks, because Kafka and the Java clients refuse other frames.
"""

import struct
import sys
from collections.abc import Generator, Iterator
from enum import IntEnum
from functools import cache
from itertools import islice
from typing import Any, Final, Protocol

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
_XERIAL_REST = struct.Struct(">4sii")
"""The rest of a header behind its first four bytes: the rest of the magic, and two versions."""
(_XERIAL_START,) = struct.unpack_from(">i", _XERIAL_MAGIC)
_SNAPPY_FRAMING = b"\xff\x06\x00\x00sNaPpY"
FIRST_BYTES: Final = len(_SNAPPY_FRAMING)
"""The bytes of a stream at which `unreadable` looks."""
_INT32 = struct.Struct(">i")
_INPUT = 16 * 1024
"""Compressed bytes that a stream gets at once: zlib copies what it has not used yet."""
_PIECES_AT_ONCE = 256
_BLOCKS_TO_SIZE = 512
"""The blocks of Snappy that are looked at in less than a millisecond: 16 MB of the Java clients."""
_ZSTD_FRAMES_TO_SIZE = 512
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_INDEPENDENT = 0x20
_LZ4_RESERVED = 0x03
"""The bits of a dictionary and of later versions: Java accepts neither of them."""
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
_JAVA_ZSTD_INPUT: Final = 128 * 1024 + 3
"""The bytes of a zstd stream that Java reads at once."""
_GZIP = 31
"""zlib's `wbits` for a gzip header and trailer."""
_RAW_DEFLATE: Final = -15
_GZIP_START = b"\x1f\x8b\x08"
_GZIP_HEADER: Final = 10
_GZIP_CHECKSUM, _GZIP_EXTRA, _GZIP_NAME, _GZIP_COMMENT = 2, 4, 8, 16
_GZIP_TRAILER: Final = struct.Struct("<II")


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


def inflate(
    codec: Compression, data: Buffer, max_size: int, max_block: int | None = None
) -> Iterator[bytes]:
    """Yield the decompressed bytes in pieces of at most PIECE bytes; a piece may be empty.

    Raises ProtocolError if `data` is damaged, or before more than `max_size` bytes exist. The
    memory of the stream is that of `inflation_memory`: a block of Snappy is decompressed as a
    whole, and may have `max_block` bytes.
    """
    view = memoryview(data)
    if not codec:
        if len(view) > max_size:
            raise _too_large(max_size)
        if len(view) <= PIECE:
            return iter((bytes(view),))
        return (bytes(view[at : at + PIECE]) for at in range(0, len(view), PIECE))
    if codec is Compression.SNAPPY:
        return _inflate_snappy(view, max_size, max_size if max_block is None else max_block)
    return _INFLATERS[codec](view, max_size)


def unreadable(codec: int, data: Buffer) -> str | None:
    """Return the reason for which Java reads no record of `data`, if its first bytes show it."""
    if codec == Compression.LZ4:
        is_frame = data[:4] == _LZ4_MAGIC and len(data) > 4
        return "LZ4 blocks that are linked" if is_frame and not data[4] & _LZ4_INDEPENDENT else None
    if codec == Compression.SNAPPY and data[: len(_SNAPPY_FRAMING)] == _SNAPPY_FRAMING:
        return "the Snappy framing format"
    return None


def inflation_memory(
    codec: Compression, data: Buffer, max_size: int, max_block: int | None = None
) -> int:
    """Return the bytes of memory that `inflate` takes at most, from the first bytes of `data`."""
    if codec is Compression.NONE:
        return 0
    if codec is Compression.SNAPPY:
        most = max_size if max_block is None else min(max_size, max_block)
        own = min(_largest_block(memoryview(data), most), most)
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


def _damaged(why: object) -> ProtocolError:
    return ProtocolError(f"compressed records are damaged: {why}")


class _Frames:
    """The frames of a stream, one after another, within one bound on their content."""

    def __init__(self, view: memoryview, max_size: int, failure: type[Exception]) -> None:
        self._view = view
        self._max_size = self._left = max_size
        self._failure = failure
        self.at = 0
        """The end of the last frame, and the start of the next one."""

    def content(self, stream: Any) -> Generator[bytes, None, bool]:
        """Yield the content of the next frame; return whether it is complete.

        `stream` has the interface that the decompressors of lz4 and zstd share.
        """
        start = self.at
        while start < len(self._view):
            # In steps of a fixed raster: a stream copies what is behind its end.
            stop = min(start - start % _INPUT + _INPUT, len(self._view))
            data: Buffer = self._view[start:stop]
            while True:
                try:
                    piece = stream.decompress(data, min(PIECE, self._left + 1))
                except self._failure as error:
                    raise _damaged(error) from None
                self._left -= len(piece)
                if self._left < 0:
                    raise _too_large(self._max_size)
                yield piece
                if stream.eof:
                    self.at = stop - len(stream.unused_data or b"")
                    return True
                if stream.needs_input:
                    break
                data = b""
            start = stop
        return False


def _inflate_lz4(view: memoryview, max_size: int) -> Iterator[bytes]:
    """Yield the content of the first frame: Java reads nothing behind it."""
    if view[:4] != _LZ4_MAGIC or len(view) < 5:
        raise _damaged("no LZ4 frame")
    if (why := unreadable(Compression.LZ4, view)) or view[4] & _LZ4_RESERVED:
        raise _damaged(why or "an LZ4 frame of a later version")
    frame = _lz4_frame()
    frames = _Frames(view, max_size, RuntimeError)
    if not (yield from frames.content(frame.LZ4FrameDecompressor())):
        raise _damaged("cut off")


def _inflate_zstd(view: memoryview, max_size: int) -> Iterator[bytes]:
    """Yield the content of all frames.

    Java ignores that the last of several frames is cut off, unless it has read more since the end
    of the one before.
    """
    zstd = _zstd()
    log = (_zstd_window(view) - 1).bit_length()
    largest = zstd.DecompressionParameter.window_log_max
    options = {largest: min(max(log, _MIN_WINDOW_LOG), _MAX_WINDOW_LOG)}
    frames = _Frames(view, max_size, zstd.ZstdError)
    while frames.at < len(view):
        stream = zstd.ZstdDecompressor(options=options)
        if not (yield from frames.content(stream)):
            last_read = (len(view) - 1) // _JAVA_ZSTD_INPUT * _JAVA_ZSTD_INPUT
            if frames.at <= last_read:
                raise _damaged("cut off")
            return


def _inflate_gzip(view: memoryview, max_size: int) -> Iterator[bytes]:
    """Yield the content of all members.

    Java ignores what follows a member and begins with no header. OpenJDK 17.0.15
    ignored a rest of up to 18 bytes, whatever it was, where its buffer ended; 17.0.21 does not.
    """
    frames = _Frames(view, max_size, _zlib().error)
    frames.at = _gzip_header_end(view, 0)
    if not frames.at:
        raise _damaged("no gzip header")
    while True:
        stream = _GzipDecompressor()
        complete = yield from frames.content(stream)
        end = frames.at + _GZIP_TRAILER.size
        if not complete or end > len(view):
            raise _damaged("cut off")
        if _GZIP_TRAILER.unpack_from(view, frames.at) != stream.trailer:
            raise _damaged("incorrect data check")
        frames.at = _gzip_header_end(view, end)
        if not frames.at:
            return


def _gzip_header_end(view: memoryview, at: int) -> int:
    """Return the end of the gzip header at `at` (RFC 1952, 2.3); 0 if other bytes are there."""
    start, end = at, at + _GZIP_HEADER
    if view[at : at + len(_GZIP_START)] != _GZIP_START or end > len(view):
        return 0
    flags = view[at + len(_GZIP_START)]
    if flags & _GZIP_EXTRA:
        end += 2 + int.from_bytes(view[end : end + 2], "little")
    for flag in (_GZIP_NAME, _GZIP_COMMENT):
        if flags & flag:
            end = _behind_zero(view, end)
    if flags & _GZIP_CHECKSUM:
        checksum = _zlib().crc32(view[start:end]) & 0xFFFF
        if int.from_bytes(view[end : end + 2], "little") != checksum:
            return 0
        end += 2
    return end if end <= len(view) else 0


def _behind_zero(view: memoryview, at: int) -> int:
    """Return the position behind the next zero; behind the end if no zero follows."""
    for start in range(at, len(view), _INPUT):
        found = bytes(view[start : start + _INPUT]).find(0)
        if found >= 0:
            return start + found + 1
    return len(view) + 1


class _GzipDecompressor:
    """zlib's stream of one gzip member without header and trailer, as the other streams are."""

    def __init__(self) -> None:
        self._stream = _zlib().decompressobj(_RAW_DEFLATE)
        self._checksum = self._size = 0
        self.needs_input = True

    @property
    def trailer(self) -> tuple[int, int]:
        """The trailer that belongs to the content."""
        return self._checksum, self._size & 0xFFFFFFFF

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
        self._checksum = _zlib().crc32(piece, self._checksum)
        self._size += len(piece)
        return piece


def _inflate_snappy(view: memoryview, max_size: int, max_block: int) -> Iterator[bytes]:
    if view[:8] != _XERIAL_MAGIC:
        yield from _pieces_of_block(view, min(max_size, max_block))
        return
    for block in _xerial_blocks(view):
        for piece in _pieces_of_block(block, min(max_size, max_block)) if block else (b"",):
            max_size -= len(piece)
            yield piece


def _xerial_blocks(view: memoryview) -> Iterator[memoryview]:
    """Yield the blocks of a stream in xerial's framing; a header that comes again is an empty one.

    As in Java, fewer bytes than the length of a block are ignored at the end. The stream ends at
    bytes that begin like a header and continue otherwise.
    """
    pos = len(_XERIAL_HEADER)
    while pos + _INT32.size <= len(view):
        (length,) = _INT32.unpack_from(view, pos)
        pos += _INT32.size
        if length == _XERIAL_START:
            if pos + _XERIAL_REST.size > len(view):
                raise ProtocolError("snappy header is cut off")
            rest, _, compatible = _XERIAL_REST.unpack_from(view, pos)
            if rest != _XERIAL_MAGIC[_INT32.size :]:
                return
            if compatible < 1:
                raise ProtocolError(f"snappy framing of version {compatible}")
            pos += _XERIAL_REST.size
            length = 0
        elif not 0 < length <= len(view) - pos:
            raise ProtocolError(f"a snappy block of {length} bytes is empty or cut off")
        yield view[pos : pos + length]
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
    blocks, largest = _xerial_blocks(view), 0
    try:
        for block in islice(blocks, _BLOCKS_TO_SIZE):
            largest = max(largest, _announced(block) if block else 0)
        return largest if next(blocks, None) is None else max_size
    except ProtocolError:
        # Reported when the block is decompressed.
        return largest


def _announced(block: memoryview) -> int:
    try:
        size: int = _cramjam().snappy.decompress_raw_len(block)
    except _cramjam().DecompressionError:
        # Reported when the block is decompressed.
        size = 0
    return size


def _zstd_window(view: memoryview) -> int:
    """Return the largest window of the frames of a zstd stream, in bytes; the largest that is
    allowed if there are very many frames."""
    largest = 0
    for _ in range(_ZSTD_FRAMES_TO_SIZE):
        largest = max(largest, _window_of_frame(view[:_ZSTD_LONGEST_HEADER]))
        try:
            view = view[_zstd().get_frame_size(view) :]
        except _zstd().ZstdError:
            # Reported when the frame is decompressed.
            return largest
        if not view:
            return largest
    return 1 << _MAX_WINDOW_LOG


def _window_of_frame(view: memoryview) -> int:
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


_INFLATERS: Final = {
    Compression.GZIP: _inflate_gzip,
    Compression.LZ4: _inflate_lz4,
    Compression.ZSTD: _inflate_zstd,
}


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
