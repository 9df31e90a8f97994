"""One question decides on most batches: the log is the same, byte for byte, with every check."""

from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.config.topic import TopicConfig
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import NO_TIMESTAMP, pack_mutable_batch, read_header
from barnabas.protocol.records.compression import Compression
from barnabas.protocol.records.control import TxnMarker, read_marker
from barnabas.protocol.records.record import BatchBuilder, Record, batch_of, build_batch
from barnabas.storage.files.mem_files import MemFiles
from barnabas.storage.log import log as log_module
from barnabas.storage.log.validator import Origin
from barnabas.storage.producers.verification import UNVERIFIED
from tests.unit.storage.log_bench import DIRECTORY, NOW, SMALL, disk, load

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


class Writer:
    """A log that the steps are written to; `explain` as `LogOptions` has it."""

    def __init__(self, config: TopicConfig, *, explain: bool = False) -> None:
        self.files = disk()
        self.log = load(self.files, config, explain=explain)
        self.now_ms = NOW
        self.epoch = 0

    def take(self, step: Step) -> object:
        kind, *rest = step
        try:
            return getattr(self, "_" + kind.replace(" ", "_"))(*rest)
        except KafkaError as error:
            return error.code, error.message

    def _records(self, values: Sequence[bytes | None]) -> int:
        batch = BatchBuilder(self.now_ms)
        for value in values:
            batch.add(KEY, value)
        return self._append(batch.build(), origin=Origin.COORDINATOR)

    def _marker(self, marker: TxnMarker) -> int:
        return self._append(
            marker.batch(self.now_ms),
            origin=Origin.COORDINATOR,
            transaction_version=marker.transaction_version,
        )

    def _client(self, producer_id: int, epoch: int) -> int:
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
            guard=UNVERIFIED,
        )

    def _odd_client(self, changes: dict[str, int], codec: Compression) -> int:
        records = [Record(at, self.now_ms, KEY, b"value") for at in range(3)]
        batch = build_batch(records, compression=codec)
        attributes = changes.get("attributes", 0) | codec
        header = read_header(batch)._replace(**(changes | {"attributes": attributes}))
        return self._append(pack_mutable_batch(header, batch[61:]), guard=UNVERIFIED)

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


@settings(max_examples=300, deadline=None)
@given(config=st.sampled_from(CONFIGS), steps=st.lists(STEPS, max_size=40))
def test_log_by_one_question_equals_log_with_every_check(
    config: TopicConfig, steps: Sequence[Step]
) -> None:
    quick, slow = Writer(config), Writer(config, explain=True)
    for step in steps:
        assert quick.take(step) == slow.take(step)
        assert quick.log.log_end_offset == slow.log.log_end_offset
    assert quick.state == slow.state


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
