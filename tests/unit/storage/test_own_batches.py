"""Batches that the broker has just built: the log is the same, byte for byte, with every check."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.config.topic import TopicConfig
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import add_head
from barnabas.protocol.records.control import TxnMarker
from barnabas.protocol.records.record import BatchBuilder, Record, build_batch, records_tail
from barnabas.storage.files.mem_files import MemFiles
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
)
Step = tuple[Any, ...]
PIDS = st.integers(1, 2)
EPOCHS = st.integers(0, 1)
STEPS = st.one_of(
    st.tuples(st.just("record"), st.none() | st.binary(max_size=80)),
    st.tuples(st.just("records"), st.lists(st.none() | st.binary(max_size=40), min_size=1)),
    st.tuples(
        st.just("marker"),
        st.builds(TxnMarker, PIDS, EPOCHS, st.integers(0, 1), st.booleans(), st.integers(0, 2)),
    ),
    st.tuples(st.just("client"), PIDS, EPOCHS),
    st.tuples(st.just("later"), st.integers(1, 4)),
    st.tuples(st.just("led anew")),
)


class Writer:
    """A log that the steps are written to; with or without detours for the broker's batches."""

    def __init__(self, config: TopicConfig, *, fast: bool) -> None:
        self.files = disk()
        self.log = load(self.files, config)
        self.fast = fast
        self.now_ms = NOW
        self.epoch = 0
        self.short = 0
        """The batches that took the short way."""

    def take(self, step: Step) -> object:
        kind, *rest = step
        try:
            return getattr(self, "_" + kind.replace(" ", "_"))(*rest)
        except KafkaError as error:
            return error.code, error.message

    def _record(self, value: bytes | None) -> int:
        return self._records([value])

    def _records(self, values: Sequence[bytes | None]) -> int:
        batch = BatchBuilder(self.now_ms)
        for value in values:
            batch.add(KEY, value)
        tail = records_tail([(KEY, value) for value in values], self.now_ms)
        return self._own(tail, batch.build(), None, len(values))

    def _marker(self, marker: TxnMarker) -> int:
        return self._own(marker.tail(self.now_ms), marker.batch(self.now_ms), marker)

    def _own(self, tail: bytes, batch: bytes, marker: TxnMarker | None, records: int = 1) -> int:
        if self.fast:
            offset = self.log.append_own(
                tail,
                leader_epoch=self.epoch,
                now_ms=self.now_ms,
                records=records,
                marker=marker,
            )
            if offset >= 0:
                self.short += 1
                return offset
        return self.log.append_as_leader(
            batch,
            leader_epoch=self.epoch,
            now_ms=self.now_ms,
            origin=Origin.COORDINATOR,
            transaction_version=0 if marker is None else marker.transaction_version,
        ).last_offset

    def _client(self, producer_id: int, epoch: int) -> int:
        entry = self.log.producers.entry(producer_id)
        known = entry is not None and entry.producer_epoch == epoch
        batch = build_batch(
            [Record(0, self.now_ms, KEY, b"v")],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=entry.last_sequence + 1 if entry is not None and known else 0,
            transactional=True,
        )
        return self.log.append_as_leader(
            bytearray(batch), leader_epoch=self.epoch, now_ms=self.now_ms, guard=UNVERIFIED
        ).last_offset

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


@settings(max_examples=150, deadline=None)
@given(config=st.sampled_from(CONFIGS), steps=st.lists(STEPS, max_size=40))
def test_log_with_short_way_equals_log_with_every_check(
    config: TopicConfig, steps: Sequence[Step]
) -> None:
    fast, slow = Writer(config, fast=True), Writer(config, fast=False)
    for step in steps:
        assert fast.take(step) == slow.take(step)
        assert fast.log.log_end_offset == slow.log.log_end_offset
    assert fast.state == slow.state


SIZES = st.sampled_from((0, 1, 63, 64, 70, 8191, 8192, 9000))


@given(
    st.lists(
        st.tuples(SIZES.map(bytes), st.none() | SIZES.map(bytes) | st.binary()),
        min_size=1,
        max_size=70,
    ),
    st.integers(0, 2**62),
)
def test_records_packed_at_once_are_what_the_builder_makes(
    records: list[tuple[bytes, bytes | None]], now_ms: int
) -> None:
    batch = BatchBuilder(now_ms)
    for key, value in records:
        batch.add(key, value)
    assert add_head(records_tail(records, now_ms), 0, -1) == batch.build()


@given(
    st.builds(
        TxnMarker,
        st.integers(0, 2**63 - 1),
        st.integers(0, 2**15 - 1),
        st.integers(0, 2**31 - 1),
        st.booleans(),
    ),
    st.integers(0, 2**62),
)
def test_marker_packed_at_once_is_what_the_builder_makes(marker: TxnMarker, now_ms: int) -> None:
    assert add_head(marker.tail(now_ms), 0, -1) == marker.batch(now_ms)


def written(config: TopicConfig, *steps: Step) -> int:
    """Return how many batches took the short way, after a first one that never does."""
    writer = Writer(config, fast=True)
    for step in (("record", b"first"), *steps):
        writer.take(step)
    return writer.short


def test_short_way_is_taken_for_records_and_markers() -> None:
    marker = TxnMarker(1, 0, 0, committed=True)
    assert written(LARGE_SEGMENTS, ("record", b"v"), ("client", 1, 0), ("marker", marker)) == 2
    assert written(LARGE_SEGMENTS, ("records", [b"v", None, b"w"])) == 1


@pytest.mark.parametrize("config", CONFIGS[3:5])
def test_topic_that_rewrites_batches_takes_no_short_way(config: TopicConfig) -> None:
    assert written(config, ("record", b"v")) == 0


def test_new_leader_epoch_begins_on_the_general_way() -> None:
    assert written(LARGE_SEGMENTS, ("led anew",), ("record", b"v")) == 0
    assert written(LARGE_SEGMENTS, ("led anew",), ("record", b"v"), ("record", b"v")) == 1


def test_failed_write_takes_the_directory_offline_and_nothing_is_appended() -> None:
    writer = Writer(LARGE_SEGMENTS, fast=True)
    writer.take(("record", b"first"))
    writer.log.segments.active.active_file = Full()  # type: ignore[assignment]
    assert writer.take(("record", b"v"))[0] is ErrorCode.KAFKA_STORAGE_ERROR  # type: ignore[index]
    assert writer.log.log_end_offset == 1
    assert writer.log.log_dir.failure is not None
    assert writer.take(("record", b"v"))[0] is ErrorCode.KAFKA_STORAGE_ERROR  # type: ignore[index]


def test_record_above_the_limit_of_coordinators_is_refused() -> None:
    writer = Writer(TopicConfig(), fast=True)
    writer.take(("record", b"first"))
    refused = writer.take(("record", bytes((1 << 20) + 1)))
    assert refused[0] is ErrorCode.MESSAGE_TOO_LARGE  # type: ignore[index]
    assert writer.take(("record", bytes(1 << 19))) == 1
    assert writer.short == 1


def test_segment_whose_file_was_closed_is_opened_by_the_general_way() -> None:
    writer = Writer(LARGE_SEGMENTS, fast=True)
    writer.take(("record", b"first"))
    writer.log.flush()
    assert writer.log.release_file()
    assert writer.take(("record", b"v")) == 1
    assert writer.take(("record", b"v")) == 2
    assert writer.short == 1


class Full:
    def append(self, data: object) -> None:  # noqa: ARG002
        raise OSError(28, "No space left on device")
