"""Framing of a byte stream, and the memory that it takes."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.frame import (
    LARGEST_IDLE_BUFFER,
    SMALLEST_BUFFER,
    FrameReader,
    SpareBuffers,
)


def framed(*bodies: bytes) -> bytes:
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


def drain(reader: FrameReader) -> list[bytes]:
    frames = []
    while (frame := reader.next_frame()) is not None:
        frames.append(bytes(frame))
    return frames


@given(
    bodies=st.lists(st.binary(max_size=40) | st.just(b"b" * 20_000), max_size=6),
    pieces=st.lists(st.integers(1, 30_000), max_size=12),
)
def test_frames_do_not_depend_on_how_the_stream_is_cut(
    bodies: list[bytes], pieces: list[int]
) -> None:
    stream, reader, found = framed(*bodies), FrameReader(1 << 20), []
    for size in [*pieces, len(stream)]:
        reader.feed(stream[:size])
        stream = stream[size:]
        found += drain(reader)
    assert found == bodies
    assert reader.buffered == 0


@given(bodies=st.lists(st.binary(max_size=3_000), max_size=30), size=st.integers(1, 9_000))
def test_reads_like_a_socket_writes_into_its_buffer(bodies: list[bytes], size: int) -> None:
    stream, reader, found = framed(*bodies), FrameReader(1 << 20), []
    while stream:
        room = reader.writable()
        count = min(size, len(room), len(stream))
        room[:count] = stream[:count]
        reader.wrote(count)
        stream = stream[count:]
        found += drain(reader)
    assert found == bodies


@given(bodies=st.lists(st.binary(max_size=3_000), min_size=5, max_size=30))
def test_keeps_frames_that_are_not_read_yet(bodies: list[bytes]) -> None:
    reader = FrameReader(1 << 20)
    reader.feed(framed(*bodies))
    assert drain(reader) == bodies


@pytest.mark.parametrize("size", [-1, -(2**31), 1001, 2**31 - 1])
def test_refuses_a_size_that_is_negative_or_too_large(size: int) -> None:
    reader = FrameReader(1000)
    reader.feed(size.to_bytes(4, "big", signed=True))
    with pytest.raises(ProtocolError):
        reader.next_frame()


def test_buffer_grows_with_received_bytes_not_with_the_claimed_size() -> None:
    reader = FrameReader(100 << 20)
    reader.feed((100 << 20).to_bytes(4, "big") + bytes(1000))
    reader.writable()
    assert reader.capacity == SMALLEST_BUFFER
    reader.feed(bytes(1 << 20))
    reader.writable()
    assert reader.capacity <= 5 << 20


def test_reads_ahead_more_for_a_peer_that_fills_its_buffer() -> None:
    reader = FrameReader(1 << 20)
    for _ in range(200):
        room = reader.writable()
        frames = framed(bytes(96)) * (len(room) // 100)
        room[: len(frames)] = frames
        room[len(frames) :] = framed(bytes(96))[: len(room) - len(frames)]
        reader.wrote(len(room))
        drain(reader)
        if reader.buffered:
            reader.feed(framed(bytes(96))[reader.buffered :])
            drain(reader)
    assert reader.capacity == LARGEST_IDLE_BUFFER


def test_gives_memory_back_after_a_large_frame() -> None:
    reader = FrameReader(10 << 20)
    reader.feed(framed(bytes(5 << 20)))
    assert len(drain(reader)[0]) == 5 << 20
    reader.writable()
    assert reader.capacity <= LARGEST_IDLE_BUFFER
    reader.trim()
    assert reader.capacity == SMALLEST_BUFFER
    reader.feed(framed(b"again"))
    assert drain(reader) == [b"again"]


def test_a_large_frame_that_comes_in_small_pieces_is_not_copied_with_each() -> None:
    reader, moves, capacity = FrameReader(64 << 20), 0, 0
    reader.feed((64 << 20).to_bytes(4, "big"))
    for _ in range(64):
        reader.feed(bytes(1 << 20))
        moves, capacity = moves + (reader.capacity != capacity), reader.capacity
    assert moves <= 6
    assert len(drain(reader)[0]) == 64 << 20


@pytest.mark.parametrize("in_use", [False, True])
def test_very_large_frame_grows_in_its_place_unless_a_view_of_it_is_in_use(in_use: bool) -> None:
    """To copy 32 MB of a frame held the event loop for 66 ms."""
    body = bytes(range(256)) * (48 << 12)
    reader, stream = FrameReader(64 << 20), framed(body)
    reader.feed(stream[: 9 << 20])
    first, capacity = reader._buffer, reader.capacity
    views = [reader.writable()]
    if not in_use:
        views.clear()
    reader.feed(stream[9 << 20 :])
    assert reader.capacity > capacity
    assert (reader._buffer is first) == (sys.platform == "linux" and not in_use)
    assert drain(reader) == [body]


def test_memory_of_a_large_frame_is_returned_before_more_bytes_arrive() -> None:
    reader = FrameReader(10 << 20)
    reader.feed(framed(bytes(5 << 20)) + b"\0")
    assert len(drain(reader)[0]) == 5 << 20
    reader.give_back()
    assert reader.capacity <= LARGEST_IDLE_BUFFER
    assert reader.borrowed == 0
    reader.feed(framed(b"again")[1:])
    assert drain(reader) == [b"again"]


@given(size=st.integers(1, 12 << 20), piece=st.integers(30_000, 5 << 20))
def test_borrowed_gives_the_size_of_the_next_buffer(size: int, piece: int) -> None:
    reader, stream = FrameReader(16 << 20), framed(bytes(size))
    while stream:
        borrowed = reader.borrowed
        room = reader.writable()
        assert borrowed == (reader.capacity if reader.capacity > LARGEST_IDLE_BUFFER else 0)
        count = min(piece, len(room), len(stream))
        room[:count] = stream[:count]
        reader.wrote(count)
        stream = stream[count:]
    assert len(drain(reader)[0]) == size


def test_trim_keeps_what_is_pending() -> None:
    reader = FrameReader(1 << 20)
    reader.feed(framed(b"whole") + framed(b"half")[:6])
    assert drain(reader) == [b"whole"]
    reader.trim()
    reader.feed(framed(b"half")[6:])
    assert drain(reader) == [b"half"]


def test_large_frames_of_many_readers_borrow_the_same_few_buffers() -> None:
    spares = SpareBuffers()
    body = bytes(range(256)) * 4096
    for _ in range(3):
        reader = FrameReader(2 << 20, spares)
        reader.feed(framed(body))
        assert drain(reader) == [body]
        reader.writable()
    borrowed = spares.take(len(body) + 4)
    assert borrowed[4 : 4 + len(body)] == body, "it has been used before"
    for size in (1, 2, 3, 4, 5, 6):
        spares.give(bytearray(size << 19))
    assert len(spares.take(1 << 19)) == 1 << 19, "only the youngest are kept"
