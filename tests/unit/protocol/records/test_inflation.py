"""Decompression in pieces: its output, its bounds, and bombs."""

import random
import struct
import subprocess
import sys

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
from tests.support.planted import CODECS, packed, raw_snappy, zstd

MIXED = random.Random(1).randbytes(200_000) + bytes(500_000)
XERIAL = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
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


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
def test_frames_behind_each_other_are_one_stream(codec: Compression) -> None:
    data = packed(codec, b"one") + packed(codec, b"") + packed(codec, b"two")
    assert decompress(codec, data, 100) == b"onetwo"
    for cut in (data[:-1], data + b"x"):
        with pytest.raises(ProtocolError):
            decompress(codec, cut, 100)


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
    Compression.SNAPPY: struct.pack(">i", 1) + b"\0",
    Compression.LZ4: packed(Compression.LZ4, b""),
    Compression.ZSTD: struct.pack("<II", 0x184D2A50, 0),
}


@pytest.mark.parametrize("codec", CODECS)
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


def test_later_zstd_frame_cannot_have_a_larger_window() -> None:
    stream = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 24})
    wide = stream.compress(MIXED * 40) + stream.flush()
    assert len(decompress(Compression.ZSTD, wide, BOUND)) == 40 * len(MIXED)
    with pytest.raises(ProtocolError, match="damaged"):
        decompress(Compression.ZSTD, zstd.compress(b"k") + wide, BOUND)


@pytest.mark.parametrize("codec", Compression)
def test_records_across_pieces_read_back(codec: Compression) -> None:
    sizes = [1, PIECE - 9, 3 * PIECE, 0, 200, *range(60, 70), 5 * PIECE]
    records = [Record(i, i, b"k" * i, MIXED[:size], (("h", b"v"),)) for i, size in enumerate(sizes)]
    batch = build_batch(records, compression=codec)
    assert list(iter_records(batch, 0, read_header(batch))) == records
