"""Batches as Arrow columns: every row is the one of the record-by-record decoder."""

import random
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from barnabas.client.batches import FetchedBatches
from barnabas.pipeline.columns import decode as module
from barnabas.pipeline.columns.decode import DamagedBatchError, decode
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.records.batch import (
    HEADER_SIZE,
    MAGIC,
    BatchHeader,
    iter_headers,
    pack_batch,
    read_header,
)
from barnabas.protocol.records.compression import Compression, compress
from barnabas.protocol.records.record import (
    Headers,
    Record,
    build_batch,
    decompress_records,
    iter_records,
    rewrite_batch,
)
from barnabas.protocol.records.varint import write_varint

Row = tuple[Any, ...]

ALL = (0, 2**62)
LAST_MS = (2**63 - 1) // 1000

every_codec = st.sampled_from(Compression)
payloads = st.none() | st.binary(max_size=20) | st.integers(60, 9000).map(bytes)
record_headers = st.lists(st.tuples(st.text(max_size=8), payloads), max_size=3).map(tuple)


@pytest.fixture
def _small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ROWS", 3)


def chunk(*batches: bytes) -> FetchedBatches:
    data = memoryview(b"".join(batches))
    return FetchedBatches(data, list(iter_headers(data)), 0, 0, 0, 0)


@st.composite
def batch_lists(
    draw: st.DrawFn, codecs: st.SearchStrategy[Compression] = every_codec
) -> list[bytes]:
    """Draw batches of all kinds, with gaps in them and between them."""
    offset = draw(st.integers(0, 2**40))
    batches = []
    for _ in range(draw(st.integers(1, 4))):
        records = []
        for _ in range(draw(st.integers(1, 8))):
            timestamp = draw(st.integers(-1, 2**45) | st.sampled_from([LAST_MS, -LAST_MS]))
            fields = (draw(payloads), draw(payloads), draw(record_headers))
            records.append(Record(offset, timestamp, *fields))
            offset += draw(st.integers(1, 3) | st.just(200))
        codec = draw(codecs)
        kind = draw(st.integers(0, 1))
        batch = build_batch(records, compression=codec, timestamp_type=kind)
        if draw(st.booleans()):
            header = read_header(batch)
            kept = [r for r in iter_records(batch, 0, header) if draw(st.booleans())]
            horizon = draw(st.none() | st.integers(0, 2**45))
            batch = rewrite_batch(header, kept, delete_horizon_ms=horizon)
        batches.append(batch)
    return batches


def one_by_one(fetched: FetchedBatches, start: int, end: int) -> Iterator[Row]:
    """Yield the rows that the record-by-record decoder gives."""
    for pos, header in fetched.visible:
        for record in iter_records(fetched.data, pos, header):
            if start <= record.offset < end:
                time = record.timestamp if abs(record.timestamp) <= LAST_MS else None
                yield (
                    *(record.key, record.value, "orders", 7, record.offset, time),
                    *(header.timestamp_type, record.headers or None),
                )


def rows_of(batch: pa.RecordBatch) -> list[Row]:
    batch.validate(full=True)
    columns = {name: batch.column(name) for name in batch.schema.names}
    columns["timestamp"] = columns["timestamp"].cast(pa.int64())
    rows = [list(row) for row in zip(*(each.to_pylist() for each in columns.values()), strict=True)]
    for row in rows:
        if row[5] is not None:
            assert row[5] % 1000 == 0
            row[5] //= 1000
        if len(row) == 8 and row[7] is not None:
            row[7] = tuple((each["key"], each["value"]) for each in row[7])
    return [tuple(row) for row in rows]


def until_an_error(
    read: Callable[[], Iterator[list[Row]]],
) -> tuple[list[Row], ProtocolError | None]:
    rows: list[Row] = []
    try:
        for some in read():
            rows += some
    except ProtocolError as error:
        return rows, error
    return rows, None


def by_columns(
    fetched: FetchedBatches, start: int = 0, end: int = 2**62
) -> tuple[list[Row], ProtocolError | None]:
    """Return the rows up to an error, and the error."""
    batches = decode([fetched], "orders", 7, start, end, headers=True, report=lambda _: None)
    return until_an_error(lambda: (rows_of(each) for each in batches))


@settings(max_examples=60)
@given(batch_lists())
def test_rows_are_those_of_single_records(batches: list[bytes]) -> None:
    fetched = chunk(*batches)
    assert by_columns(fetched) == (list(one_by_one(fetched, *ALL)), None)


@settings(max_examples=60)
@given(batch_lists(), st.data())
def test_range_begins_and_ends_at_any_offset(batches: list[bytes], data: st.DataObject) -> None:
    fetched = chunk(*batches)
    first, last = fetched.visible[0][1].base_offset, fetched.visible[-1][1].next_offset
    start = data.draw(st.integers(first - 1, last + 1))
    end = data.draw(st.integers(first - 1, last + 1))
    assert by_columns(fetched, start, end) == (list(one_by_one(fetched, start, end)), None)


@settings(max_examples=30)
@given(st.lists(batch_lists(), max_size=3))
def test_without_headers_the_schema_is_the_stock_connectors(chunks: list[list[bytes]]) -> None:
    fetched = [chunk(*batches) for batches in chunks]
    found = list(decode(iter(fetched), "orders", 7, *ALL, headers=False, report=pytest.fail))
    assert all(each.schema.equals(module.SCHEMA) and each.num_rows for each in found)
    rows = [row for each in found for row in rows_of(each)]
    assert rows == [row[:7] for each in fetched for row in one_by_one(each, *ALL)]


def damaged(batches: list[bytes], positions: list[tuple[float, int]]) -> FetchedBatches:
    """Change bytes of the decompressed records; the headers and their counts stay."""
    out = []
    for batch in batches:
        header = read_header(batch)
        body = bytearray(decompress_records(batch, 0, header))
        for position, byte in positions:
            if body:
                body[int(position * len(body))] = byte
        codec = Compression(header.compression)
        out.append(pack_batch(header, compress(codec, body)))
    return chunk(*out)


changes = st.lists(
    st.tuples(
        st.floats(0, 1, exclude_max=True),
        st.sampled_from([0, 1, 2, 3, 0x0C, 0x7F, 0x80, 0x81, 0xFF]) | st.integers(0, 255),
    ),
    min_size=1,
    max_size=3,
)


def check_damaged(fetched: FetchedBatches) -> None:
    """Compare rows and refusal with the record-by-record decoder's."""
    expected, refusal = until_an_error(
        lambda: ([row] for row in one_by_one(fetched, -(2**62), 2**62))
    )
    rows, error = by_columns(fetched, -(2**62))
    if error is not None and len(rows) < len(expected):
        # Refused here alone: the offset is another batch's.
        assert "outside the batch" in str(error)
        assert rows == expected[: len(rows)]
        return
    assert rows == expected
    assert (error is None) == (refusal is None)
    if ": record " in str(error) and "bytes are left" not in str(error):
        assert str(refusal) in str(error)


@pytest.mark.usefixtures("_small_slices")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batch_lists(st.sampled_from([Compression.NONE, Compression.LZ4])), changes)
def test_damaged_records_are_refused_where_the_single_decoder_refuses_them(
    batches: list[bytes], positions: list[tuple[float, int]]
) -> None:
    check_damaged(damaged(batches, positions))


@pytest.mark.parametrize(
    "record",
    [
        Record(1, 9, None, None),
        Record(1, 9, b"key", b"value"),
        Record(1, 9, b"", bytes(70), (("", None), ("name", b"")),),
        Record(1, 2000, None, b"", (("", b""),) * 11),
    ],
    ids=["smallest", "key and value", "headers", "many headers"],
)  # fmt: skip
def test_every_flipped_bit_is_handled_as_the_single_decoder_does(record: Record) -> None:
    batch = build_batch([Record(0, 9, None, b"v"), record, record._replace(offset=2)])
    for position in range(HEADER_SIZE, len(batch)):
        if batch[position - 2 : position + 3] == bytes(5):
            continue  # inside of a value
        for bit in range(8):
            flipped = bytearray(batch)
            flipped[position] ^= 1 << bit
            check_damaged(chunk(flipped, batch))


@settings(max_examples=200)
@given(st.binary(max_size=80), st.integers(-1, 12), st.sampled_from(Compression))
def test_any_bytes_are_decoded_or_refused(body: bytes, count: int, codec: Compression) -> None:
    header = BatchHeader(5, 0, 0, MAGIC, 0, codec, 100, 0, 0, -1, -1, -1, count)
    fetched = chunk(pack_batch(header, body))
    check_damaged(fetched)


@pytest.mark.usefixtures("_small_slices")
def test_damage_names_partition_batch_and_record_and_the_rows_before_it_are_there() -> None:
    good = build_batch([Record(offset, 9, b"k", b"v") for offset in range(10, 15)])
    body = bytearray(good[HEADER_SIZE:])
    body[9 * 4 + 4] = 0x7F  # the key's length in the last record
    bad = bytearray(pack_batch(read_header(good)._replace(base_offset=15), body))
    rows, error = by_columns(chunk(good, bad, good))
    assert [row[4] for row in rows] == list(range(10, 19))
    assert isinstance(error, DamagedBatchError)
    assert str(error) == (
        "orders-7: the batch at offset 15 is damaged: "
        "record 4: a field of -64 bytes does not fit its record"
    )
    assert (error.base_offset, error.next_offset) == (15, 20)


def test_reading_goes_on_behind_a_damaged_batch() -> None:
    def batch(offset: int) -> bytes:
        return build_batch([Record(offset, 9, None, b"v")], compression=Compression.ZSTD)

    bad = bytearray(batch(2))
    bad[HEADER_SIZE:] = bytes(len(bad) - HEADER_SIZE)
    fetched = chunk(batch(1), bad, batch(3))
    rows, error = by_columns(fetched)
    assert [row[4] for row in rows] == [1]
    assert isinstance(error, DamagedBatchError)
    rows, error = by_columns(fetched, error.next_offset)
    assert ([row[4] for row in rows], error) == ([3], None)


@pytest.mark.parametrize("count", [-1, 1, 2, 4, 1000, 2**31 - 1])
@pytest.mark.parametrize("codec", Compression)
def test_wrong_number_of_records_is_refused(count: int, codec: Compression) -> None:
    body = compress(codec, build_batch([Record(i, 9, None, b"v") for i in range(3)])[HEADER_SIZE:])
    header = BatchHeader(0, 0, 0, MAGIC, 0, codec, 2, 9, 9, -1, -1, -1, count)
    _, error = by_columns(chunk(pack_batch(header, body)))
    assert isinstance(error, DamagedBatchError)


def test_record_that_reaches_into_the_next_batch_is_refused() -> None:
    fields = b"\x00\x00\x00\x01" + pack_varint(100)
    first = pack_varint(len(fields) + 101) + fields + b"1234"
    header = BatchHeader(0, 0, 0, MAGIC, 0, 0, 0, 9, 9, -1, -1, -1, 1)
    second = build_batch([Record(1, 9, None, bytes(200))])
    rows, error = by_columns(chunk(pack_batch(header, first), second))
    assert rows == []
    assert "does not fit its batch" in str(error)


@pytest.mark.parametrize("delta", [-1, 1])
def test_offset_outside_its_batch_is_refused(delta: int) -> None:
    batch = bytearray(build_batch([Record(5, 9, None, b"v")]))
    batch[HEADER_SIZE + 3 : HEADER_SIZE + 4] = pack_varint(delta)
    rows, error = by_columns(chunk(batch))
    assert rows == []
    assert f"record 0: offset {5 + delta} is outside the batch" in str(error)


@pytest.mark.parametrize(
    ("length", "count", "reason"),
    [(None, 2**31 - 1, "2147483647 headers do not fit"), (2**31 - 1, 2**30 - 10, "record 0: ")],
)
def test_announced_headers_take_no_memory(length: int | None, count: int, reason: str) -> None:
    fields = b"\x00\x00\x00\x01\x01" + pack_varint(count) + bytes(10)
    header = BatchHeader(0, 0, 0, MAGIC, 0, 0, 0, 9, 9, -1, -1, -1, 1)
    body = pack_varint(len(fields) if length is None else length) + fields
    fetched = chunk(pack_batch(header, body))
    list(
        decode(
            [chunk(build_batch([Record(0, 0, None, None, ())]))],
            "t",
            0,
            *ALL,
            headers=True,
            report=pytest.fail,
        )
    )
    tracemalloc.start()
    try:
        _, error = by_columns(fetched)
        assert tracemalloc.get_traced_memory()[1] < 1024 * 1024
    finally:
        tracemalloc.stop()
    assert reason in str(error)


def pack_varint(value: int) -> bytes:
    out = bytearray()
    write_varint(out, value)
    return bytes(out)


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec])
def test_batch_decompresses_to_no_more_than_the_bound(codec: Compression) -> None:
    bomb = build_batch([Record(0, 9, None, bytes(3 * 1024 * 1024))], compression=codec)
    batches = decode(
        [chunk(bomb)], "orders", 7, *ALL, headers=False, report=pytest.fail, max_bytes=1024 * 1024
    )
    with pytest.raises(DamagedBatchError, match="compressed records are larger than"):
        next(batches)


def test_large_batch_is_returned_in_pieces() -> None:
    records = [Record(offset, 9, None, b"") for offset in range(100_000)]
    fetched = chunk(build_batch(records, compression=Compression.ZSTD))
    batches = list(decode([fetched], "orders", 7, *ALL, headers=False, report=pytest.fail))
    assert [each.num_rows for each in batches] == [32768, 32768, 32768, 1696]
    values = [Record(offset, 9, None, bytes(100_000)) for offset in range(100)]
    fetched = chunk(build_batch(values, compression=Compression.ZSTD))
    batches = list(decode([fetched], "orders", 7, *ALL, headers=False, report=pytest.fail))
    assert max(each.nbytes for each in batches) < 5 * 1024 * 1024
    assert sum(each.num_rows for each in batches) == 100


def many_headers(count: int) -> Headers:
    draw = random.Random(count)
    return tuple((f"h{i}", draw.choice([None, b"", bytes(300)])) for i in range(count))


@pytest.mark.parametrize("rows", [1, 20])
def test_record_may_have_many_headers(rows: int) -> None:
    records = [Record(i, 9, b"k", b"v", many_headers(5 + 100 * (i % 3))) for i in range(rows)]
    fetched = chunk(build_batch(records))
    assert by_columns(fetched) == (list(one_by_one(fetched, *ALL)), None)


@pytest.mark.parametrize("before", [0, 3, 20])
@pytest.mark.parametrize("damage", [b"\x01", b"\x03", b"\x7f", b"\x80\x80\x80\x80\x80"])
def test_damaged_header_is_refused_wherever_it_is(before: int, damage: bytes) -> None:
    record = build_batch([Record(0, 9, None, None, (("n", b""),) * (before + 1))])
    body = record[HEADER_SIZE + 1 :]
    at = len(body) - 3
    body = body[:at] + damage + body[at + 1 :]
    bad = pack_batch(read_header(record), pack_varint(len(body)) + body)
    rows, error = by_columns(chunk(bad))
    assert rows == []
    assert isinstance(error, DamagedBatchError)


def test_header_name_that_is_not_utf_8_is_refused() -> None:
    records = [Record(i, 9, None, b"v", (("good", b""), ("bad!", b""))) for i in range(3)]
    batch = build_batch(records)
    at = batch.rindex(b"bad!")
    fetched = chunk(batch[:at] + b"\xff" + batch[at + 1 :])
    rows, error = by_columns(fetched)
    assert [row[4] for row in rows] == [0, 1]
    assert "record 2: a header's name is not UTF-8" in str(error)


@example(LAST_MS + 1, 0)
@example(2**63 - 1, 2**62)
@example(-(2**63), -1)
@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_timestamp_that_spark_cannot_hold_is_null_and_named(base: int, delta: int) -> None:
    body = bytearray(1)
    for value in (delta, 0, -1, -1, 0):
        write_varint(body, value)
    header = BatchHeader(0, 0, 0, MAGIC, 0, 0, 0, base, 0, -1, -1, -1, 1)
    fetched = chunk(pack_batch(header, pack_varint(len(body)) + body))
    named: list[str] = []
    (batch,) = decode([fetched], "orders", 7, *ALL, headers=True, report=named.append)
    ((*_, time, _kind, _headers),) = rows_of(batch)
    if abs(base + delta) <= LAST_MS:
        assert (time, named) == (base + delta, [])
    else:
        text = f"a timestamp that Spark cannot hold, {base + delta} ms"
        assert (time, named) == (None, [f"orders-7: the record at offset 0 has {text}"])


def test_records_beside_one_whose_timestamp_spark_cannot_hold_are_whole() -> None:
    times = [9, LAST_MS + 1, 10, 2**63 - 1, 11]
    records = [Record(i, time, b"k", b"v%d" % i) for i, time in enumerate(times)]
    fetched = chunk(build_batch(records))
    named: list[str] = []
    for start, expected in ((0, times), (2, times[2:])):
        (batch,) = decode([fetched], "orders", 7, start, 99, headers=True, report=named.append)
        rows = rows_of(batch)
        assert [row[5] for row in rows] == [each if each <= LAST_MS else None for each in expected]
        assert [row[1] for row in rows] == [b"v%d" % i for i in range(start, 5)]
    assert named == [
        "orders-7: 2 records from offset 1 to 3 have timestamps that Spark cannot hold, "
        f"the first one {LAST_MS + 1} ms",
        f"orders-7: the record at offset 3 has a timestamp that Spark cannot hold, {2**63 - 1} ms",
    ]
