"""Compressed streams, cut, joined, padded and framed in every way: ours and Java's agree.

Java reads a batch as a broker does that has to read the records, and as a consumer does.
"""

import base64
import random
import struct
import zlib
from collections.abc import Callable, Iterator
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lz4 import frame

from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.records.batch import read_header
from barnabas.protocol.records.compression import Compression, compress
from barnabas.protocol.records.record import (
    Record,
    build_batch,
    decompress_records,
    iter_records,
)
from tests.support.kafka import jvm
from tests.support.kafka.resident import Resident
from tests.support.planted import CODECS, XERIAL, batch_of, raw_snappy, xerial_block, zstd

SIZES = [0, 20, 500, 9_000, 70_000]
_RANDOM = random.Random(1)
_NOISE = [_RANDOM.randbytes(size) for size in SIZES]
JUNK = [b"", b"\0", b"\0\0\0", bytes(4), bytes(18), bytes(19), bytes(9_000), b"junk" * 9]
SKIPPABLE = struct.pack("<II", 0x184D2A51, 3) + b"abc"


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Resident]:
    with jvm.start(tmp_path_factory.mktemp("java") / "errors") as resident:
        yield resident


def _gzip(body: bytes, *, level: int = 6, flags: int = 0) -> bytes:
    """Return a member, with the optional fields of its header that `flags` name."""
    packer = zlib.compressobj(level, wbits=-15)
    head = b"\x1f\x8b\x08" + bytes([flags]) + bytes(6)
    head += b"\x02\0ab" if flags & 4 else b""
    head += b"name\0" if flags & 8 else b""
    head += b"comment\0" if flags & 16 else b""
    head += struct.pack("<H", zlib.crc32(head) & 0xFFFF) if flags & 2 else b""
    body_and_trailer = packer.compress(body) + packer.flush()
    return head + body_and_trailer + struct.pack("<II", zlib.crc32(body), len(body))


def _zstd(body: bytes, *, window: int = 0, sized: bool = True) -> bytes:
    if sized:
        return zstd.compress(body)
    options = {zstd.CompressionParameter.window_log: window} if window else {}
    stream = zstd.ZstdCompressor(options=options)
    return stream.compress(body) + stream.flush()


def _lz4(body: bytes, **options: bool) -> bytes:
    return frame.compress(body, **{"block_linked": False, **options})


Part = Callable[[bytes], bytes]
"""A way to make a frame of a part of the content."""
FRAMES: dict[Compression, st.SearchStrategy[Part]] = {
    Compression.GZIP: st.builds(
        lambda level, flags: lambda body: _gzip(body, level=level, flags=flags),
        st.sampled_from([0, 6]),
        st.integers(0, 31),
    ),
    Compression.SNAPPY: st.sampled_from([xerial_block, lambda body: XERIAL + xerial_block(body)]),
    Compression.LZ4: st.builds(
        lambda *flags: (
            lambda body: _lz4(
                body,
                block_linked=flags[0] and flags[1],
                block_checksum=flags[2],
                content_checksum=flags[3],
                store_size=flags[4],
            )
        ),
        *[st.booleans()] * 5,
    ),
    Compression.ZSTD: st.builds(
        lambda window, sized: lambda body: _zstd(body, window=window, sized=sized),
        st.integers(10, 29),
        st.booleans(),
    ),
}
BETWEEN = {
    Compression.GZIP: [_gzip(b"")],
    Compression.SNAPPY: [XERIAL, xerial_block(b""), XERIAL[:8] + bytes(8), b"\x82SNAPPX" + XERIAL],
    Compression.LZ4: [SKIPPABLE, _lz4(b"")],
    Compression.ZSTD: [SKIPPABLE, zstd.compress(b"")],
}
"""Bytes that may stand before, between and behind the frames."""


@st.composite
def streams(draw: st.DrawFn) -> tuple[Compression, bytes, int]:
    """Return a codec, a stream, and the number of records that a batch announces for it."""
    codec = draw(st.sampled_from(CODECS))
    values = [_NOISE[each] for each in draw(st.lists(st.integers(0, 4), min_size=1, max_size=3))]
    body = _body(tuple(values))
    cuts = sorted(draw(st.lists(st.integers(0, len(body)), max_size=2)))
    parts = [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    stream = b""
    for part in parts:
        stream += draw(st.sampled_from([b"", b"", *BETWEEN[codec]]))
        stream += draw(FRAMES[codec])(part)
    if codec is Compression.SNAPPY:
        stream = draw(st.sampled_from([XERIAL + stream] * 3 + [stream, raw_snappy(body)]))
    behind = draw(st.sampled_from([*JUNK, *BETWEEN[codec], draw(FRAMES[codec])(values[0])]))
    stream += behind[: draw(st.integers(0, len(behind)))]
    stream = stream[: len(stream) - draw(st.sampled_from([0, 0, 0, 1, 4, 9]))]
    return codec, stream, max(len(values) - draw(st.sampled_from([0, 0, 0, 0, 1])), 1)


@cache
def _body(values: tuple[bytes, ...]) -> bytes:
    batch = build_batch([Record(index, 1, None, value) for index, value in enumerate(values)])
    return decompress_records(batch, 0, read_header(batch))


def _ours(batch: bytes) -> list[bytes | None] | None:
    try:
        return [each.value for each in iter_records(batch, 0, read_header(batch))]
    except ProtocolError:
        return None


def _javas(java: Resident, batch: bytes) -> list[bytes] | None:
    """Return the values that Java reads; None if it refuses the batch."""
    found = java.call("records", batch=base64.b64encode(batch).decode())
    return None if found["error"] else [base64.b64decode(each) for each in found["values"]]


@pytest.fixture(scope="module")
def ignores_rests(java: Resident) -> bool:
    """Whether this is an older OpenJDK, which ignores a short rest where its buffer ends."""
    rest = _gzip(b"")[:10]
    values = (_RANDOM.randbytes(length) for length in range(8_140, 8_190))
    streams = (_gzip(_body((value,)), level=0) + rest for value in values)
    return any(_javas(java, batch_of(each, 1, Compression.GZIP)) is not None for each in streams)


@settings(max_examples=200)
@given(given=streams())
def test_streams_are_taken_if_java_takes_them(
    java: Resident, ignores_rests: bool, given: tuple[Compression, bytes, int]
) -> None:
    codec, stream, count = given
    batch = batch_of(stream, count, codec)
    ours = _ours(batch)
    is_ignored = ignores_rests and ours is None and b"\x1f\x8b\x08" in stream[-18:]
    assert is_ignored or _javas(java, batch) == ours


@pytest.mark.parametrize("size", [0, 9, 10, 18, 19, 20])
def test_gzip_member_that_is_cut_off_is_refused_wherever_javas_buffer_ends(
    java: Resident, ignores_rests: bool, size: int
) -> None:
    """OpenJDK 17.0.15 ignored 10 to 18 bytes of it at every 8,192nd byte: such a batch would stop
    the consumers on 17.0.21."""
    behind = _gzip(b"")[:size]
    for length in range(8_140, 8_190):
        value = _RANDOM.randbytes(length)
        batch = batch_of(_gzip(_body((value,)), level=0) + behind, 1, Compression.GZIP)
        ours = _ours(batch)
        assert ours == ([value] if size in (0, 9, 20) else None), length
        if not (ignores_rests and 10 <= size <= 18):
            assert _javas(java, batch) == ours, length


@pytest.mark.parametrize("size", [1, 131_074, 131_075, 131_076, 262_150])
def test_zstd_frame_that_is_cut_off_behind_what_java_has_read(java: Resident, size: int) -> None:
    """Java ignores it if its first bytes came together with the end of the frame before."""
    value = _RANDOM.randbytes(size)
    whole = zstd.compress(_body((value,)))
    for behind in (SKIPPABLE[:-1], zstd.compress(b"")[:-1], SKIPPABLE * 13_000 + SKIPPABLE[:5]):
        batch = batch_of(whole + behind, 1, Compression.ZSTD)
        assert _ours(batch) == _javas(java, batch)


def test_own_streams_are_read_by_java(java: Resident) -> None:
    for codec in CODECS:
        for size in (0, 100, 200_000):
            batch = batch_of(compress(codec, _body((bytes(size),))), 1, codec)
            assert _javas(java, batch) == [bytes(size)]
