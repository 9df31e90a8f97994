"""The stream reader as Spark calls it, without Spark: ends of batches, tasks, restarts, losses."""

import itertools
import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
)

from barnabas.pipeline.source.option_values import OptionError
from barnabas.pipeline.source.reading import DataLoss
from barnabas.pipeline.spark.format import BarnabasDataSource
from barnabas.pipeline.spark.source import StreamReader, columns
from barnabas.protocol.records.batch import HEADER_SIZE, iter_headers
from barnabas.protocol.records.checksum import crc32c
from barnabas.testing import Broker
from tests.support.topics import Topics

Offsets = dict[str, dict[str, int]]


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def topics(data_dir: Path) -> Iterator[Topics]:
    with Broker({"auto.create.topics.enable": "false"}, data_dir=data_dir) as broker:
        yield Topics(broker.bootstrap_servers)


_names = (f"topic-{number}" for number in itertools.count())


@pytest.fixture
def topic(topics: Topics) -> str:
    """A new topic of one partition."""
    name = next(_names)
    topics.create(name)
    return name


class Query:
    """A driver that calls a reader as Spark does; `restart` makes another process's reader."""

    def __init__(self, topics: Topics, topic: str, **given: object) -> None:
        self._options = {
            "kafka.bootstrap.servers": topics.servers,
            "kafka.default.api.timeout.ms": "500",
            "subscribe": topic,
            "startingOffsets": "earliest",
        } | {key: str(value) for key, value in given.items()}
        if "subscribePattern" in given:
            del self._options["subscribe"]
        self._only_available = False
        self.ends: list[Offsets] = []
        """The ends of the batches that the log of offsets has."""
        self.restart()

    def restart(self, *, available_now: bool = False) -> None:
        self.reader = StreamReader(self._options, columns(headers=False))
        if available_now:
            self.reader.prepareForTriggerAvailableNow()

    def plan(self, limit: ReadLimit | None = None) -> list[bytes] | None:
        """Plan a batch and read it; None without an end that differs."""
        start = self.ends[-1] if self.ends else self.reader.initialOffset()
        end = self.reader.latestOffset(start, limit or self.reader.getDefaultReadLimit())
        assert isinstance(end, dict)
        if self.ends and json.dumps(end) == json.dumps(start):
            return None
        self.ends.append(json.loads(json.dumps(end)))
        return self.repeat()

    def repeat(self) -> list[bytes]:
        """Read the last batch, whose start the log of offsets has if it is not the first."""
        start = self.ends[-2] if len(self.ends) > 1 else self.reader.initialOffset()
        found: list[bytes] = []
        for task in self.reader.partitions(start, self.ends[-1]):
            # A task gets copies of both.
            reader, copied = pickle.loads(pickle.dumps((self._copy(), task)))
            for rows in reader.read(copied):
                found += rows.column("value").to_pylist()
        return found

    def _copy(self) -> StreamReader:
        return StreamReader(self._options, columns(headers=False))


def test_the_first_batch_from_the_end_has_no_rows(topics: Topics, topic: str) -> None:
    topics.write(topic, [b"before"])
    query = Query(topics, topic, startingOffsets="latest")
    query.reader.initialOffset()
    topics.write(topic, [b"after"])
    assert query.plan() == []
    assert query.ends == [{topic: {"0": 1}}]
    # The process dies in the first batch. The end of the log is another one now.
    query.restart()
    assert query.repeat() == []
    assert query.plan() == [b"after"]
    assert query.plan() is None


def test_timestamps_without_a_match_begin_at_the_end(topics: Topics, topic: str) -> None:
    topics.write(topic, [b"before"], timestamp=1_000)
    given = {"startingTimestamp": 2_000, "startingOffsetsByTimestampStrategy": "latest"}
    query = Query(topics, topic, **given)
    query.reader.initialOffset()
    topics.write(topic, [b"after"], timestamp=1_500)
    assert query.plan() == []
    assert query.plan() == [b"after"]


def test_a_limit_of_rows_is_kept_and_everything_is_read_when_spark_asks_for_it(
    topics: Topics, topic: str
) -> None:
    topics.write(topic, [b"%d" % number for number in range(9)])
    query = Query(topics, topic, maxOffsetsPerTrigger=4)
    assert query.reader.getDefaultReadLimit() == ReadMaxRows(4)
    assert query.plan() == [b"0", b"1", b"2", b"3"]
    assert query.plan(ReadMaxRows(1)) == [b"4"]
    assert query.plan(ReadAllAvailable()) == [b"5", b"6", b"7", b"8"]


def test_a_lower_limit_puts_a_trigger_off(topics: Topics, topic: str) -> None:
    query = Query(topics, topic, minOffsetsPerTrigger=3, maxTriggerDelay="1h")
    assert query.reader.getDefaultReadLimit() == ReadMinRows(3)
    assert query.plan() == [], "the first trigger runs at once"
    topics.write(topic, [b"0", b"1"])
    assert query.plan() is None
    assert query.reader.reportLatestOffset() == {topic: {"0": 2}}
    topics.write(topic, [b"2"])
    assert query.plan() == [b"0", b"1", b"2"]
    topics.write(topic, [b"3"])
    assert query.plan() is None
    assert query.plan(ReadAllAvailable()) == [b"3"]


def test_available_now_ends_at_what_the_first_trigger_saw(topics: Topics, topic: str) -> None:
    topics.write(topic, [b"0", b"1", b"2"])
    query = Query(topics, topic, maxOffsetsPerTrigger=2, minOffsetsPerTrigger=2)
    query.restart(available_now=True)
    assert query.plan() == [b"0", b"1"]
    topics.write(topic, [b"3"])
    topics.grow(topic, 2)
    topics.write(topic, [b"4"], partition=1)
    assert query.plan() == [b"2"]
    assert query.plan() is None
    query.restart(available_now=True)
    assert sorted(query.plan() or ()) == [b"3", b"4"]


def test_available_now_ends_at_the_options_of_the_end(topics: Topics, topic: str) -> None:
    topics.write(topic, [b"0", b"1", b"2"])
    ends = json.dumps({topic: {"0": 2}})
    query = Query(topics, topic, endingOffsets=ends, maxOffsetsPerTrigger=1)
    query.restart(available_now=True)
    assert [query.plan(), query.plan(), query.plan()] == [[b"0"], [b"1"], None]
    query.restart(available_now=True)
    assert query.plan() is None
    # A query that is behind the end already stays where it is.
    earlier = json.dumps({topic: {"0": 1}})
    query = Query(topics, topic, endingOffsets=earlier)
    query.ends = [{topic: {"0": 2}}]
    query.restart(available_now=True)
    assert query.plan() is None


def test_a_stream_without_available_now_has_no_end(topics: Topics, topic: str) -> None:
    query = Query(topics, topic, endingTimestamp=5)
    with pytest.raises(OptionError, match="a stream has no end"):
        query.plan()


def test_a_batch_that_is_repeated_has_the_same_rows(topics: Topics, topic: str) -> None:
    topics.write(topic, [b"0", b"1"])
    query = Query(topics, topic, minPartitions=3)
    assert query.plan() == [b"0", b"1"]
    topics.grow(topic, 2)
    topics.write(topic, [b"2"], partition=1)
    assert query.plan() == [b"2"]
    topics.write(topic, [b"3"])
    topics.write(topic, [b"4"], partition=1)
    query.restart()
    assert query.repeat() == [b"2"]
    assert query.plan() == [b"3", b"4"]


def test_a_loss_is_told_before_the_batch_has_an_end(topics: Topics, topic: str) -> None:
    topics.write(topic, [b"0", b"1", b"2"])
    query = Query(topics, topic)
    query.plan()
    topics.delete(topic)
    with pytest.raises(DataLoss, match=f"{topic}-0: the partitions are gone"):
        query.plan()
    topics.create(topic)
    topics.write(topic, [b"new"])
    with pytest.raises(DataLoss, match=f"topic {topic} was deleted and created again"):
        query.plan()
    query.restart()
    with pytest.raises(DataLoss, match=f"{topic}-0: the end moved back, from 3 to 1"):
        query.plan()
    assert len(query.ends) == 1


def test_a_new_partition_without_its_first_records_is_a_loss(topics: Topics, topic: str) -> None:
    query = Query(topics, topic)
    query.plan()
    topics.grow(topic, 2)
    topics.write(topic, [b"0", b"1"], partition=1)
    topics.delete_records(topic, 1, partition=1)
    with pytest.raises(DataLoss, match=f"{topic}-1: the new partition starts at offset 1"):
        query.plan()


def test_a_pattern_without_topics_waits_for_the_first(topics: Topics, topic: str) -> None:
    query = Query(topics, topic, subscribePattern=f"{topic}-later", startingOffsets="latest")
    assert query.plan() == []
    assert query.plan() is None
    topics.create(f"{topic}-later")
    topics.write(f"{topic}-later", [b"0"])
    assert query.plan() == [b"0"]


def test_progress_is_committed_to_a_group(topics: Topics, topic: str) -> None:
    topics.write(topic, [b"0", b"1"])
    query = Query(topics, topic, progressGroup=f"group-of-{topic}")
    query.plan()
    query.plan()
    query.reader.stop()
    assert topics.committed(f"group-of-{topic}") == {topic: {"0": 2}}


def test_records_before_the_start_of_the_log_are_left_out_of_their_batch(
    topics: Topics, topic: str
) -> None:
    query = Query(topics, topic, failOnDataLoss=False)
    query.reader.initialOffset()
    # One batch, which the broker returns whole.
    topics.write(topic, [b"0", b"1", b"2"])
    topics.delete_records(topic, 2)
    assert query.plan() == [b"2"]


class Mixed(NamedTuple):
    """A topic with everything that leaves offsets without a row, and its rows by isolation."""

    name: str
    end: int
    rows: dict[bool, list[tuple[int, bytes | None]]]


@pytest.fixture(scope="module")
def mixed(topics: Topics) -> Mixed:
    name = next(_names)
    topics.create(name)
    for number, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        texts = [b"%d.%d" % (number, each) for each in range(17)]
        topics.write(name, texts, codec=codec)
        topics.abort(name, [b"aborted"] * 5)
        topics.commit(name, texts[:3])
    topics.delete_records(name, 20)
    rows = {
        committed: [(each.offset, each.value) for each in topics.read(name, committed=committed)]
        for committed in (True, False)
    }
    # The last offset has the marker of the last commit.
    return Mixed(name, rows[True][-1][0] + 2, rows)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), committed=st.booleans(), max_bytes=st.sampled_from([1, 300, 5_000, 10**6]))
def test_any_range_has_the_rows_that_librdkafka_reads(
    topics: Topics, mixed: Mixed, data: st.DataObject, committed: bool, max_bytes: int
) -> None:
    first = data.draw(st.integers(20, mixed.end))
    last = data.draw(st.integers(first, mixed.end))
    query = Query(
        topics,
        mixed.name,
        **{
            "kafka.isolation.level": "read_committed" if committed else "read_uncommitted",
            "kafka.max.partition.fetch.bytes": max_bytes,
            "kafka.fetch.max.wait.ms": 10,
            "maxRecordsPerPartition": data.draw(st.integers(10, 200)),
        },
    )
    start, end = ({mixed.name: {"0": offset}} for offset in (first, last))
    found = [
        row
        for task in query.reader.partitions(start, end)
        for rows in query.reader.read(task)
        for row in zip(
            rows.column("offset").to_pylist(), rows.column("value").to_pylist(), strict=True
        )
    ]
    assert found == [row for row in mixed.rows[committed] if first <= row[0] < last]


@pytest.mark.parametrize("fail", [True, False])
def test_records_that_cannot_be_decoded_are_a_loss(
    topics: Topics, topic: str, data_dir: Path, fail: bool
) -> None:
    for value in (b"first", b"second", b"third"):
        topics.write(topic, [value])
    (segment,) = data_dir.glob(f"{topic}-0/*.log")
    data = bytearray(segment.read_bytes())
    start, header = list(iter_headers(memoryview(bytes(data))))[1]
    # The first record of the batch gets another length, and the batch its CRC.
    data[start + HEADER_SIZE] ^= 0x30
    checked = bytes(data[start + 21 : start + header.size])
    data[start + 17 : start + 21] = crc32c(checked).to_bytes(4, "big")
    with segment.open("r+b") as file:
        file.write(data)
    query = Query(topics, topic, failOnDataLoss=fail)
    if fail:
        with pytest.raises(DataLoss, match=f"{topic}-0: the batch at offset 1 is damaged"):
            query.plan()
    else:
        assert query.plan() == [b"first", b"third"]


@pytest.mark.parametrize("fail", [True, False])
def test_timestamp_that_spark_cannot_hold_loses_nothing_else(
    topics: Topics, topic: str, data_dir: Path, fail: bool
) -> None:
    for value in (b"first", b"second", b"third"):
        topics.write(topic, [value])
    (segment,) = data_dir.glob(f"{topic}-0/*.log")
    data = bytearray(segment.read_bytes())
    start, header = list(iter_headers(memoryview(bytes(data))))[1]
    # A broker of another kind, or with another message.timestamp.after.max.ms, has taken it.
    data[start + 27 : start + 35] = (2**63 - 1).to_bytes(8, "big")
    checked = bytes(data[start + 21 : start + header.size])
    data[start + 17 : start + 21] = crc32c(checked).to_bytes(4, "big")
    with segment.open("r+b") as file:
        file.write(data)
    query = Query(topics, topic, failOnDataLoss=fail)
    if fail:
        text = f"{topic}-0: the record at offset 1 has a timestamp that Spark cannot hold"
        with pytest.raises(DataLoss, match=text):
            query.plan()
    else:
        assert query.plan() == [b"first", b"second", b"third"]


def test_options_are_checked_by_the_format(topics: Topics) -> None:
    given = {"kafka.bootstrap.servers": topics.servers, "subscribe": "a", "includeheader": "true"}
    with pytest.raises(OptionError, match=r"did you mean includeHeaders\?"):
        BarnabasDataSource(given).schema()
