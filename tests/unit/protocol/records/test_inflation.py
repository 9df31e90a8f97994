"""Decompression in pieces: its output, its bounds, and bombs."""

import random
import struct
import subprocess
import sys
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lz4 import frame

from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.records.batch import read_header
from barnabas.protocol.records.compression import (
    MAX_RATIO,
    PIECE,
    Compression,
    compress,
    compressor,
    decompress,
    inflate,
    inflation_bound,
    inflation_memory,
    joined,
)
from barnabas.protocol.records.record import Record, build_batch, iter_records
from tests.support.planted import CODECS, XERIAL, packed, raw_snappy, xerial_block, zstd

MIXED = random.Random(1).randbytes(200_000) + bytes(500_000)
BOUND = inflation_bound(0)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [0, 1, PIECE - 1, PIECE, PIECE + 1, 700_000])
def test_pieces_are_the_whole_content(codec: Compression, size: int) -> None:
    for data in (compress(codec, MIXED[:size]), packed(codec, MIXED[:size])):
        pieces = list(inflate(codec, data, 700_000))
        assert b"".join(pieces) == MIXED[:size]
        assert all(len(piece) <= PIECE for piece in pieces)


@given(st.lists(st.binary(max_size=90_000), max_size=4), st.sampled_from(Compression))
def test_stream_of_parts_reads_back(parts: list[bytes], codec: Compression) -> None:
    stream = compressor(codec)
    data = b"".join([*map(stream.compress, parts), stream.flush()])
    assert decompress(codec, data, 1 << 20) == b"".join(parts)


GZIP = {each: packed(Compression.GZIP, each) for each in (b"one", b"", b"two")}
LZ4 = {each: packed(Compression.LZ4, each) for each in (b"one", b"two")}
ZSTD = {each: packed(Compression.ZSTD, each) for each in (b"one", b"", b"two")}
ONE, TWO = xerial_block(b"one"), xerial_block(b"two")
OLD_HEADER = XERIAL[:8] + bytes(8)
SKIPPABLE = struct.pack("<II", 0x184D2A50, 3) + b"abc"
# Each as Java reads it: tests/referee/test_codecs.py compares many more.
STREAMS = [
    (Compression.GZIP, GZIP[b"one"] + GZIP[b""] + GZIP[b"two"], b"onetwo"),
    (Compression.GZIP, GZIP[b"one"] + bytes(100), b"one"),
    (Compression.GZIP, GZIP[b"one"] + b"x", b"one"),
    (Compression.GZIP, GZIP[b"one"] + GZIP[b"two"][:9], b"one"),
    (Compression.GZIP, GZIP[b"one"] + GZIP[b"two"][:10], None),
    (Compression.GZIP, GZIP[b"one"] + GZIP[b"two"][:18], None),
    (Compression.GZIP, GZIP[b"one"][:-1], None),
    (Compression.GZIP, GZIP[b"one"][:-8] + GZIP[b"two"][-8:], None),
    (Compression.GZIP, b"x" + GZIP[b"one"], None),
    (Compression.SNAPPY, XERIAL + ONE + XERIAL + XERIAL + TWO + XERIAL, b"onetwo"),
    (Compression.SNAPPY, OLD_HEADER + ONE + TWO, b"onetwo"),
    (Compression.SNAPPY, XERIAL + ONE + OLD_HEADER + TWO, None),
    (Compression.SNAPPY, XERIAL + ONE + b"\x82SNAPPX" + bytes(8) + TWO, b"one"),
    (Compression.SNAPPY, XERIAL + ONE + XERIAL[:15], None),
    (Compression.SNAPPY, XERIAL + ONE + bytes(3), b"one"),
    (Compression.SNAPPY, XERIAL + ONE + bytes(4), None),
    (Compression.SNAPPY, XERIAL + ONE + TWO[:-1], None),
    (Compression.LZ4, LZ4[b"one"] + LZ4[b"two"], b"one"),
    (Compression.LZ4, LZ4[b"one"] + b"junk", b"one"),
    (Compression.LZ4, SKIPPABLE + LZ4[b"one"], None),
    (Compression.LZ4, LZ4[b"one"][:-1], None),
    (Compression.LZ4, frame.compress(MIXED, block_linked=True), None),
    (Compression.ZSTD, ZSTD[b"one"] + SKIPPABLE + ZSTD[b""] + ZSTD[b"two"], b"onetwo"),
    (Compression.ZSTD, SKIPPABLE + ZSTD[b"one"] + SKIPPABLE[:9], b"one"),
    (Compression.ZSTD, SKIPPABLE * 13_000 + ZSTD[b"one"] + ZSTD[b"two"][:3], b"one"),
    (Compression.ZSTD, ZSTD[b"one"] + SKIPPABLE * 13_000 + ZSTD[b"two"][:3], b"one"),
    (
        Compression.ZSTD,
        ZSTD[b"one"] + struct.pack("<II", 0x184D2A50, 200_000) + bytes(150_000),
        None,
    ),
    (Compression.ZSTD, ZSTD[b"one"] + b"x", None),
    (Compression.ZSTD, ZSTD[b"one"][:-1], None),
]


@pytest.mark.parametrize(("codec", "data", "content"), STREAMS)
def test_streams_are_read_as_java_reads_them(
    codec: Compression, data: bytes, content: bytes | None
) -> None:
    if content is not None:
        assert decompress(codec, data, 100) == content
        return
    with pytest.raises(ProtocolError):
        decompress(codec, data, len(MIXED))


@pytest.mark.parametrize("flags", range(32))
def test_optional_fields_of_a_gzip_header_are_skipped(flags: int) -> None:
    head = b"\x1f\x8b\x08" + bytes([flags]) + bytes(6)
    head += b"\x02\0ab" if flags & 4 else b""
    head += b"name\0" if flags & 8 else b""
    head += b"comment\0" if flags & 16 else b""
    checksum = struct.pack("<H", zlib.crc32(head) & 0xFFFF) if flags & 2 else b""
    member = head + checksum + GZIP[b"two"][10:]
    assert decompress(Compression.GZIP, GZIP[b"one"] + member, 100) == b"onetwo"
    if checksum:
        wrong = head + bytes([checksum[0] ^ 1]) + member[len(head) + 1 :]
        assert decompress(Compression.GZIP, GZIP[b"one"] + wrong, 100) == b"one"
        with pytest.raises(ProtocolError, match="no gzip header"):
            decompress(Compression.GZIP, wrong, 100)


def test_lz4_blocks_are_independent_as_kafka_requires() -> None:
    assert frame.get_frame_info(compress(Compression.LZ4, MIXED))["block_linked"] is False


def test_no_codec_exceeds_its_ratio() -> None:
    for codec in CODECS:
        assert len(packed(codec, bytes(1 << 24))) * MAX_RATIO[codec] >= 1 << 24


def test_bombs_of_every_codec_end_at_the_bound_and_take_little_memory() -> None:
    """32 KB became 3 GB. In a process of its own, so that the peak is that of the codecs."""
    program = f"""
import itertools, resource, sys
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.records.compression import Compression, compressor, inflate, joined
bombs = {{}}
for codec in (Compression.GZIP, Compression.LZ4, Compression.ZSTD):
    stream = compressor(codec)
    bombs[codec] = b"".join(stream.compress(bytes(1 << 16)) for _ in range(4096)) + stream.flush()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for codec, data in bombs.items():
    pieces = inflate(codec, data, {BOUND})
    size = 0
    try:
        while (piece := joined(pieces)) is not None:
            size += len(piece)
        sys.exit(f"{{codec}} came to an end")
    except ProtocolError as error:
        assert "larger than" in str(error), error
    assert {BOUND} - {2 * PIECE} <= size <= {BOUND}, size
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    # zstd keeps a window of 1 MB, and importing the libraries takes a few.
    assert int(ran.stdout) < 16 * 1024


def test_large_snappy_block_is_in_memory_once() -> None:
    """A copy of the block doubled it: 4 MB of a producer became 172 MB."""
    program = f"""
import resource, sys
from barnabas.protocol.records.compression import Compression, inflate
block = sys.stdin.buffer.read()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert sum(map(len, inflate(Compression.SNAPPY, block, {64 << 20}))) == {64 << 20}
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    ran = subprocess.run(
        [sys.executable, "-c", program],
        input=raw_snappy(bytes(64 << 20)),
        capture_output=True,
        check=True,
    )
    assert int(ran.stdout) < 80 * 1024


def test_snappy_block_that_announces_more_than_it_can_hold_is_refused() -> None:
    block = b"\x80\x80\x80\x0f" + bytes(40)
    for data in (block, XERIAL + struct.pack(">i", len(block)) + block):
        with pytest.raises(ProtocolError, match="announces"):
            decompress(Compression.SNAPPY, data, BOUND)
    assert inflation_memory(Compression.SNAPPY, block, BOUND) <= 22 * len(block) + PIECE


EMPTY_PARTS = {
    Compression.GZIP: packed(Compression.GZIP, b""),
    Compression.SNAPPY: xerial_block(b"") + XERIAL,
    Compression.ZSTD: struct.pack("<II", 0x184D2A50, 0),
}


@pytest.mark.parametrize("codec", EMPTY_PARTS)
def test_very_many_empty_frames_come_in_parts(codec: Compression) -> None:
    data = EMPTY_PARTS[codec] * 10_000
    pieces = inflate(codec, XERIAL + data if codec is Compression.SNAPPY else data, BOUND)
    calls = sum(1 for _ in iter(lambda: joined(pieces), None))
    assert calls >= 10_000 // 256


def test_memory_is_known_before_the_first_piece() -> None:
    small = b"k" * 1000
    for codec in CODECS:
        assert inflation_memory(codec, packed(codec, small), BOUND) <= 4 << 20
    assert inflation_memory(Compression.SNAPPY, raw_snappy(bytes(9 << 20)), BOUND) >= 9 << 20
    level = {zstd.CompressionParameter.window_log: 24}
    stream = zstd.ZstdCompressor(options=level)
    wide = stream.compress(MIXED * 40) + stream.flush()
    assert inflation_memory(Compression.ZSTD, wide, BOUND) >= 1 << 24


def test_later_zstd_frame_may_have_a_larger_window_which_is_known_before() -> None:
    stream = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 24})
    wide = stream.compress(MIXED * 40) + stream.flush()
    skippable = struct.pack("<II", 0x184D2A50, 0)
    for before in (b"", zstd.compress(b""), skippable, skippable * 10_000):
        data = before + wide
        assert len(decompress(Compression.ZSTD, data, BOUND)) == 40 * len(MIXED)
        assert inflation_memory(Compression.ZSTD, data, BOUND) >= 1 << 24


def test_memory_for_a_zstd_window_that_java_refuses_is_not_taken() -> None:
    stream = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 28})
    with pytest.raises(ProtocolError, match="memory"):
        decompress(Compression.ZSTD, stream.compress(MIXED) + stream.flush(), BOUND)


@pytest.mark.parametrize("codec", Compression)
def test_records_across_pieces_read_back(codec: Compression) -> None:
    sizes = [1, PIECE - 9, 3 * PIECE, 0, 200, *range(60, 70), 5 * PIECE]
    records = [Record(i, i, b"k" * i, MIXED[:size], (("h", b"v"),)) for i, size in enumerate(sizes)]
    batch = build_batch(records, compression=codec)
    assert list(iter_records(batch, 0, read_header(batch))) == records
