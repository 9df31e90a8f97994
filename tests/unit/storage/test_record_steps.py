"""Records in steps: what one step may do, measured by counting, and what planted batches cost."""

import tracemalloc
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.replication.leader.record_work import LONG_CALL
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.records.batch import HEADER_SIZE, read_header
from barnabas.protocol.records.compression import PIECE, Compression, compress, inflation_bound
from barnabas.protocol.records.record import LONG, Record, build_batch, iter_records
from barnabas.protocol.records.varint import write_varint
from barnabas.storage.log import record_steps
from barnabas.storage.log.record_steps import (
    RECORDS_PER_STEP,
    Memory,
    TakesLong,
    at_once,
    briefly,
    call,
    each_record,
    longest_call,
)
from tests.support.planted import CODECS, SHORTEST, batch_of, bomb, crowd, packed, raw_snappy

BOUND = inflation_bound(1 << 20)
COUNT = 50_000


def write_bytes(data: bytes) -> bytes:
    """Return a field with its length."""
    out = bytearray()
    write_varint(out, len(data))
    return bytes(out + data)


class Walk(NamedTuple):
    """The steps of a walk over a batch: their work, and what they asked for."""

    visited: list[int]
    """Records, by step."""
    memory: int
    """The most that was asked for."""
    calls: int
    """Calls that a thread should make."""
    error: ProtocolError | None


def walk(batch: bytes, copy_to: Callable[[bytes], None] | None = None) -> Walk:
    """Take every step; count the records between two of them."""
    visited = [0]
    memory = calls = 0

    def visit(_record: Record) -> bool:
        visited[-1] += 1
        return False

    steps = each_record(batch, read_header(batch), BOUND, visit, copy_to)
    error = None
    try:
        step = next(steps)
        while True:
            visited.append(0)
            if callable(step):
                calls += 1
                step = call(steps, step)
                continue
            if isinstance(step, Memory):
                memory = max(memory, step.size)
            step = next(steps)
    except StopIteration:
        pass
    except ProtocolError as raised:
        error = raised
    return Walk(visited, memory, calls, error)


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the decompressed pieces."""
    sizes: list[int] = []

    def counting(parts: Iterator[bytes]) -> bytes | None:
        piece = record_steps_joined(parts)
        sizes.append(len(piece or b""))
        return piece

    record_steps_joined = record_steps.joined  # type: ignore[attr-defined]
    monkeypatch.setattr(record_steps, "joined", counting)
    return sizes


@pytest.mark.parametrize("codec", Compression)
def test_no_step_reads_more_than_a_few_hundred_records(codec: Compression) -> None:
    done = walk(crowd(codec, COUNT))
    assert done.error is None
    assert sum(done.visited) == COUNT
    assert max(done.visited) <= RECORDS_PER_STEP + 16


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
def test_only_first_piece_is_decompressed_outside_a_thread(
    codec: Compression, pieces: list[int]
) -> None:
    done = walk(crowd(codec, COUNT))
    assert max(pieces) <= 2 * PIECE
    assert done.calls == len(pieces) - 1


def test_block_of_snappy_is_decompressed_in_a_thread(pieces: list[int]) -> None:
    done = walk(batch_of(raw_snappy(SHORTEST * COUNT), COUNT, Compression.SNAPPY))
    assert max(pieces) <= PIECE
    assert done.calls == len(pieces)
    assert done.memory >= COUNT * len(SHORTEST)


@pytest.mark.parametrize("codec", CODECS)
def test_bomb_ends_at_the_bound_with_bounded_memory(codec: Compression) -> None:
    batch = bomb(codec, 64 << 20)
    tracemalloc.start()
    try:
        done = walk(batch)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert done.error is not None
    assert sum(done.visited) == 0
    assert peak < 4 << 20


@pytest.mark.parametrize("codec", Compression)
def test_long_record_is_checked_without_being_kept(codec: Compression) -> None:
    """A record of 24 MB was gathered and copied on the event loop, which took 80 ms."""
    batch = build_batch([Record(0, 1, b"k", bytes(8 << 20), (("h", b"v"),))], compression=codec)
    tracemalloc.start()
    try:
        done = walk(batch)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert done.error is None
    assert sum(done.visited) == 1
    assert peak < (2 << 20) + (9 << 20) * (codec is Compression.SNAPPY)


@pytest.mark.parametrize("codec", Compression)
def test_headers_of_a_record_are_checked_in_steps(codec: Compression) -> None:
    headers = (("", None),) * 20_000
    done = walk(build_batch([Record(0, 1, None, None, headers)], compression=codec))
    assert done.error is None
    assert len(done.visited) >= 20_000 // RECORDS_PER_STEP


@given(
    st.lists(st.sampled_from([0, 1, LONG - 20, LONG, 9_000, 70_000]), min_size=1, max_size=5),
    st.lists(st.tuples(st.text(max_size=4), st.none() | st.binary(max_size=9)), max_size=3),
    st.sampled_from(Compression),
    st.data(),
)
def test_check_refuses_what_a_reader_of_all_records_refuses(
    sizes: list[int],
    headers: list[tuple[str, bytes | None]],
    codec: Compression,
    data: st.DataObject,
) -> None:
    """The reader that keeps nothing agrees with the one that returns the records."""
    records = [
        Record(at, at, None if at % 2 else b"k" * 9, bytes(size), tuple(headers))
        for at, size in enumerate(sizes)
    ]
    whole = build_batch(records)
    body = bytearray(whole[HEADER_SIZE:])
    for _ in range(data.draw(st.integers(0, 2))):
        position = data.draw(st.integers(0, len(body) - 1) | st.integers(0, min(30, len(body) - 1)))
        body[position] = data.draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]))
    if data.draw(st.booleans()):
        del body[data.draw(st.integers(0, len(body) - 1)) :]
    batch = batch_of(packed(codec, bytes(body)), len(records), codec)
    header = read_header(batch)
    try:
        expected = [(r.offset, r.timestamp, r.key is None) for r in iter_records(batch, 0, header)]
    except ProtocolError:
        assert walk(batch).error is not None
        return
    seen: list[tuple[int, int, bool]] = []
    at_once(
        each_record(
            batch, header, BOUND, lambda r: seen.append((r.offset, r.timestamp, r.key is None))
        )
    )
    assert seen == expected


def test_uncompressed_records_are_not_copied_in_one_piece() -> None:
    sizes: list[int] = []
    walk(crowd(Compression.NONE, COUNT), lambda piece: sizes.append(len(piece)))
    assert sum(sizes) == COUNT * len(SHORTEST)
    assert max(sizes) <= PIECE


@pytest.mark.parametrize("codec", CODECS)
def test_long_work_is_not_done_briefly(codec: Compression) -> None:
    short = crowd(codec, RECORDS_PER_STEP - 1)
    briefly(each_record(short, read_header(short), BOUND, lambda _: False))
    for batch in (crowd(codec, RECORDS_PER_STEP), bomb(codec, 1 << 20)):
        with pytest.raises(TakesLong):
            briefly(each_record(batch, read_header(batch), BOUND, lambda _: False))


LONG_VALUE = write_bytes(bytes(2 * LONG))
LONG_LIES = {
    "bytes behind the headers": b"\0\0\0\x02k" + LONG_VALUE + b"\0\0",
    "no number of headers": b"\0\0\0\x02k" + LONG_VALUE,
    "-1 headers": b"\0\0\0\x02k" + LONG_VALUE + b"\x01",
    "2^31-1 headers": b"\0\0\0\x02k" + LONG_VALUE + b"\xfe\xff\xff\xff\x0f",
    "a header without a name": b"\0\0\0\x02k" + LONG_VALUE + b"\x02\x01\x01",
    "a header's name that is no text": b"\0\0\0\x02k" + LONG_VALUE + b"\x02\x04\xff\xff\x01",
    "a header's name that is cut within a letter": b"\0\0\0\x02k"
    + LONG_VALUE
    + b"\x02\x02\xc3\x01",
    "a header beyond the record": b"\0\0\0\x02k" + LONG_VALUE + b"\x02\x7eh\x01",
    "a key of -2 bytes": b"\0\0\0\x03k" + LONG_VALUE + b"\0",
    "a key beyond the record": b"\0\0\0\xfe\xff\x7fk" + LONG_VALUE + b"\0",
    "a value of -2 bytes": b"\0\0\0\x02k\x03" + LONG_VALUE + b"\0",
    "a varint of six bytes": b"\0\0\x80\x80\x80\x80\x80\x01\x02k" + LONG_VALUE + b"\0",
}


@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize("name", LONG_LIES)
def test_long_record_that_cannot_be_read_is_refused(name: str, codec: Compression) -> None:
    done = walk(batch_of(packed(codec, write_bytes(LONG_LIES[name])), 1, codec))
    assert done.error is not None
    assert sum(done.visited) == 0


def announced(batch: bytes) -> int:
    """Return the longest call that a walk over a batch announces."""
    step = next(each_record(batch, read_header(batch), BOUND, lambda _: False))
    assert isinstance(step, Memory)
    return step.call


def test_long_call_is_announced_before_it_is_made() -> None:
    """Others do not wait for it: see test_record_work.py."""
    body = SHORTEST * (1 << 20)
    single = batch_of(raw_snappy(body), 1 << 20, Compression.SNAPPY)
    assert len(body) <= announced(single) <= longest_call(read_header(single))
    # The Java clients write blocks of 32 KB, librdkafka one of a megabyte at most by default.
    blocks = batch_of(compress(Compression.SNAPPY, body), 1 << 20, Compression.SNAPPY)
    assert announced(blocks) <= 2 * PIECE
    brief = batch_of(raw_snappy(body[: 900 << 10]), 1, Compression.SNAPPY)
    assert announced(brief) <= LONG_CALL
    for codec in set(CODECS) - {Compression.SNAPPY}:
        assert announced(bomb(codec, 1 << 20)) <= PIECE
