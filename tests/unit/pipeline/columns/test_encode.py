"""Arrow columns as batches: the bytes are those that the record-by-record encoder writes."""

from itertools import accumulate
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.client.producer import EncodedBatch
from barnabas.pipeline.columns import encode as module
from barnabas.pipeline.columns.encode import RecordTooLargeError, encode
from barnabas.protocol.records.batch import HEADER_SIZE, crc_matches, read_header
from barnabas.protocol.records.compression import Compression
from barnabas.protocol.records.record import Record, build_batch, iter_records

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

payloads = st.none() | st.binary(max_size=20) | st.integers(60, 300).map(bytes)
record_lists = st.lists(
    st.builds(
        Record,
        st.just(0),
        st.integers(0, 2**45) | st.integers(1000, 1100),
        payloads,
        payloads,
        st.lists(st.tuples(st.text(max_size=8), payloads), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=12,
)


def columns_of(
    records: list[Record], text: pa.DataType | None = None
) -> tuple[pa.Array, pa.Array, pa.Array, pa.Array]:
    headers = [
        [{"key": key, "value": value} for key, value in record.headers] or None
        for record in records
    ]
    return (
        pa.array([record.key for record in records], pa.binary()).cast(text or pa.binary()),
        pa.array([record.value for record in records], pa.binary()),
        pa.array(headers, HEADERS),
        pa.array([record.timestamp for record in records], pa.int64()),
    )


def check(
    records: list[Record], batches: list[EncodedBatch], codec: Compression, limit: int
) -> None:
    """Compare each batch with that of the record-by-record encoder."""
    done = 0
    for batch in batches:
        own = records[done : done + batch.count]
        own = [record._replace(offset=offset) for offset, record in enumerate(own)]
        assert batch.data == build_batch(own, compression=codec)
        header = read_header(batch.data)
        assert crc_matches(batch.data, 0, header)
        assert list(iter_records(batch.data, 0, header)) == own
        assert batch.count == 1 or len(build_batch(own)) <= limit
        done += batch.count
    assert done == len(records)


@given(record_lists, st.sampled_from(Compression), st.integers(1, 2000))
def test_batches_are_those_of_single_records(
    records: list[Record], codec: Compression, limit: int
) -> None:
    batches = list(encode(*columns_of(records), compression=codec, max_batch_bytes=limit))
    check(records, batches, codec, limit)


@settings(max_examples=50)
@given(record_lists, record_lists, st.integers(1, 2000))
def test_batches_end_with_the_run_of_their_partition(
    first: list[Record], second: list[Record], limit: int
) -> None:
    batches = list(
        encode(
            *columns_of(first + second),
            compression=Compression.NONE, max_batch_bytes=limit, runs=[0, len(first)],
        )
    )  # fmt: skip
    ends = list(accumulate(each.count for each in batches))
    own = ends.index(len(first)) + 1
    check(first, batches[:own], Compression.NONE, limit)
    check(second, batches[own:], Compression.NONE, limit)


@settings(max_examples=50)
@given(record_lists, st.integers(0, 11), st.booleans())
def test_columns_may_be_slices_and_have_no_headers(
    records: list[Record], start: int, with_headers: bool
) -> None:
    keys, values, headers, timestamps = (each[start:] for each in columns_of(records))
    given_headers = headers if with_headers else None
    wanted = records[start:]
    if not with_headers:
        wanted = [record._replace(headers=()) for record in wanted]
    batches = encode(
        keys, values, given_headers, timestamps,
        compression=Compression.NONE, max_batch_bytes=500,
    )  # fmt: skip
    check(wanted, list(batches), Compression.NONE, 500)


def test_lists_of_null_rows_may_hold_values() -> None:
    """Arrow allows them, and engines that filter by validity write them."""
    flat = pa.StructArray.from_arrays(
        [pa.array(["a", "b", "c"]), pa.array([b"1", b"2", b"3"])], ["key", "value"]
    )
    bounds = pa.py_buffer(pa.array([0, 1, 2, 3], pa.int32()).buffers()[1])
    valid = pa.py_buffer(bytes([0b101]))
    headers = pa.Array.from_buffers(HEADERS, 3, [valid, bounds], children=[flat])
    _, values, _, timestamps = columns_of([Record(0, 5, None, b"v")] * 3)
    (batch,) = encode(
        pa.nulls(3, pa.binary()), values, headers, timestamps,
        compression=Compression.NONE, max_batch_bytes=500,
    )  # fmt: skip
    read = iter_records(batch.data, 0, read_header(batch.data))
    assert [record.headers for record in read] == [(("a", b"1"),), (), (("c", b"3"),)]


def test_strings_are_written_as_utf_8() -> None:
    records = [Record(0, 5, "ключ".encode(), b"v"), Record(0, 6, None, b"v")]
    batches = encode(
        *columns_of(records, pa.string()), compression=Compression.NONE, max_batch_bytes=500
    )
    check(records, list(batches), Compression.NONE, 500)


def test_batches_are_as_large_as_the_bound_allows() -> None:
    records = [Record(0, 5, None, bytes(100))] * 1000
    batches = list(
        encode(*columns_of(records), compression=Compression.NONE, max_batch_bytes=10_000)
    )
    check(records, batches, Compression.NONE, 10_000)
    assert min(len(each.data) for each in batches[:-1]) > 9_700


def test_rows_are_joined_a_few_batches_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The copies of the rows would take as much memory as the rows."""
    joined = []

    def join(columns: Any, bounds: Any) -> pa.Array:
        joined.append(int(columns.sizes.sum()))
        return original(columns, bounds)

    original = module._join_records
    monkeypatch.setattr(module, "_join_records", join)
    monkeypatch.setattr(module, "_STRETCH", 1000)
    records = [Record(0, offset, b"%d" % offset, bytes(offset)) for offset in range(200)]
    batches = encode(*columns_of(records), compression=Compression.NONE, max_batch_bytes=600)
    check(records, list(batches), Compression.NONE, 600)
    assert len(joined) > 10
    assert max(joined) < 1000 + 600


def test_row_that_exceeds_the_bound_has_a_batch_of_its_own() -> None:
    records = [Record(0, 5, None, bytes(size)) for size in (10, 10, 5000, 10)]
    batches = encode(*columns_of(records), compression=Compression.NONE, max_batch_bytes=1000)
    assert [each.count for each in batches] == [2, 1, 1]


def test_no_rows_are_no_batch() -> None:
    columns = columns_of([])
    assert list(encode(*columns, compression=Compression.NONE, max_batch_bytes=1000)) == []


def test_row_that_no_batch_can_hold_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LARGEST", 3000)
    records = [Record(0, 5, None, bytes(size)) for size in (10, 5000)]
    with pytest.raises(RecordTooLargeError, match=r"row 1 has 50\d\d bytes") as caught:
        list(encode(*columns_of(records), compression=Compression.NONE, max_batch_bytes=1000))
    assert caught.value.row == 1


@pytest.mark.parametrize("header", [{"key": None, "value": b""}, None])
def test_header_without_a_key_is_refused(header: "dict[str, bytes | None] | None") -> None:
    keys, values, _, timestamps = columns_of([Record(0, 5, None, b"v")])
    headers = pa.array([[header]], HEADERS)
    batches = encode(
        keys, values, headers, timestamps, compression=Compression.NONE, max_batch_bytes=1000
    )
    with pytest.raises(ValueError, match="a header has no key"):
        next(batches)


def test_compression_has_the_level_that_is_asked_for() -> None:
    text = b"".join(b"%d," % (number * number) for number in range(20_000))
    columns = columns_of([Record(0, 5, None, text)])
    fast, best = (
        next(encode(*columns, compression=Compression.GZIP, max_batch_bytes=1000, level=level))
        for level in (1, 9)
    )
    assert HEADER_SIZE < len(best.data) < len(fast.data)
