"""Record batches: our builder and reader, compared with two other implementations."""

import contextlib
import struct

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AioBatch
from hypothesis import given
from hypothesis import strategies as st
from kafka.record import MemoryRecords
from kafka.record.default_records import DefaultRecordBatchBuilder

from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.records.batch import (
    HEADER_SIZE,
    MAX_SEQUENCE,
    NO_SEQUENCE,
    CorruptRecordError,
    UnsupportedMagicError,
    crc_matches,
    iter_headers,
    read_header,
    set_append_time,
    set_base_offset_and_epoch,
    set_producer,
)
from barnabas.protocol.records.compression import Compression, compress, decompress
from barnabas.protocol.records.control import ControlType, TxnMarker, read_marker
from barnabas.protocol.records.record import Record, build_batch, iter_records
from barnabas.protocol.records.varint import read_varint, read_varlong, write_varint
from tests.support.markers import marker_batch

payloads = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=8), payloads), max_size=3).map(tuple)


@st.composite
def record_lists(draw: st.DrawFn) -> list[Record]:
    offset = draw(st.integers(0, 2**40))
    out = []
    for _ in range(draw(st.integers(1, 8))):
        timestamp = draw(st.integers(0, 2**45))
        out.append(Record(offset, timestamp, draw(payloads), draw(payloads), draw(headers)))
        offset += draw(st.integers(1, 5))
    return out


def records_of(batch: bytes) -> list[Record]:
    return list(iter_records(batch, 0, read_header(batch)))


@given(record_lists(), st.sampled_from(Compression))
def test_a_batch_reads_back_as_it_was_built(records: list[Record], codec: Compression) -> None:
    batch = build_batch(
        records, compression=codec, producer_id=7, producer_epoch=1, base_sequence=3
    )
    header = read_header(batch)
    assert header.size == len(batch)
    assert crc_matches(batch, 0, header)
    assert (header.base_offset, header.last_offset) == (records[0].offset, records[-1].offset)
    assert header.max_timestamp == max(record.timestamp for record in records)
    assert records_of(batch) == records


@given(record_lists(), st.booleans(), st.sampled_from([NO_SEQUENCE, 9]))
def test_bytes_equal_those_of_kafka_python(
    records: list[Record], transactional: bool, base_sequence: int
) -> None:
    records = [r._replace(offset=i) for i, r in enumerate(records)]
    foreign = DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=transactional, producer_id=5,
        producer_epoch=2, base_sequence=base_sequence, batch_size=1 << 20,
    )  # fmt: skip
    for r in records:
        foreign.append(r.offset, r.timestamp, r.key, r.value, list(r.headers))
    ours = build_batch(
        records, leader_epoch=0, producer_id=5, producer_epoch=2, base_sequence=base_sequence,
        transactional=transactional,
    )  # fmt: skip
    theirs = bytearray(foreign.build())
    set_base_offset_and_epoch(theirs, 0, 0, read_header(theirs).batch_length, 0)
    assert ours == bytes(theirs)


@given(record_lists(), st.sampled_from(Compression))
def test_kafka_python_and_aiokafka_read_every_codec(
    records: list[Record], codec: Compression
) -> None:
    batch = build_batch(records, compression=codec)
    foreign = next(iter(MemoryRecords(batch)))
    assert [(r.offset, r.timestamp, r.key, r.value) for r in foreign] == [r[:4] for r in records]
    aio = AioBatch(bytearray(batch))
    assert aio.validate_crc()
    assert [(r.offset, r.key, r.value) for r in aio] == [
        (r.offset, r.key, r.value) for r in records
    ]


@pytest.mark.parametrize("codec", [c for c in Compression if c])
def test_codecs_written_by_kafka_python_are_read(codec: Compression) -> None:
    foreign = DefaultRecordBatchBuilder(
        magic=2, compression_type=int(codec), is_transactional=False, producer_id=-1,
        producer_epoch=-1, base_sequence=-1, batch_size=1 << 20,
    )  # fmt: skip
    expected = [Record(i, 1000 + i, b"key", b"value" * i, (("h", b"x"),)) for i in range(50)]
    for r in expected:
        foreign.append(r.offset, r.timestamp, r.key, r.value, list(r.headers))
    assert records_of(bytes(foreign.build())) == expected


@pytest.mark.parametrize("codec", [c for c in Compression if c])
@pytest.mark.parametrize("size", [0, 1, 32 * 1024, 32 * 1024 + 1, 300_000])
def test_decompression_stops_at_the_bound(codec: Compression, size: int) -> None:
    deflated = compress(codec, bytes(size))
    assert decompress(codec, deflated, max(size, 1)) == bytes(size)
    if size:
        with pytest.raises(ProtocolError, match="larger than"):
            decompress(codec, deflated, size - 1)


def test_raw_snappy_as_librdkafka_may_send_it_is_read() -> None:
    import cramjam

    assert decompress(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(b"abc" * 9)), 99) == (
        b"abc" * 9
    )


@given(st.binary(max_size=300), st.sampled_from([c for c in Compression if c]))
def test_damaged_compressed_bytes_raise_only_protocol_errors(
    data: bytes, codec: Compression
) -> None:
    with contextlib.suppress(ProtocolError):
        assert len(decompress(codec, data, 10_000)) <= 10_000


@given(st.data())
def test_damaged_batches_raise_only_protocol_errors(data: st.DataObject) -> None:
    batch = bytearray(build_batch(data.draw(record_lists())))
    for _ in range(data.draw(st.integers(1, 4))):
        batch[data.draw(st.integers(0, len(batch) - 1))] = data.draw(st.integers(0, 255))
    del batch[data.draw(st.integers(0, len(batch))) :]
    try:
        for pos, header in iter_headers(batch):
            list(iter_records(batch, pos, header, max_bytes=100_000))
    except ProtocolError:
        pass


def test_every_flipped_bit_under_the_crc_is_noticed() -> None:
    batch = bytearray(build_batch([Record(0, 1, b"k", b"v")]))
    for bit in range(21 * 8, len(batch) * 8):
        batch[bit // 8] ^= 1 << bit % 8
        try:
            assert not crc_matches(batch, 0, read_header(batch))
        finally:
            batch[bit // 8] ^= 1 << bit % 8


def test_offset_and_leader_epoch_are_stamped_outside_the_crc() -> None:
    batch = bytearray(build_batch([Record(0, 1, b"k", b"v"), Record(1, 1, b"k", b"v")]))
    length = read_header(batch).batch_length
    set_base_offset_and_epoch(memoryview(batch), 0, 500, length, 9)
    header = read_header(batch)
    assert (header.base_offset, header.last_offset, header.partition_leader_epoch) == (500, 501, 9)
    assert crc_matches(batch, 0, header)


@pytest.mark.parametrize("transactional", [False, True])
def test_stamped_producer_gives_the_batch_that_was_built_for_it(transactional: bool) -> None:
    records = [Record(0, 1, b"k", b"v"), Record(1, 2, None, bytes(500))]
    codec = {"compression": Compression.ZSTD, "transactional": transactional}
    made = build_batch(records, producer_id=7, producer_epoch=3, base_sequence=9, **codec)
    before = build_batch(records, compression=Compression.ZSTD, transactional=not transactional)
    stamped = bytearray(b"front") + before + bytearray(b"behind")
    set_producer(stamped, 5, 7, 3, 9, transactional=transactional)
    assert stamped == b"front" + made + b"behind"


def test_log_append_time_counts_for_every_record() -> None:
    batch = bytearray(build_batch([Record(0, 1, b"k", b"v"), Record(1, 2, b"k", b"v")]))
    set_append_time(batch, 0, 777)
    header = read_header(batch)
    assert header.timestamp_type == 1
    assert crc_matches(batch, 0, header)
    assert [r.timestamp for r in records_of(bytes(batch))] == [777, 777]


def test_sequences_wrap_to_zero() -> None:
    batch = build_batch(
        [Record(i, 0, None, None) for i in range(3)],
        producer_id=1, producer_epoch=0, base_sequence=MAX_SEQUENCE - 1,
    )  # fmt: skip
    assert read_header(batch).last_sequence == 0


@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_formats_are_named_in_the_error(magic: int) -> None:
    short = struct.pack(">qiib", 0, 20, 0, magic) + bytes(20)
    with pytest.raises(UnsupportedMagicError, match=f"v{magic}"):
        read_header(short)
    with pytest.raises(UnsupportedMagicError, match=f"v{magic}"):
        read_header(short + bytes(100))


@pytest.mark.parametrize("length", [-1, 0, HEADER_SIZE - 13, 10_000, 2**31 - 1])
def test_an_impossible_length_is_refused(length: int) -> None:
    batch = bytearray(build_batch([Record(0, 1, b"k", b"v")]))
    struct.pack_into(">i", batch, 8, length)
    with pytest.raises(CorruptRecordError):
        read_header(batch)


@given(st.integers(-(2**63), 2**63 - 1))
def test_varlongs_round_trip(value: int) -> None:
    out = bytearray()
    write_varint(out, value)
    assert read_varlong(out, 0) == (value, len(out))
    if -(2**31) <= value < 2**31:
        assert read_varint(out, 0) == (value, len(out))
    else:
        with pytest.raises(ProtocolError):
            read_varint(out, 0)


@pytest.mark.parametrize("kind", ControlType)
def test_markers_read_back(kind: ControlType) -> None:
    batch = marker_batch(TxnMarker(8, 2, 12, bool(kind)), 3, offset=5)
    header = read_header(batch)
    assert header.is_control
    assert header.is_transactional
    assert header.base_sequence == -1
    assert read_marker(batch, 0, header) == TxnMarker(8, 2, 12, bool(kind))


@pytest.mark.parametrize("kind", ControlType)
def test_other_clients_read_a_marker_as_such(kind: ControlType) -> None:
    batch = marker_batch(TxnMarker(8, 2, 12, bool(kind)), 3, offset=5)
    theirs = MemoryRecords(batch).next_batch()
    assert theirs.validate_crc()
    assert theirs.is_control_batch
    assert theirs.is_transactional
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == (8, 2, -1)
    (record,) = theirs
    assert (record.abort, record.commit) == (not kind, bool(kind))
    aio = AioBatch(batch)
    assert aio.is_control_batch
    assert [(r.offset, r.timestamp, r.key, r.value) for r in aio] == [
        (5, 3, bytes.fromhex(f"0000 000{kind:d}"), bytes.fromhex("0000 0000000c"))
    ]
