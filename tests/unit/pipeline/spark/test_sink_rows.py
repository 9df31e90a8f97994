"""The rows of a task: their topics, partitions, timestamps and headers, and errors by row."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from barnabas.client.producer import EncodedBatch, partition_for
from barnabas.pipeline.sink.options import parse_options
from barnabas.pipeline.sink.protocol import SinkError
from barnabas.pipeline.sink.task import RoutedBatch, TaskLabel
from barnabas.pipeline.spark import sink_rows as module
from barnabas.pipeline.spark.sink_rows import RowEncoder
from barnabas.protocol.records.batch import read_header
from barnabas.protocol.records.record import Record, iter_records

PARTITIONS = {"a": 3, "b": 2}
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
STAMPS = pa.timestamp("us", "UTC")


def encoder(**options: str) -> RowEncoder:
    given = {"kafka.bootstrap.servers": "localhost:1", "sinkId": "sink", **options}
    label = TaskLabel("query", 7, 3, 0)
    return RowEncoder(parse_options(given, streaming=True), label, PARTITIONS.__getitem__)


def batch(**columns: Any) -> pa.RecordBatch:
    arrays = {
        name: column if isinstance(column, pa.Array) else pa.array(column)
        for name, column in columns.items()
    }
    return pa.RecordBatch.from_pydict(arrays)


def records(routed: RoutedBatch) -> list[Record]:
    return list(iter_records(routed.encoded.data, 0, read_header(routed.encoded.data)))


def written(found: list[RoutedBatch]) -> dict[tuple[str, int], list[bytes | None]]:
    """Return the values by topic and partition."""
    values: dict[tuple[str, int], list[bytes | None]] = {}
    for each in found:
        place = each.topic, each.partition
        values.setdefault(place, []).extend(row.value for row in records(each))
    return values


def error_of(rows: pa.RecordBatch, **options: str) -> str:
    with pytest.raises(SinkError) as caught:
        encoder(**options).encode(rows)
    text = str(caught.value)
    assert text.startswith("task 3 (attempt 0) of batch 7: row ")
    assert "\n" not in text
    return text


def test_keys_choose_the_partition_of_the_java_client():
    keys = [f"key-{number}" for number in range(50)]
    found = encoder(topic="a").encode(batch(key=keys, value=keys))
    expected: dict[tuple[str, int], list[bytes]] = {}
    for key in keys:
        expected.setdefault(("a", partition_for(key.encode(), 3)), []).append(key.encode())
    assert written(found) == expected
    assert sum(each.encoded.count for each in found) == 50


def test_rows_of_all_partitions_are_encoded_by_one_call(monkeypatch: pytest.MonkeyPatch):
    """A call has a cost of its own: with 64 partitions it was most of the sink's time."""
    calls = []

    def encode(*columns: pa.Array, **settings: Any) -> Iterator[EncodedBatch]:
        calls.append(settings["runs"])
        return original(*columns, **settings)

    original = module.encode  # type: ignore[attr-defined]
    monkeypatch.setattr(module, "encode", encode)
    keys = [f"key-{number}" for number in range(50)]
    found = encoder(topic="a").encode(batch(key=keys, value=keys))
    assert [len(runs) for runs in calls] == [3]
    assert [each.partition for each in found] == [0, 1, 2]


def test_small_batches_are_gathered(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "GATHERED_BYTES", 1000)
    monkeypatch.setattr(module, "GATHERED_ROWS", 40)
    narrow, wide = batch(value=["v"] * 10), batch(value=["v" * 400] * 2)
    empty = narrow.slice(0, 0)
    given = [empty, narrow, narrow, narrow, empty, narrow, narrow, wide, wide, narrow]
    found = list(module.gather(given))
    assert [each.num_rows for each in found] == [40, 10 + 2 + 2, 10]
    assert pa.Table.from_batches(found).equals(pa.Table.from_batches(given).combine_chunks())
    assert list(module.gather([empty])) == []


def test_rows_without_a_key_stay_with_one_partition():
    rows = batch(value=["1", "2", "3"])
    router = encoder(topic="a")
    places = {*written(router.encode(rows)), *written(router.encode(rows))}
    assert len(places) == 1


def test_given_partition_precedes_the_key():
    rows = batch(
        key=["x", "x", "x"], value=["1", "2", "3"], partition=pa.array([2, None, 0], "int32")
    )
    found = written(encoder(topic="a").encode(rows))
    assert b"1" in found["a", 2]
    assert b"3" in found["a", 0]
    assert b"2" in found["a", partition_for(b"x", 3)]


def test_column_names_the_topic_of_each_row():
    rows = batch(topic=["a", "b", "a"], key=["k", "k", "k"], value=["1", "2", "3"])
    assert written(encoder().encode(rows)) == {
        ("a", partition_for(b"k", 3)): [b"1", b"3"],
        ("b", partition_for(b"k", 2)): [b"2"],
    }


def test_option_topic_precedes_the_column():
    rows = batch(topic=["b", None], value=["1", "2"])
    assert {topic for topic, _ in written(encoder(topic="a").encode(rows))} == {"a"}


def test_timestamps_and_headers_are_kept():
    at = datetime(2026, 1, 2, 3, 4, 5, 678999, tzinfo=UTC)
    headers = [[{"key": "h", "value": b"1"}, {"key": "h", "value": None}], None]
    rows = batch(
        value=["1", "2"],
        timestamp=pa.array([at, None], STAMPS),
        headers=pa.array(headers, HEADERS),
    )
    first, second = (row for each in encoder(topic="a").encode(rows) for row in records(each))
    assert first.timestamp == 1767323045678
    assert first.headers == (("h", b"1"), ("h", None))
    assert second.timestamp > first.timestamp
    assert second.headers == ()


def test_null_values_and_large_types_are_written():
    rows = batch(
        key=pa.array(["k", None], pa.large_string()),
        value=pa.array([None, b"2"], pa.large_binary()),
    )
    found = [row for each in encoder(topic="b").encode(rows) for row in records(each)]
    assert {(row.key, row.value) for row in found} == {(b"k", None), (None, b"2")}


def test_rows_are_numbered_over_all_batches_of_a_task():
    router = encoder(topic="a")
    router.encode(batch(value=["1", "2"]))
    (routed,) = router.encode(batch(value=["3"]))
    assert routed.first_row == 2
    with pytest.raises(SinkError, match="row 4 was not written"):
        router.encode(batch(value=["4", "5"], partition=pa.array([0, 9], "int32")))


def test_null_topic_is_refused_with_its_row():
    assert "row 1 was not written: the topic is null" in error_of(
        batch(topic=["a", None], value=["1", "2"])
    )


@pytest.mark.parametrize("partition", [-1, 3])
def test_partition_that_is_not_there_is_refused_with_its_row(partition):
    rows = batch(value=["1", "2"], partition=pa.array([0, partition], "int32"))
    told = error_of(rows, topic="a")
    assert f"row 1 was not written: partition {partition} is not there: a has 3" in told


def test_partition_of_a_later_topic_is_refused_with_its_row():
    rows = batch(
        topic=["a", "b", "b"], value=["1", "2", "3"], partition=pa.array([2, 1, 2], "int32")
    )
    assert "row 2 was not written: partition 2 is not there: b has 2" in error_of(rows)


def test_header_without_a_key_is_refused_with_its_row():
    headers = [[{"key": "h", "value": b"1"}], [], [{"key": None, "value": b"1"}]]
    rows = batch(value=["1", "2", "3"], headers=pa.array(headers, HEADERS))
    assert "row 2 was not written: a header has no key" in error_of(rows, topic="a")


def test_timestamp_before_1970_is_refused_with_its_row():
    rows = batch(value=["1", "2"], timestamp=pa.array([0, -1_000], STAMPS))
    assert "row 1 was not written: the timestamp is before 1970" in error_of(rows, topic="a")
