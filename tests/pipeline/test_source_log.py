"""The source without Spark: what it finds in topics, what it fetches, and lost data."""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.client.batches import FetchedBatches
from barnabas.client.cluster import Cluster
from barnabas.pipeline.source import reading
from barnabas.pipeline.source.offsets import (
    EARLIEST,
    LATEST,
    AtTime,
    AtTimes,
    ByPartition,
    Everywhere,
    Offsets,
)
from barnabas.pipeline.source.options import Assign, Fetching, Pattern, Selection, Subscribe
from barnabas.pipeline.source.planning import Range
from barnabas.pipeline.source.positions import NO_ID, Positions, SourceError
from barnabas.pipeline.source.reading import DataLoss, Losses, RangeReader, fetch_settings
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.metadata import MetadataResponse
from barnabas.protocol.records.record import iter_records
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.testing import Broker
from tests.support.topic_names import topic_name
from tests.support.topics import Topics

PATIENCE_S = 0.5


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def broker(data_dir: Path) -> Iterator[Broker]:
    with Broker({"auto.create.topics.enable": "false"}, data_dir=data_dir) as broker:
        yield broker


@pytest.fixture(scope="module")
def topics(broker: Broker) -> Topics:
    return Topics(broker.bootstrap_servers)


@pytest.fixture
def topic(topics: Topics, request: pytest.FixtureRequest) -> str:
    """A topic of two partitions, named after the test."""
    name = topic_name(request)
    topics.create(name, 2)
    return name


@pytest.fixture
async def cluster(broker: Broker) -> AsyncIterator[Cluster]:
    async with Cluster(broker.bootstrap_servers, timeout=PATIENCE_S) as cluster:
        yield cluster


def positions(cluster: Cluster, selection: Selection, *, committed: bool = True) -> Positions:
    return Positions(cluster, selection, read_committed=committed)


async def fetched(
    cluster: Cluster,
    wanted: Range,
    *,
    fail: bool = True,
    committed: bool = True,
    topic_id: bytes = NO_ID,
    max_bytes: int = 1024 * 1024,
) -> list[tuple[int, bytes | None]]:
    """Return offset and value of each record in a range."""
    settings = fetch_settings(
        Fetching("", read_committed=committed, max_wait=0.05, partition_max_bytes=max_bytes)
    )
    reader = RangeReader(cluster, wanted, settings, Losses(fail=fail), topic_id=topic_id)
    found = []
    try:
        while (chunk := await reader.take()) is not None:
            assert reader.is_at_end == (chunk.fetched.next_offset >= wanted.end)
            for pos, header in chunk.fetched.visible:
                found += [
                    (record.offset, record.value)
                    for record in iter_records(chunk.fetched.data, pos, header)
                    if chunk.start <= record.offset < wanted.end
                ]
    finally:
        await reader.close()
    return found


# -- positions


async def test_a_missing_topic_is_named(cluster: Cluster, topic: str) -> None:
    with pytest.raises(SourceError, match="topic nowhere does not exist: create it"):
        await positions(cluster, Subscribe((topic, "nowhere"))).all_partitions()


async def test_a_missing_partition_is_named(cluster: Cluster, topic: str) -> None:
    wanted = (TopicPartition(topic, 0), TopicPartition(topic, 7))
    with pytest.raises(SourceError, match=f"partition {topic}-7 does not exist"):
        await positions(cluster, Assign(wanted)).all_partitions()


async def test_a_pattern_matches_whole_names_and_no_internal_topic(
    cluster: Cluster, topics: Topics
) -> None:
    topics.create("pattern-a")
    topics.create("pattern-ab")
    topics.commit("pattern-a", [b"makes internal topics"])
    found = await positions(cluster, Pattern("pattern-.")).all_partitions()
    assert found == [("pattern-a", 0)]
    everything = await positions(cluster, Pattern(".*")).all_partitions()
    assert not [topic for topic, _ in everything if topic.startswith("__")]


async def test_a_start_is_resolved_by_partition(
    cluster: Cluster, topics: Topics, topic: str
) -> None:
    topics.write(topic, [b"1", b"2", b"3"])
    topics.write(topic, [b"1", b"2"], partition=1)
    topics.delete_records(topic, 1)
    asked = positions(cluster, Subscribe((topic,)))
    here, there = TopicPartition(topic, 0), TopicPartition(topic, 1)

    async def start(bound: object) -> tuple[object, object]:
        found = await asked.start(bound, error_without_match=True)  # type: ignore[arg-type]
        return (found.offsets[here], found.offsets[there]), sorted(found.at_end)

    assert await start(Everywhere(EARLIEST)) == ((1, 0), [])
    assert await start(Everywhere(LATEST)) == ((3, 2), [here, there])
    assert await start(ByPartition({here: EARLIEST, there: LATEST})) == ((1, 2), [there])
    assert await start(ByPartition({here: 2, there: 1})) == ((2, 1), [])
    clamped = await asked.start(ByPartition({here: 0, there: 9}), error_without_match=True)
    assert clamped.offsets == {here: 1, there: 2}
    assert list(clamped.losses) == [
        f"{topic}-0: startingOffsets is 0, the log has 1 to 3",
        f"{topic}-1: startingOffsets is 9, the log has 0 to 2",
    ]
    with pytest.raises(SourceError, match=f"startingOffsets lacks {topic}-1: add them"):
        await start(ByPartition({here: 2}))
    with pytest.raises(SourceError, match=f"names {topic}-5, which the query does not read"):
        await start(ByPartition({here: 2, there: 1, TopicPartition(topic, 5): 0}))


async def test_a_timestamp_gives_the_first_record_at_or_after_it(
    cluster: Cluster, topics: Topics, topic: str
) -> None:
    for timestamp in (1_000, 2_000, 3_000):
        topics.write(topic, [b"x"], timestamp=timestamp)
    topics.write(topic, [b"x"], partition=1, timestamp=2_500)
    asked = positions(cluster, Subscribe((topic,)))
    here, there = TopicPartition(topic, 0), TopicPartition(topic, 1)
    found = await asked.start(AtTime(1_500), error_without_match=True)
    assert found.offsets == {here: 1, there: 0}
    found = await asked.start(AtTimes({here: 3_000, there: 2_500}), error_without_match=True)
    assert found.offsets == {here: 2, there: 0}
    with pytest.raises(SourceError, match=f"{topic}-1 has no record at or after"):
        await asked.start(AtTime(2_700), error_without_match=True)
    found = await asked.start(AtTime(2_700), error_without_match=False)
    assert (found.offsets, list(found.at_end)) == ({here: 2, there: 1}, [there])
    assert (await asked.end(AtTime(2_700))).offsets == {here: 2, there: 1}


async def test_committed_records_end_at_the_oldest_open_transaction(
    cluster: Cluster, topics: Topics, topic: str
) -> None:
    topics.write(topic, [b"before"])
    producer = topics.open_transaction(topic, [b"open"])
    topics.write(topic, [b"behind"])
    wanted = [TopicPartition(topic, 0)]
    committed = positions(cluster, Subscribe((topic,)))
    everything = positions(cluster, Subscribe((topic,)), committed=False)
    assert list((await committed.latest(wanted)).values()) == [1]
    assert list((await everything.latest(wanted)).values()) == [3]
    producer.commit_transaction(30)
    assert list((await committed.latest(wanted)).values()) == [4]


async def test_new_partitions_are_found(cluster: Cluster, topics: Topics, topic: str) -> None:
    asked = positions(cluster, Subscribe((topic,)))
    start = await asked.latest_from({})
    topics.grow(topic, 3)
    assert (await asked.latest_from(start)).keys() - start.keys() == {TopicPartition(topic, 2)}


class LaggingCluster(Cluster):
    """A cluster whose first answers lack the last partition of each topic."""

    lagging = 0

    async def refresh(
        self, topics: Iterable[str] | None = None, *, create: bool = False
    ) -> MetadataResponse:
        response = await super().refresh(topics, create=create)
        if topics and self.lagging:
            self.lagging -= 1
            for row in response.topics:
                row.partitions = sorted(row.partitions, key=lambda each: each.partition_index)[:-1]
        return response


async def test_a_broker_that_lags_behind_takes_no_partition_away(
    broker: Broker, topic: str
) -> None:
    async with LaggingCluster(broker.bootstrap_servers) as cluster:
        asked = positions(cluster, Subscribe((topic,)))
        start = dict.fromkeys(await asked.partitions(), 0)
        cluster.lagging = 2
        assert await asked.latest_from(start) == start
        assert cluster.lagging == 0


async def test_a_new_leader_that_lags_behind_takes_no_records_away(
    cluster: Cluster, topics: Topics, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.write(topic, [b"1", b"2", b"3"])
    asked = positions(cluster, Subscribe((topic,)))
    start = await asked.latest_from({})
    lagging = [1, 2]

    async def behind(self: Positions, partitions: Iterable[TopicPartition]) -> Offsets:
        found = await honest(self, partitions)
        return {each: lagging.pop() for each in found} if lagging else found

    honest = Positions.latest
    monkeypatch.setattr(Positions, "latest", behind)
    assert await asked.latest_from(start) == start
    assert lagging == []


# -- ranges


async def test_a_range_has_its_records_only(cluster: Cluster, topics: Topics, topic: str) -> None:
    values = [b"%d" % number for number in range(500)]
    topics.write(topic, values)
    wanted = Range(TopicPartition(topic, 0), 100, 350)
    # Each response has a few batches: the range needs several.
    found = await fetched(cluster, wanted, max_bytes=500)
    assert found == list(enumerate(values))[100:350]


async def test_an_aborted_transaction_is_not_read(
    cluster: Cluster, topics: Topics, topic: str
) -> None:
    topics.abort(topic, [b"no", b"no"])
    topics.commit(topic, [b"yes"])
    topics.abort(topic, [b"no"])
    wanted = Range(TopicPartition(topic, 0), 0, 7)
    assert await fetched(cluster, wanted) == [(3, b"yes")]
    everything = await fetched(cluster, wanted, committed=False)
    assert [offset for offset, _ in everything] == [0, 1, 3, 5]


async def test_a_range_of_markers_alone_has_no_records(
    cluster: Cluster, topics: Topics, topic: str
) -> None:
    topics.commit(topic, [b"1"])
    topics.commit(topic, [b"2"])
    assert await fetched(cluster, Range(TopicPartition(topic, 0), 1, 2)) == []
    assert await fetched(cluster, Range(TopicPartition(topic, 0), 3, 4)) == []


@pytest.mark.parametrize("fail", [True, False])
async def test_records_that_retention_has_deleted_are_a_loss(
    cluster: Cluster, topics: Topics, topic: str, fail: bool
) -> None:
    topics.write(topic, [b"1", b"2", b"3"])
    topics.delete_records(topic, 2)
    wanted = Range(TopicPartition(topic, 0), 0, 3)
    if fail:
        with pytest.raises(DataLoss, match="offsets 0 to 1 are lost") as caught:
            await fetched(cluster, wanted)
        assert "set failOnDataLoss to false" in str(caught.value)
    else:
        assert await fetched(cluster, wanted, fail=False) == [(2, b"3")]


@pytest.mark.parametrize("fail", [True, False])
async def test_a_range_behind_the_log_is_a_loss(
    cluster: Cluster, topics: Topics, topic: str, fail: bool
) -> None:
    topics.write(topic, [b"1"])
    behind = Range(TopicPartition(topic, 0), 5, 7)
    across = Range(TopicPartition(topic, 0), 0, 7)
    if fail:
        with pytest.raises(DataLoss, match="offsets 5 to 6 are lost"):
            await fetched(cluster, behind)
        with pytest.raises(DataLoss, match="offsets 1 to 6 are lost, no batch is left"):
            await fetched(cluster, across)
    else:
        assert await fetched(cluster, behind, fail=False) == []
        assert await fetched(cluster, across, fail=False) == [(0, b"1")]


@pytest.mark.parametrize("fail", [True, False])
async def test_a_topic_that_was_created_again_is_a_loss(
    cluster: Cluster, topics: Topics, topic: str, fail: bool
) -> None:
    topics.write(topic, [b"old", b"old"])
    asked = positions(cluster, Subscribe((topic,)))
    await asked.partitions()
    before = asked.topic_ids[topic]
    topics.delete(topic)
    topics.create(topic, 2)
    topics.write(topic, [b"new"])
    wanted = Range(TopicPartition(topic, 0), 0, 1)
    if fail:
        with pytest.raises(DataLoss, match="was deleted and created again"):
            await fetched(cluster, wanted, topic_id=before)
    else:
        assert await fetched(cluster, wanted, topic_id=before, fail=False) == [(0, b"new")]
    await asked.partitions()
    assert await fetched(cluster, wanted, topic_id=asked.topic_ids[topic]) == [(0, b"new")]


@pytest.mark.parametrize("fail", [True, False])
async def test_a_deleted_topic_is_a_loss(
    cluster: Cluster, topics: Topics, topic: str, fail: bool
) -> None:
    topics.write(topic, [b"1"])
    topics.delete(topic)
    wanted = Range(TopicPartition(topic, 0), 0, 1)
    if fail:
        with pytest.raises(DataLoss, match="the partition was deleted"):
            await fetched(cluster, wanted)
    else:
        assert await fetched(cluster, wanted, fail=False) == []


@pytest.mark.parametrize(
    "code", [ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
)
async def test_the_answer_of_a_deposed_leader_is_no_loss(
    cluster: Cluster,
    topics: Topics,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    code: ErrorCode,
) -> None:
    topics.write(topic, [b"1", b"2"])
    honest = reading.fetch_batches  # type: ignore[attr-defined]
    answers = [code, code]

    async def deposed(*given: Any) -> FetchedBatches:
        if answers:
            raise KafkaError(answers.pop())
        return await honest(*given)

    monkeypatch.setattr(reading, "fetch_batches", deposed)
    wanted = Range(TopicPartition(topic, 0), 0, 2)
    assert await fetched(cluster, wanted) == [(0, b"1"), (1, b"2")]


async def test_a_range_ends_where_compaction_has_removed_the_rest(
    cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log ends in an empty segment if compaction removed all records before it."""

    async def nothing(*given: object) -> FetchedBatches:
        offset = given[2]
        assert isinstance(offset, int)
        return FetchedBatches(memoryview(b""), [], offset, stable, stable, 0)

    monkeypatch.setattr(reading, "fetch_batches", nothing)
    wanted = Range(TopicPartition(topic, 0), 3, 7)
    stable = 7
    assert await fetched(cluster, wanted) == []
    stable = 6
    with pytest.raises(DataLoss, match="no batch is left from offset 3 on"):
        await fetched(cluster, wanted)


@pytest.mark.parametrize("fail", [True, False])
async def test_a_damaged_batch_is_a_loss(
    cluster: Cluster, topics: Topics, topic: str, data_dir: Path, fail: bool
) -> None:
    for value in (b"first", b"second", b"third"):
        topics.write(topic, [value])
    overwrite(data_dir, topic, lambda data: data.replace(b"second", b"secoXd"))
    wanted = Range(TopicPartition(topic, 0), 0, 3)
    if fail:
        with pytest.raises(DataLoss, match=r"offsets 1 to 1 are lost, .*does not match its CRC"):
            await fetched(cluster, wanted)
    else:
        assert await fetched(cluster, wanted, fail=False) == [(0, b"first"), (2, b"third")]


def overwrite(data_dir: Path, topic: str, change: Callable[[bytes], bytes]) -> None:
    """Change bytes of a partition's only segment, behind the broker's back."""
    (segment,) = data_dir.glob(f"{topic}-0/*.log")
    before = segment.read_bytes()
    after = change(before)
    assert before != after
    assert len(before) == len(after)
    with segment.open("r+b") as file:
        file.write(after)
