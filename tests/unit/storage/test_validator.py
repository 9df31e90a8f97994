"""The batches that a log refuses, by error, and those that it accepts unchanged."""

import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from struct import pack_into, unpack_from

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lz4 import frame

from barnabas.config.broker import BrokerConfig
from barnabas.config.topic import TopicConfig
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import (
    HEADER_SIZE,
    LOG_APPEND_TIME,
    BatchHeader,
    crc_matches,
    pack_batch,
    read_header,
)
from barnabas.protocol.records.compression import MAX_RATIO, Compression, inflation_bound
from barnabas.protocol.records.control import TxnMarker
from barnabas.protocol.records.record import Record, build_batch, iter_records
from barnabas.protocol.records.varint import write_varint
from barnabas.storage.log.validator import (
    RecordsRefused,
    Rules,
    Validated,
    check_codec_of_version,
    validate,
)
from barnabas.storage.origin import Origin
from tests.support.planted import CODECS, batch_of, bomb, packed, raw_snappy

NOW = 1_700_000_000_000
RULES = Rules(max_message_bytes=100_000, segment_bytes=1_000_000)
RECORDS = [Record(i, NOW + i, b"key-%d" % i, b"value") for i in range(3)]
BATCH = build_batch(RECORDS)


def judge(data: bytes, rules: Rules = RULES, origin: Origin = Origin.CLIENT) -> Validated:
    return validate(data, rules, origin=origin, now_ms=NOW)


def refusal(data: bytes, rules: Rules = RULES, origin: Origin = Origin.CLIENT) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        judge(data, rules, origin)
    return caught.value.code


def changed(batch: bytes = BATCH, **fields: int) -> bytes:
    """Return a batch with other header fields and a matching CRC."""
    return pack_batch(read_header(batch)._replace(**fields), batch[HEADER_SIZE:])


def test_a_good_batch_passes_without_a_copy() -> None:
    view = memoryview(BATCH)
    data, header = validate(view, RULES, origin=Origin.CLIENT, now_ms=NOW)
    assert data is view
    assert header == read_header(BATCH)


@pytest.mark.parametrize("cut", [0, 5, 30, len(BATCH) - 1])
def test_a_client_must_send_a_whole_batch(cut: int) -> None:
    assert refusal(BATCH[:cut]) is ErrorCode.INVALID_RECORD


def test_a_client_must_send_no_second_batch() -> None:
    assert refusal(BATCH + BATCH) is ErrorCode.INVALID_RECORD


def test_a_coordinator_writes_one_batch_too() -> None:
    assert judge(BATCH, origin=Origin.COORDINATOR)[1] == read_header(BATCH)
    assert refusal(BATCH + BATCH, origin=Origin.COORDINATOR) is ErrorCode.INVALID_RECORD


def test_batches_of_a_coordinator_are_validated_too() -> None:
    assert refusal(BATCH[:-1] + b"?", origin=Origin.COORDINATOR) is ErrorCode.CORRUPT_MESSAGE


def test_old_message_formats_are_refused() -> None:
    old = bytearray(BATCH)
    old[16] = 1
    assert refusal(bytes(old)) is ErrorCode.INVALID_RECORD


def test_an_unknown_message_format_is_corrupt() -> None:
    future = bytearray(BATCH)
    future[16] = 3
    assert refusal(bytes(future)) is ErrorCode.CORRUPT_MESSAGE


def test_a_length_shorter_than_a_header_is_corrupt() -> None:
    short = bytearray(BATCH)
    pack_into(">i", short, 8, 20)
    assert refusal(bytes(short)) is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("at", [17, 21, 43, len(BATCH) - 1])
def test_a_flipped_bit_is_corrupt(at: int) -> None:
    damaged = bytearray(BATCH)
    damaged[at] ^= 0x40
    assert refusal(bytes(damaged)) is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize(
    "fields",
    [
        {"record_count": 2},
        {"record_count": 0, "last_offset_delta": -1},
        {"record_count": -1, "last_offset_delta": -2},
        {"last_offset_delta": 3},
        {"base_offset": 7},
        {"attributes": 0x20},
        {"producer_id": 5, "producer_epoch": 0, "base_sequence": -1},
        {"producer_id": 5, "producer_epoch": -1, "base_sequence": 0},
        {"attributes": 0x10},
    ],
    ids=str,
)
def test_client_batch_with_forged_header_fields_is_refused(fields: dict[str, int]) -> None:
    assert refusal(changed(**fields)) is ErrorCode.INVALID_RECORD


def test_a_coordinator_may_write_a_marker() -> None:
    marker = TxnMarker(5, 1, 3, False).packed(NOW)[0]
    assert judge(marker, origin=Origin.COORDINATOR)[0] is marker


def test_a_batch_of_exactly_the_limit_passes_and_one_byte_more_does_not() -> None:
    assert judge(BATCH, replace(RULES, max_message_bytes=len(BATCH)))
    too_small = replace(RULES, max_message_bytes=len(BATCH) - 1)
    assert refusal(BATCH, too_small) is ErrorCode.MESSAGE_TOO_LARGE


def test_size_is_checked_before_the_crc() -> None:
    damaged = BATCH[:-1] + b"!"
    too_small = replace(RULES, max_message_bytes=len(BATCH) - 1)
    assert refusal(damaged, too_small) is ErrorCode.MESSAGE_TOO_LARGE


def test_an_append_must_fit_into_a_segment() -> None:
    rules = replace(RULES, segment_bytes=len(BATCH) - 1)
    assert refusal(BATCH, rules) is ErrorCode.RECORD_LIST_TOO_LARGE


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_refused(codec: int) -> None:
    assert refusal(changed(attributes=codec)) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.parametrize(("version", "codec", "passes"), [
    (6, Compression.ZSTD, False),
    (7, Compression.ZSTD, True),
    (3, Compression.GZIP, True),
])  # fmt: skip
def test_zstd_needs_produce_7(version: int, codec: Compression, passes: bool) -> None:
    batch = build_batch(RECORDS, compression=codec)
    if passes:
        check_codec_of_version(batch, version)
    else:
        with pytest.raises(KafkaError) as caught:
            check_codec_of_version(batch, version)
        assert caught.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.parametrize(("stamp", "passes"), [
    (NOW - 1000, True),
    (NOW - 1001, False),
    (NOW + 500, True),
    (NOW + 501, False),
    (-1, True),
])  # fmt: skip
def test_timestamps_must_be_near_the_brokers_clock(stamp: int, passes: bool) -> None:
    rules = replace(RULES, before_max_ms=1000, after_max_ms=500)
    batch = build_batch([Record(0, NOW, None, b""), Record(1, stamp, None, b"")])
    batch = batch if stamp >= NOW else build_batch([Record(0, stamp, None, b"")])
    if passes:
        assert judge(batch, rules)
        return
    with pytest.raises(RecordsRefused) as caught:
        judge(batch, rules)
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP
    assert caught.value.record_errors[0].batch_index == (1 if stamp > NOW else 0)


def test_log_append_time_replaces_the_producers_timestamps() -> None:
    batch = build_batch([Record(0, 17, b"k", b"v"), Record(1, 2 * NOW, b"k", b"v")])
    data, header = judge(batch, replace(RULES, log_append_time=True))
    assert data is batch
    assert batch == build_batch([Record(0, 17, b"k", b"v"), Record(1, 2 * NOW, b"k", b"v")])
    assert (header.timestamp_type, header.max_timestamp) == (1, NOW)
    assert [record.timestamp for record in iter_records(data, 0, header)] == [NOW, NOW]


def test_producers_may_not_claim_log_append_time() -> None:
    with pytest.raises(RecordsRefused) as caught:
        judge(changed(attributes=LOG_APPEND_TIME))
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("codec", Compression)
def test_a_compacted_topic_refuses_records_without_key(codec: Compression) -> None:
    records = [RECORDS[0], Record(1, NOW, None, b"v"), Record(2, NOW, b"", b"v")]
    with pytest.raises(RecordsRefused) as caught:
        judge(build_batch(records, compression=codec), replace(RULES, keys_required=True))
    assert caught.value.code is ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in caught.value.record_errors] == [1]


def test_error_names_at_most_1000_records() -> None:
    keyless = build_batch([Record(i, NOW, None, None) for i in range(2000)])
    with pytest.raises(RecordsRefused) as caught:
        judge(keyless, replace(RULES, keys_required=True))
    assert len(caught.value.record_errors) == 1000


def test_many_small_records_are_checked_one_by_one() -> None:
    batch = build_batch([Record(i, NOW, b"", None) for i in range(30_000)])
    rules = replace(RULES, keys_required=True, max_message_bytes=len(batch))
    # Threads of the test run allocate as well: the least of three measurements is the check's own.
    assert min(_peak_memory(lambda: judge(batch, rules)) for _ in range(3)) < 4 * len(batch)


def _peak_memory(work: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        work()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return peak


def test_coordinators_batch_on_a_compacted_topic_is_not_decompressed() -> None:
    unreadable = changed(BATCH[:-1] + b"?")
    rules = replace(RULES, keys_required=True)
    assert judge(unreadable, rules, Origin.COORDINATOR)[0] is unreadable


def test_a_compacted_topic_keeps_the_bytes_of_a_batch_with_keys() -> None:
    batch = build_batch(RECORDS, compression=Compression.LZ4)
    assert judge(batch, replace(RULES, keys_required=True))[0] is batch


def test_compacted_topic_checks_records_against_the_batch_header() -> None:
    rules = replace(RULES, keys_required=True)
    assert refusal(changed(record_count=2, last_offset_delta=1), rules) is ErrorCode.INVALID_RECORD
    gap = build_batch([RECORDS[0], RECORDS[2]])
    forged = changed(gap, last_offset_delta=1)
    assert refusal(forged, rules) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("source", Compression)
@pytest.mark.parametrize("target", Compression)
def test_compression_type_is_the_codec_on_disk(source: Compression, target: Compression) -> None:
    batch = build_batch(
        RECORDS, compression=source, producer_id=9, producer_epoch=2, base_sequence=40
    )
    data, header = judge(batch, replace(RULES, compression=target))
    assert header.compression == target
    assert (data is batch) == (source is target)
    assert crc_matches(data, 0, header)
    assert list(iter_records(data, 0, header)) == RECORDS
    # Delta of the last offset, timestamps, producer id and epoch, sequence.
    assert header[6:12] == read_header(batch)[6:12]


def test_a_batch_that_grows_over_the_limit_in_the_topics_codec_is_refused() -> None:
    batch = build_batch([Record(0, NOW, b"k", b"v" * 10_000)], compression=Compression.ZSTD)
    rules = replace(RULES, max_message_bytes=1000, compression=Compression.NONE)
    assert refusal(batch, rules) is ErrorCode.MESSAGE_TOO_LARGE


def test_a_decompression_bomb_is_refused() -> None:
    bomb = build_batch([Record(0, NOW, b"k", bytes(40 << 20))], compression=Compression.ZSTD)
    rules = replace(RULES, keys_required=True)
    assert refusal(bomb, rules) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("stamp", [NOW + 3, -2])
def test_compacted_topic_refuses_a_record_younger_than_its_batch(stamp: int) -> None:
    forged = changed(build_batch([*RECORDS, Record(3, stamp, b"k", b"")]), max_timestamp=NOW + 2)
    assert refusal(forged, replace(RULES, keys_required=True)) is ErrorCode.INVALID_RECORD


@settings(max_examples=300)
@given(st.data())
def test_any_bytes_are_accepted_or_refused_with_an_error_code(data: st.DataObject) -> None:
    batch = bytearray(build_batch(RECORDS, compression=data.draw(st.sampled_from(Compression))))
    for _ in range(data.draw(st.integers(0, 3))):
        batch[data.draw(st.integers(0, len(batch) - 1))] = data.draw(st.integers(0, 255))
    blob = bytes(batch[: data.draw(st.integers(0, len(batch)))])
    if data.draw(st.booleans()) and len(blob) > HEADER_SIZE:
        # Past the CRC check, a client still chooses the content.
        header = BatchHeader._make(unpack_from(">qiibIhiqqqhii", blob))
        blob = pack_batch(header._replace(base_offset=0), blob[HEADER_SIZE:])
    rules = replace(
        RULES,
        keys_required=data.draw(st.booleans()),
        log_append_time=data.draw(st.booleans()),
        compression=data.draw(st.none() | st.sampled_from(Compression)),
    )
    origin = data.draw(st.sampled_from([Origin.CLIENT, Origin.COORDINATOR]))
    try:
        judge(blob, rules, origin)
    except KafkaError as error:
        assert error.code > 0  # noqa: PT017 (most blobs are refused, some are not)


def test_rules_follow_the_topics_configuration() -> None:
    overrides = {
        "cleanup.policy": "compact,delete",
        "compression.type": "gzip",
        "compression.gzip.level": "3",
        "max.message.bytes": "1234",
        "message.records.validation.enable": "true",
        "message.timestamp.type": "LogAppendTime",
        "message.timestamp.after.max.ms": "5",
    }
    config = TopicConfig.resolve(overrides, BrokerConfig.from_properties({}))
    rules = Rules.of(config)
    assert rules.keys_required
    assert rules.validates_records
    assert rules.log_append_time
    assert (rules.compression, rules.compression_level) == (Compression.GZIP, 3)
    assert (rules.max_message_bytes, rules.after_max_ms) == (1234, 5)
    plain = Rules.of(TopicConfig.resolve({}, BrokerConfig.from_properties({})))
    assert (plain.compression, plain.keys_required, plain.log_append_time) == (None, False, False)
    assert not plain.looks_inside
    everywhere = BrokerConfig.from_properties({"log.message.records.validation.enable": "true"})
    assert Rules.of(TopicConfig.resolve({}, everywhere)).looks_inside
    none = TopicConfig.resolve(
        {"compression.type": "uncompressed"}, BrokerConfig.from_properties({})
    )
    assert Rules.of(none).compression is Compression.NONE


@pytest.mark.parametrize("codec", Compression)
def test_more_records_than_the_bytes_can_hold_are_refused(codec: Compression) -> None:
    """A batch of 70 bytes moved the log end by 2^31 offsets."""
    whole = build_batch(RECORDS, compression=codec)
    most = (len(whole) - HEADER_SIZE) * MAX_RATIO[codec] // 7
    bound = inflation_bound(RULES.max_message_bytes) // 7
    for count in {min(most, bound) + 1, 2**31 - 1}:
        lie = changed(whole, record_count=count, last_offset_delta=count - 1)
        for origin in (Origin.CLIENT, Origin.COORDINATOR):
            assert refusal(lie, origin=origin) is ErrorCode.INVALID_RECORD
    judge(changed(whole, record_count=len(RECORDS), last_offset_delta=len(RECORDS) - 1))


def framed(*bodies: bytes) -> bytes:
    """Return records with their lengths."""
    out = bytearray()
    for body in bodies:
        write_varint(out, len(body))
        out += body
    return bytes(out)


GOOD = b"\0\0\0\x02k\x02v\0"
LIES: dict[str, tuple[bytes, int]] = {
    "one record, counted twice": (framed(b"\0\0\0\x02k\x10" + b"v" * 8 + b"\0"), 2),
    "a record behind the last": (framed(GOOD, GOOD), 1),
    "bytes behind the last": (framed(GOOD) + b"\0", 1),
    "a record longer than it says": (b"\x0e" + GOOD, 1),
    "a record shorter than it says": (b"\x12" + GOOD, 1),
    "a record of 2^31-1 bytes": (b"\xfe\xff\xff\xff\x0f" + GOOD, 1),
    "a length of -1": (b"\x01" + GOOD, 1),
    "a length of six bytes": (b"\x80\x80\x80\x80\x80\x01" + GOOD, 1),
    "a key of -2 bytes": (framed(b"\0\0\0\x03k\x02v\0"), 1),
    "a key beyond the record": (framed(b"\0\0\0\x7ek\x02v\0"), 1),
    "a value beyond the record": (framed(b"\0\0\0\x02k\x7ev\0"), 1),
    "an offset delta of six bytes": (framed(b"\0\0\x80\x80\x80\x80\x80\x01\x02k\x02v\0"), 1),
    "an offset delta above 2^31": (framed(b"\0\0\xff\xff\xff\xff\x7f\x02k\x02v\0"), 1),
    "a timestamp of eleven bytes": (framed(b"\0" + b"\x80" * 10 + b"\x01\0\x02k\x02v\0"), 1),
    "offset 1 first": (framed(b"\0\0\x02\x02k\x02v\0"), 1),
    "offset 0 twice": (framed(GOOD, GOOD), 2),
    "a gap in the offsets": (framed(GOOD, b"\0\0\x04\x02k\x02v\0"), 2),
    "a later timestamp than the batch": (framed(b"\0\x02\0\x02k\x02v\0"), 1),
    "-1 headers": (framed(b"\0\0\0\x02k\x02v\x01"), 1),
    "2^31-1 headers": (framed(b"\0\0\0\x02k\x02v\xfe\xff\xff\xff\x0f"), 1),
    "a header without a name": (framed(b"\0\0\0\x02k\x02v\x02\x01\x01"), 1),
    "a header beyond the record": (framed(b"\0\0\0\x02k\x02v\x02\x7eh\x01"), 1),
    "a header's name that is no text": (framed(b"\0\0\0\x02k\x02v\x02\x04\xff\xff\x01"), 1),
    "bytes behind the headers": (framed(b"\0\0\0\x02k\x02v\0\0"), 1),
    "a batch within the batch": (BATCH, 1),
}
VALIDATING = replace(RULES, validates_records=True)


@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize("name", LIES)
def test_unreadable_records_are_refused_if_records_are_validated(
    name: str, codec: Compression
) -> None:
    body, count = LIES[name]
    batch = batch_of(packed(codec, body), count, codec)
    assert judge(batch)[0] is batch
    assert refusal(batch, VALIDATING) is ErrorCode.INVALID_RECORD
    assert judge(batch, VALIDATING, Origin.COORDINATOR)[0] is batch


@pytest.mark.parametrize("codec", CODECS)
def test_bytes_that_no_codec_reads_are_refused_if_records_are_validated(codec: Compression) -> None:
    good = packed(codec, framed(GOOD))
    nested = packed(codec, good)
    bodies = [b"", b"\xde\xad\xbe\xef" * 9, good[:-2], nested]
    if codec in (Compression.SNAPPY, Compression.ZSTD):
        # Java ignores what is behind the other two.
        bodies.append(good + b"x")
    for body in bodies:
        assert refusal(batch_of(body, 1, codec), VALIDATING) is ErrorCode.INVALID_RECORD
    # A block of Snappy cannot shrink 40 MB to a legal batch.
    large = bomb(codec, 40 << 20)
    code = ErrorCode.INVALID_RECORD
    if codec is Compression.SNAPPY:
        code = ErrorCode.MESSAGE_TOO_LARGE
    assert refusal(large, replace(VALIDATING, max_message_bytes=1 << 20)) is code


@pytest.mark.parametrize("codec", Compression)
def test_validated_records_without_keys_keep_their_bytes(codec: Compression) -> None:
    records = [Record(0, NOW, None, None, (("h", None),)), Record(1, NOW - 1, b"", b"v" * 70_000)]
    batch = build_batch(records, compression=codec)
    assert judge(batch, VALIDATING)[0] is batch


def test_copy_in_the_topics_codec_ends_at_the_limit() -> None:
    small = build_batch([Record(0, NOW, b"k", bytes(3000))], compression=Compression.ZSTD)
    rules = replace(RULES, max_message_bytes=len(small) + 3000, compression=Compression.NONE)
    assert len(judge(small, rules)[0]) > 3000
    large = bomb(Compression.GZIP, 30 << 20)
    rules = replace(rules, max_message_bytes=1 << 20)
    assert _peak_memory(lambda: refusal(large, rules)) < 8 << 20
    assert refusal(large, rules) is ErrorCode.MESSAGE_TOO_LARGE


LINKED = frame.compress(bytes(100_000), block_size=4, block_linked=True)
FRAMING = b"\xff\x06\0\0sNaPpY" + bytes(9)


@pytest.mark.parametrize("rules", [RULES, VALIDATING, replace(RULES, log_append_time=True)])
@pytest.mark.parametrize(
    ("codec", "body"), [(Compression.LZ4, LINKED), (Compression.SNAPPY, FRAMING)]
)
def test_streams_that_java_cannot_read_are_refused_by_their_first_bytes(
    codec: Compression, body: bytes, rules: Rules
) -> None:
    """A Java consumer stopped at them for good."""
    assert refusal(batch_of(body, 1, codec), rules) is ErrorCode.INVALID_RECORD
    other = Compression.ZSTD
    if not rules.validates_records:
        judge(batch_of(body, 1, other), rules)
        judge(batch_of(raw_snappy(framed(GOOD)), 1, Compression.SNAPPY), rules)


def test_second_lz4_frame_is_refused_if_records_are_validated() -> None:
    """Java reads the records of the first one only."""
    body = framed(GOOD)
    halves = packed(Compression.LZ4, body) + packed(Compression.LZ4, body)
    assert refusal(batch_of(halves, 2, Compression.LZ4), VALIDATING) is ErrorCode.INVALID_RECORD


LIMITED = replace(RULES, max_record_bytes=10_000)
FITS = 9_992
"""The bytes of a value without key in a record of 10,000 bytes, which do not count its length."""


def values(*sizes: int, compression: Compression = Compression.ZSTD) -> bytes:
    records = [Record(i, NOW, None, b"x" * size) for i, size in enumerate(sizes)]
    return build_batch(records, compression=compression)


@pytest.mark.parametrize("codec", CODECS)
def test_record_of_compressed_batch_is_bounded_and_not_the_batch(codec: Compression) -> None:
    judge(values(FITS, *[5_000] * 10, compression=codec), LIMITED)
    with pytest.raises(KafkaError) as refused:
        judge(values(1, FITS + 1, 1, compression=codec), LIMITED)
    assert (refused.value.code, refused.value.message) == (ErrorCode.INVALID_RECORD, None)


def test_record_limit_is_for_compressed_batches_of_clients() -> None:
    judge(values(20_000, compression=Compression.NONE), LIMITED)
    judge(values(20_000), LIMITED, Origin.COORDINATOR)
    assert not RULES.looks_inside
    assert LIMITED.looks_inside
