"""One question decides on most batches: the log is the same, byte for byte, with every check."""

from collections.abc import Sequence
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lz4 import frame

from barnabas.config.key import INT_MAX
from barnabas.config.topic import TopicConfig
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import (
    MAX_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    pack_mutable_batch,
    read_header,
)
from barnabas.protocol.records.compression import Compression
from barnabas.protocol.records.control import TxnMarker, read_marker
from barnabas.protocol.records.record import BatchBuilder, Record, batch_of, build_batch
from barnabas.protocol.records.varint import Buffer
from barnabas.storage.log import log as log_module
from barnabas.storage.log.log import Log
from barnabas.storage.log.segment import Segment
from barnabas.storage.log.validator import is_sound
from barnabas.storage.origin import Origin
from barnabas.storage.producers.entry import ProducerUpdate
from barnabas.storage.producers.rules import (
    check_marker,
    check_opens,
    check_plain,
    check_sequence,
    end_txn,
)
from barnabas.storage.producers.state import ProducerStateManager
from barnabas.storage.producers.verification import UNVERIFIED, VerificationGuard
from tests.support.mem_files import MemFiles
from tests.support.mutants import cases, finds, hunt
from tests.unit.storage.log_bench import DIRECTORY, NOW, SMALL, batch, disk, load, put

KEY = b"key"
LARGE_SEGMENTS = TopicConfig(segment_bytes=100_000, cleanup_policy=frozenset({"compact"}))
CONFIGS = (
    LARGE_SEGMENTS,
    SMALL,
    TopicConfig(segment_bytes=100_000, segment_ms=5),
    TopicConfig(segment_bytes=100_000, message_timestamp_type="LogAppendTime"),
    TopicConfig(segment_bytes=100_000, compression_type="lz4"),
    TopicConfig(segment_bytes=100_000, compression_type="uncompressed"),
    TopicConfig(segment_bytes=100_000, max_message_bytes=90),
    TopicConfig(segment_bytes=100_000, message_timestamp_before_max_ms=3),
)
Step = tuple[Any, ...]
PIDS = st.integers(1, 2)
EPOCHS = st.integers(0, 1)
CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "base_offset": st.just(1),
        "attributes": st.sampled_from((0x08, 0x10, 0x20, 0x40, 5, 6, 7, 0x14)),
        "last_offset_delta": st.sampled_from((-1, 1)),
        "record_count": st.sampled_from((-1, 0, 2, 1000)),
        "base_timestamp": st.sampled_from((NO_TIMESTAMP, NOW - 5, NOW + 5, NOW * 2)),
        "max_timestamp": st.sampled_from((NO_TIMESTAMP, NOW - 5, NOW + 5, NOW * 2)),
        "producer_id": st.integers(-1, 2),
        "producer_epoch": st.integers(-1, 1),
        "base_sequence": st.integers(-1, 2),
    },
)
STEPS = st.one_of(
    st.tuples(st.just("records"), st.lists(st.none() | st.binary(max_size=80), min_size=1)),
    st.tuples(
        st.just("marker"),
        st.builds(TxnMarker, PIDS, EPOCHS, st.integers(0, 1), st.booleans(), st.integers(0, 2)),
    ),
    st.tuples(st.just("client"), PIDS, EPOCHS),
    st.tuples(st.just("odd client"), CHANGES, st.sampled_from(Compression)),
    st.tuples(st.just("damaged"), st.integers(0, 80)),
    st.tuples(st.just("later"), st.integers(1, 4)),
    st.tuples(st.just("led anew")),
)


def with_every_check(
    producers: ProducerStateManager,
    data: Buffer,
    batches: list[tuple[int, BatchHeader]],
    origin: Origin,
    base_offset: int,
    guard: VerificationGuard | None,
    marker: TxnMarker | None,
) -> ProducerUpdate:
    """Do the work of `prepare`, and make each check of the batch that it accepts."""
    options = batches, origin, base_offset, guard, marker
    update = ProducerStateManager.prepare(producers, data, *options)
    ((pos, header),), (made,) = batches, update[0].values()
    entry = producers._known(header.producer_id)
    if header.is_control:
        assert marker is not None
        assert read_marker(data, pos, header) == marker._replace(transaction_version=0)
        check_marker(entry, marker, origin)
        return update
    last = header.last_sequence
    check_sequence(entry, header.producer_epoch, header.base_sequence, last, None, origin)
    if header.is_transactional:
        check_opens(entry, header.producer_epoch, guard, origin)
    else:
        check_plain(entry, origin)
    assert made.last_sequence == last
    return update


class Writer:
    """A log that the steps are written to; `explain` as `LogOptions` has it."""

    def __init__(self, config: TopicConfig, *, explain: bool = False) -> None:
        self.files = disk()
        self.log = load(self.files, config, explain=explain)
        if explain:
            producers: Any = self.log.producers
            producers.prepare = partial(with_every_check, producers)
        self.now_ms = NOW
        self.epoch = 0

    def take(self, step: Step) -> object:
        kind, *rest = step
        try:
            return getattr(self, "_" + kind.replace(" ", "_"))(*rest)
        except KafkaError as error:
            return error.code, error.message

    def _records(
        self, values: Sequence[bytes | None], codec: Compression = Compression.NONE
    ) -> int:
        batch = BatchBuilder(self.now_ms)
        for value in values:
            batch.add(KEY, value)
        return self._append(batch.build(compression=codec), origin=Origin.COORDINATOR)

    def _marker(self, marker: TxnMarker) -> int:
        data = marker.packed(self.now_ms)[0]
        return self._append(data, origin=Origin.COORDINATOR, marker=marker)

    def _client(
        self, producer_id: int, epoch: int, guard: VerificationGuard | None = UNVERIFIED
    ) -> int:
        entry = self.log.producers.entry(producer_id)
        known = entry is not None and entry.producer_epoch == epoch
        return self._append(
            bytearray(
                build_batch(
                    [Record(0, self.now_ms, KEY, b"v")],
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    base_sequence=entry.last_sequence + 1 if entry is not None and known else 0,
                    transactional=True,
                )
            ),
            guard=guard,
        )

    def _odd_client(self, changes: dict[str, int], codec: Compression) -> int:
        records = [Record(at, self.now_ms, KEY, b"value") for at in range(3)]
        batch = build_batch(records, compression=codec)
        attributes = changes.get("attributes", 0) | codec
        header = read_header(batch)._replace(**(changes | {"attributes": attributes}))
        return self._append(pack_mutable_batch(header, batch[61:]), guard=UNVERIFIED)

    def _compressed(self, codec: Compression, body: bytes) -> int:
        """Append a batch whose record is compressed already."""
        header = read_header(build_batch([Record(0, self.now_ms, KEY, b"value")]))
        header = header._replace(attributes=codec, batch_length=49 + len(body))
        return self._append(pack_mutable_batch(header, body), guard=UNVERIFIED)

    def _longer(self, more: int) -> int:
        """Append a batch that has more bytes than its length says."""
        batch = bytearray(build_batch([Record(0, self.now_ms, KEY, b"value" * 3)]))
        batch[8:12] = (len(batch) - 12 - more).to_bytes(4)
        return self._append(batch, header=read_header(batch))

    def _damaged(self, position: int) -> int:
        batch = bytearray(build_batch([Record(0, self.now_ms, KEY, b"value" * 3)]))
        batch[position % len(batch)] ^= 0x55
        return self._append(batch)

    def _append(self, batch: bytearray, **options: Any) -> int:
        before = bytes(batch)
        try:
            return self.log.append(batch, self.epoch, self.now_ms, **options).last_offset
        except KafkaError:
            assert batch == before, "the general way gets no changed batch"
            raise

    def _later(self, ms: int) -> None:
        self.now_ms += ms

    def _led_anew(self) -> None:
        self.epoch += 1

    @property
    def state(self) -> object:
        log = self.log
        segments = [
            (
                each.base_offset,
                each.size,
                each.next_offset,
                each.first_timestamp,
                each.max_timestamp,
                each.max_timestamp_offset,
                each.offset_index.entries,
                each.time_index.entries,
                each.index_full,
            )
            for each in log.segments
        ]
        log.advance_high_watermark(log.log_end_offset)
        return (
            segments,
            contents(self.files),
            list(log.producers),
            log.producers.map_end_offset,
            log.last_stable_offset,
            log.epochs.entries,
            log.log_end_offset,
        )


def contents(files: MemFiles) -> dict[str, bytes]:
    names = files.listdir(DIRECTORY)
    paths = [f"{DIRECTORY}/{name}" for name in names]
    return {path: files.open(path).read(1 << 20, 0) for path in paths}


def require_same(config: TopicConfig, steps: Sequence[Step]) -> None:
    quick, slow = Writer(config), Writer(config, explain=True)
    for step in steps:
        assert quick.take(step) == slow.take(step)
        assert quick.log.log_end_offset == slow.log.log_end_offset
    assert quick.state == slow.state


@settings(max_examples=300, deadline=None)
@given(config=st.sampled_from(CONFIGS), steps=st.lists(STEPS, max_size=40))
def test_log_by_one_question_equals_log_with_every_check(
    config: TopicConfig, steps: Sequence[Step]
) -> None:
    require_same(config, steps)


def odd(codec: Compression = Compression.NONE, **changes: int) -> Step:
    return "odd client", changes, codec


def next_of(producer_id: int, sequence: int, epoch: int = 0, attributes: int = 0) -> Step:
    """Return the step by which a producer sends three records."""
    fields = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}
    return odd(attributes=attributes, **fields)


PLAIN, BY_APPEND_TIME, BRIEF = TopicConfig(), CONFIGS[3], CONFIGS[7]
TINY = TopicConfig(max_message_bytes=80)
LINKED = frame.compress(bytes(100_000), block_linked=True, block_size=4)
"""LZ4 that Java cannot read, as its first bytes show."""
CODEC = "or (codec and codec_error(data, codec))"
CRC = "or crc32c((data if type(data) is memoryview else memoryview(data))[ATTRIBUTES_AT:]) != crc"
PREPARE = ProducerStateManager.prepare
CLIENT: Step = ("client", 1, 0)


@cases(
    "config, steps",
    (PLAIN, [odd(base_offset=1)], (is_sound, "base or ")),
    (PLAIN, [("longer", 5)], (is_sound, "size != LOG_OVERHEAD + length or ")),
    (PLAIN, [odd(record_count=2)], (is_sound, "or count != delta + 1")),
    (PLAIN, [odd(record_count=-1, last_offset_delta=-2)], (is_sound, "not 0 < count", "not count")),
    (
        PLAIN, [odd(record_count=1000, last_offset_delta=999)],
        (is_sound, "count * MIN_RECORD <= size - HEADER_SIZE", "count"),
    ),
    (PLAIN, [odd(attributes=0x20)], (is_sound, "or attributes & ~_OF_CLIENT")),
    (PLAIN, [odd(attributes=7)], (is_sound, CODEC)),
    (PLAIN, [("compressed", Compression.LZ4, LINKED)], (is_sound, CODEC, "or codec > 4")),
    (BRIEF, [odd(base_timestamp=5)], (is_sound, "or not earliest <= base_ms <= latest")),
    (BRIEF, [odd(max_timestamp=5)], (is_sound, "or not earliest <= max_ms <= latest")),
    (PLAIN, [("damaged", -1)], (is_sound, CRC)),
    (TINY, [odd()], (is_sound, "or size > rules.max_batch_bytes")),
    (BY_APPEND_TIME, [odd(max_timestamp=5)], (is_sound, "or rules.log_append_time")),
    (
        PLAIN, [odd(attributes=0x10)],
        (is_sound, "producer >= 0 else attributes & TRANSACTIONAL)", "producer >= 0 else False)"),
    ),
    # Batches of the broker itself.
    (
        CONFIGS[1], [("records", [bytes(SMALL.segment_bytes)])],
        (is_sound, "len(data) <= rules.max_batch_bytes and "),
    ),
    (
        CONFIGS[4], [("records", [b"x"])],
        (Log.configure, " or rules.compression"), (is_sound, "kept == codec", "True"),
    ),
    (
        CONFIGS[5], [("records", [b"x" * 99], Compression.LZ4)],
        (Log.append, "or header[5] & COMPRESSION_MASK"),
    ),
    (BY_APPEND_TIME, [("later", 4), ("records", [b"x"])]),
    (PLAIN, [next_of(1, -1)], (is_sound, "first < 0 or ")),
    (PLAIN, [next_of(1, 0, epoch=-1)], (is_sound, "or epoch < 0")),
    (
        PLAIN, [next_of(1, 0), next_of(1, 6), next_of(1, 3), next_of(1, 3), next_of(1, 0)],
        (PREPARE, "sequence != expected and origin", "False and origin"),
    ),
    (
        PLAIN, [next_of(1, MAX_SEQUENCE - 3), next_of(1, MAX_SEQUENCE), next_of(1, 2)],
        (PREPARE, "(sequence + delta) & MAX_SEQUENCE", "sequence + delta"),
    ),
    (
        PLAIN, [next_of(1, 0), next_of(1, 3, epoch=1), next_of(1, 0, epoch=1)],
        (PREPARE, "if epoch == known_epoch else () expected", "; expected"),
    ),
    (
        PLAIN, [next_of(1, 0, epoch=1), next_of(1, 0)],
        (PREPARE, "epoch < known_epoch or (", "("),
    ),
    # A marker of the newer protocol raises the epoch: there is no last batch then.
    (PLAIN, [CLIENT, ("marker", TxnMarker(1, 1, 0, True, 2)), next_of(1, 0, epoch=1)]),
    (PLAIN, [CLIENT, next_of(1, 1)], (PREPARE, "elif txn_first is not None:", "elif False:")),
    (PLAIN, [CLIENT, ("client", 1, 1)], (PREPARE, " or epoch != known_epoch")),
    (
        PLAIN, [CLIENT, ("marker", TxnMarker(1, 0, 0, True)), ("client", 1, 0, None)],
        (PREPARE, "elif txn_first is None or ", "elif "),
    ),
    (
        PLAIN, [("client", 1, 1), ("marker", TxnMarker(1, 0, 0, True))],
        (end_txn, "epoch < entry.producer_epoch or "),
    ),
    (
        PLAIN, [("marker", TxnMarker(1, 0, 1, True)), ("marker", TxnMarker(1, 0, 0, True))],
        (end_txn, "or coordinator_epoch < entry.coordinator_epoch"),
    ),
    (
        PLAIN, [CLIENT, ("marker", TxnMarker(1, 0, 0, True, 2))],
        (end_txn, "or (is_same and transaction_version >= EPOCH_PER_TRANSACTION)"),
    ),
)  # fmt: skip
def test_odd_batch_is_judged_as_by_every_check(config: TopicConfig, steps: list[Step]) -> None:
    require_same(config, steps)


TEN_SECONDS = TopicConfig(segment_ms=10_000)
FEW_BATCHES = TopicConfig(segment_bytes=400)
FEW_ENTRIES = SMALL.replace(index_interval_bytes=0, segment_index_bytes=36)
APPEND, CHANGED = Log.append, Segment._indexes_changed


@cases(
    "config, times, segments",
    (FEW_BATCHES, [NOW] * 7, 3, (APPEND, "segment.size + len(data) > most or ")),
    (FEW_ENTRIES, [*range(NOW, NOW + 10)], 4, (CHANGED, "self.bounds = NO_BOUNDS", "pass")),
    (TEN_SECONDS, [NOW, NOW, NOW + 10_000], 1),
    (TEN_SECONDS, [NOW, NOW, NOW + 10_001], 2, (APPEND, "<= latest")),
    (TEN_SECONDS, [NOW, NOW, NOW - 50_000], 1),
    (TEN_SECONDS, [NO_TIMESTAMP, NO_TIMESTAMP, 5], 2),
    (TEN_SECONDS, [NOW, NOW, NO_TIMESTAMP], 2, (APPEND, "0 <= newest", "newest")),
)
def test_full_or_old_segment_rolls(config: TopicConfig, times: list[int], segments: int) -> None:
    log = load(disk(), config)
    for number, each in enumerate(times):
        log.append(batch(b"x" * 60, timestamp=each), 0, NOW + 6000 * number)
    assert len(log.segments) == segments


@finds(APPEND, " or last_offset > end")
def test_segment_has_no_more_offsets_than_its_index_can_tell() -> None:
    log = load(disk(), TopicConfig())
    put(log, b"x")
    log.log_end_offset = log.segments.active.next_offset = log.producers.map_end_offset = INT_MAX
    put(log, b"x")
    put(log, b"x")
    assert [each.base_offset for each in log.segments] == [0, INT_MAX + 1]


SIZES = st.sampled_from((0, 1, 63, 64, 70, 8191, 8192, 9000))


@given(
    st.lists(
        st.tuples(SIZES.map(bytes), st.none() | SIZES.map(bytes) | st.binary()),
        min_size=1,
        max_size=70,
    ),
    st.integers(0, 2**62),
)
def test_builder_makes_the_same_batch_as_from_records(
    records: list[tuple[bytes, bytes | None]], now_ms: int
) -> None:
    batch = BatchBuilder(now_ms)
    for key, value in records:
        batch.add(key, value)
    expected = build_batch([Record(at, now_ms, *each) for at, each in enumerate(records)])
    assert batch.build() == expected
    made, header = batch_of(records, now_ms)
    assert (made, header) == (expected, read_header(expected))


@given(
    st.builds(
        TxnMarker,
        st.integers(0, 2**63 - 1),
        st.integers(0, 2**15 - 1),
        st.integers(0, 2**31 - 1),
        st.booleans(),
        st.just(0),
    ),
    st.integers(0, 2**62),
)
def test_marker_is_a_control_record_and_is_read_as_one(marker: TxnMarker, now_ms: int) -> None:
    key = b"\0\0" + marker.type.to_bytes(2, "big")
    value = b"\0\0" + marker.coordinator_epoch.to_bytes(4, "big")
    batch, header = marker.packed(now_ms)
    assert header == read_header(batch)
    ids = {"producer_id": marker.producer_id, "producer_epoch": marker.producer_epoch}
    # A header makes the record longer than the one that is read at once.
    for headers in ((), (("h", b""),)):
        record = Record(0, now_ms, key, value, headers)
        built = build_batch([record], transactional=True, control=True, **ids)
        assert read_marker(built, 0, read_header(built)) == marker
        assert (built == batch) is (not headers)


@pytest.mark.parametrize("config", [*CONFIGS[:3], CONFIGS[5]])
def test_sound_batch_is_not_validated_at_length(config: TopicConfig) -> None:
    writer = Writer(config)
    with patch.object(log_module, "validate", side_effect=AssertionError):
        assert writer.take(("records", [b"v", None])) == 1
        assert writer.take(("marker", TxnMarker(1, 0, 0, committed=True))) == 2


def test_failed_write_takes_the_directory_offline_and_nothing_is_appended() -> None:
    writer = Writer(LARGE_SEGMENTS)
    writer.take(("records", [b"first"]))
    writer.log.segments.active.active_file = Full()  # type: ignore[assignment]
    with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
        writer.log.append(BatchBuilder(NOW).build(), 0, NOW, Origin.COORDINATOR)
    assert writer.log.log_end_offset == 1
    assert writer.log.log_dir.failure is not None
    assert writer.take(("records", [b"v"]))[0] is ErrorCode.KAFKA_STORAGE_ERROR  # type: ignore[index]


@finds(Log.append, "len(data) > self._own_bytes", "False")
def test_record_above_the_limit_of_coordinators_is_refused() -> None:
    writer = Writer(TopicConfig())
    writer.take(("records", [b"first"]))
    refused = writer.take(("records", [bytes((1 << 20) + 1)]))
    assert refused[0] is ErrorCode.MESSAGE_TOO_LARGE  # type: ignore[index]
    assert writer.take(("records", [bytes(1 << 19)])) == 1


def test_segment_whose_file_was_closed_is_opened_again() -> None:
    writer = Writer(LARGE_SEGMENTS)
    writer.take(("records", [b"first"]))
    writer.log.flush()
    assert writer.log.release_file()
    assert writer.take(("records", [b"v"])) == 1
    assert writer.take(("records", [b"v"])) == 2


class Full:
    def append(self, data: object) -> None:  # noqa: ARG002
        raise OSError(28, "No space left on device")


test_missing_check_is_found = hunt(globals())
