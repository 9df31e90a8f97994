"""The source on Spark: batches and streams have the rows that librdkafka reads."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceRegistration
from pyspark.sql.streaming import StreamingQuery

from barnabas.pipeline import register
from barnabas.pipeline.spark.format import BarnabasDataSource
from barnabas.testing import Broker
from tests.pipeline.rows import options, seen, values
from tests.support.spark import spark_session
from tests.support.topics import Topics
from tests.support.waiting import until

pytestmark = pytest.mark.xdist_group("spark-source")


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with spark_session(tmp_path_factory.mktemp("spark")) as session:
        register(session)
        yield session


@pytest.fixture(scope="module")
def topics() -> Iterator[Topics]:
    configs = {"auto.create.topics.enable": "false", "log.cleaner.backoff.ms": "100"}
    with Broker(configs) as broker:
        yield Topics(broker.bootstrap_servers)


_names = (f"topic-{number}" for number in itertools.count())


@pytest.fixture
def topic(topics: Topics) -> str:
    """A new topic of two partitions."""
    name = next(_names)
    topics.create(name, 2)
    return name


def batch(spark: SparkSession, topics: Topics, topic: str, **given: object) -> DataFrame:
    return spark.read.format("barnabas").options(**options(topics, topic, given)).load()


class Stream:
    """A query whose batches the test keeps; each run goes on at the checkpoint of the last."""

    def __init__(
        self, spark: SparkSession, topics: Topics, topic: str, directory: Path, **given: object
    ) -> None:
        self._reader = spark.readStream.format("barnabas").options(**options(topics, topic, given))
        self._checkpoint = directory / "checkpoint"
        self.batches: dict[int, list[str]] = {}
        self.query: StreamingQuery | None = None

    def start(self, **trigger: object) -> StreamingQuery:
        writer = self._reader.load().writeStream.foreachBatch(self._keep)
        writer = writer.option("checkpointLocation", str(self._checkpoint))
        self.query = writer.trigger(**trigger).start()  # type: ignore[arg-type]
        return self.query

    def run(self) -> list[list[str]]:
        """Read what is there now; return the values of each batch of this run that has some."""
        before = set(self.batches)
        query = self.start(availableNow=True)
        assert query.awaitTermination(100)
        return [
            self.batches[each]
            for each in sorted(self.batches.keys() - before)
            if self.batches[each]
        ]

    def offsets(self, number: int) -> str:
        """Return the source's line in the log of offsets of a batch."""
        return (self._checkpoint / "offsets" / str(number)).read_text().splitlines()[2]

    def rewrite_offsets(self, number: int, text: str) -> None:
        """Replace the source's line in the log of offsets of a batch."""
        path = self._checkpoint / "offsets" / str(number)
        lines = path.read_text().splitlines()
        path.write_text("\n".join([*lines[:2], text]))
        path.with_name(f".{number}.crc").unlink()

    def forget_commit(self, number: int) -> None:
        """Leave a checkpoint as if the driver had died in a batch."""
        for path in (self._checkpoint / "commits").glob(f"*{number}*"):
            path.unlink()

    @property
    def all(self) -> list[str]:
        return sorted(itertools.chain.from_iterable(self.batches.values()))

    def _keep(self, rows: DataFrame, number: int) -> None:
        self.batches[number] = values(rows)


# -- rows


def test_rows_have_every_field_as_librdkafka_reads_it(
    spark: SparkSession, topics: Topics, topic: str
) -> None:
    for number, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        texts = [b"%s %d" % (codec.encode(), each) for each in range(50)]
        topics.write(topic, texts, key=b"k%d" % number, partition=number % 2, codec=codec)
    topics.write(topic, [None], key=b"tombstone")
    topics.write(topic, [b""], key=b"")
    topics.write(topic, [b"\xff\x00"], headers=[("a", b"1"), ("a", None), ("ü", b"")])
    topics.write(topic, [b"early"], timestamp=1)
    stamped = f"{topic}-stamped"
    topics.create(stamped, message_timestamp_type="LogAppendTime")
    topics.write(stamped, [b"by the broker"], timestamp=1)
    found = batch(spark, topics, f"{topic},{stamped}", includeHeaders=True)
    assert seen(found) == topics.read(topic, 2) + topics.read(stamped)
    assert batch(spark, topics, topic).columns == [
        "key",
        "value",
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestampType",
    ]


def test_transactions_are_read_when_they_are_committed(
    spark: SparkSession, topics: Topics, topic: str
) -> None:
    topics.abort(topic, [b"aborted"])
    topics.commit(topic, [b"committed", b"with it"])
    topics.commit(topic, [b"elsewhere"], partition=1)
    topics.write(topic, [b"plain"])
    producer = topics.open_transaction(topic, [b"open"])
    topics.write(topic, [b"behind"])
    assert seen(batch(spark, topics, topic)) == topics.read(topic, 2)
    assert values(batch(spark, topics, topic)) == ["committed", "elsewhere", "plain", "with it"]
    dirty = batch(spark, topics, topic, kafka_isolation_level="read_uncommitted")
    assert seen(dirty) == topics.read(topic, 2, committed=False)
    # Partition 0 has a record and its marker at 0 and 1.
    marker = batch(
        spark,
        topics,
        topic,
        startingOffsets=f'{{"{topic}":{{"0":1,"1":1}}}}',
        endingOffsets=f'{{"{topic}":{{"0":2,"1":2}}}}',
    )
    assert values(marker) == []
    producer.commit_transaction(30)
    assert seen(batch(spark, topics, topic)) == topics.read(topic, 2)


def test_gaps_of_compaction_are_no_loss(spark: SparkSession, topics: Topics) -> None:
    name = next(_names)
    topics.create(
        name, cleanup_policy="compact", segment_bytes="1048576", min_cleanable_dirty_ratio="0.01"
    )
    topics.write(name, [b"kept"], key=b"once")
    for number in range(60):
        value = b"%d" % number + bytes(50_000)
        topics.write(name, [value], key=b"k%d" % (number % 3))
    kept = until(lambda: found if len(found := topics.read(name)) < 30 else None)
    offsets = [each.offset for each in kept]
    assert offsets != list(range(offsets[0], offsets[0] + len(offsets)))
    assert seen(batch(spark, topics, name, minPartitions=10)) == kept


# -- options


def test_a_batch_is_cut_by_offsets_and_by_timestamps(
    spark: SparkSession, topics: Topics, topic: str
) -> None:
    for number in range(4):
        topics.write(topic, [b"a%d" % number], timestamp=1_000 * (number + 1))
        topics.write(topic, [b"b%d" % number], partition=1, timestamp=1_500 * (number + 1))
    topics.delete_records(topic, 1)

    def read(**given: str) -> str:
        texts = {key: value.replace("T", topic) for key, value in given.items()}
        return " ".join(values(batch(spark, topics, topic, **texts)))

    assert read() == "a1 a2 a3 b0 b1 b2 b3"
    assert read(startingOffsets='{"T":{"0":2,"1":-2}}') == "a2 a3 b0 b1 b2 b3"
    assert read(endingOffsets='{"T":{"0":2,"1":-1}}') == "a1 b0 b1 b2 b3"
    assert read(startingTimestamp="3000") == "a2 a3 b1 b2 b3"
    assert read(endingTimestamp="3000") == "a1 b0"
    assert read(startingOffsetsByTimestamp='{"T":{"0":4000,"1":6000}}') == "a3 b3"
    assert read(endingOffsetsByTimestamp='{"T":{"0":4000,"1":9000}}') == "a1 a2 b0 b1 b2 b3"
    late = {"startingTimestamp": "5000"}
    with pytest.raises(PySparkException, match=f"{topic}-0 has no record at or after"):
        read(**late)
    assert read(**late, startingOffsetsByTimestampStrategy="latest") == "b3"
    assert read(startingOffsets='{"T":{"0":0,"1":4}}', failOnDataLoss="false") == "a1 a2 a3"
    with pytest.raises(PySparkException, match="startingOffsets is 0, the log has 1 to 4"):
        read(startingOffsets='{"T":{"0":0,"1":4}}')
    with pytest.raises(PySparkException, match="endingOffsets is 9, the log has 0 to 4"):
        read(endingOffsets='{"T":{"0":2,"1":9}}')


def test_topics_are_chosen_by_pattern_or_by_partition(
    spark: SparkSession, topics: Topics, topic: str
) -> None:
    other = f"{topic}-other"
    topics.create(other)
    topics.write(topic, [b"0"])
    topics.write(topic, [b"1"], partition=1)
    topics.write(other, [b"other"])
    assert values(batch(spark, topics, topic, subscribe=f"{topic}, {other}")) == ["0", "1", "other"]
    assert values(batch(spark, topics, topic, subscribePattern=f"{topic}-.*")) == ["other"]
    assert values(batch(spark, topics, topic, subscribePattern="no-topic")) == []
    assert values(batch(spark, topics, topic, assign=f'{{"{topic}":[1]}}')) == ["1"]


def test_tasks_are_as_many_as_options_say(spark: SparkSession, topics: Topics, topic: str) -> None:
    topics.write(topic, [b"%d" % number for number in range(90)])
    topics.write(topic, [b"%d" % number for number in range(10)], partition=1)
    all_rows = topics.read(topic, 2)
    for given, tasks in (
        ({}, 2),
        ({"minPartitions": 10}, 10),
        ({"maxRecordsPerPartition": 30}, 4),
        ({"maxRecordsPerPartition": 30, "minPartitions": 2}, 4),
    ):
        found = batch(spark, topics, topic, **given)
        assert found.rdd.getNumPartitions() == tasks
        assert seen(found) == all_rows


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"startingOfsets": "latest"}, r"unknown option .*did you mean startingOffsets\?"),
        ({"kafka.sasl.mechanism": "PLAIN"}, "set it to SSL"),
        ({"subscribe": "nowhere"}, "topic nowhere does not exist: create it"),
        ({"startingOffsets": "latest"}, "a batch cannot start at the end"),
        ({"kafka.bootstrap.servers": "127.0.0.1:1"}, "127.0.0.1:1"),
    ],
)
def test_bad_input_is_refused_before_a_row_is_read(
    spark: SparkSession, topics: Topics, topic: str, given: dict[str, str], words: str
) -> None:
    with pytest.raises(PySparkException, match=words):
        batch(spark, topics, topic, **given).collect()


def test_columns_are_fixed(spark: SparkSession, topics: Topics, topic: str) -> None:
    reader = spark.read.format("barnabas").options(**options(topics, topic, {}))
    with pytest.raises(PySparkException, match=r"remove .schema\(...\)"):
        reader.schema("value string").load().collect()


# -- streams


def test_a_stream_goes_on_at_its_checkpoint(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    stream = Stream(
        spark, topics, topic, tmp_path, startingOffsets="earliest", maxOffsetsPerTrigger=6
    )
    topics.write(topic, [b"%02d" % number for number in range(15)])
    topics.write(topic, [b"other"], partition=1)
    found = stream.run()
    # Each trigger takes 6 offsets, shared by what is left in each partition.
    assert found == [
        ["00", "01", "02", "03", "04", "other"],
        ["05", "06", "07", "08", "09", "10"],
        ["11", "12", "13", "14"],
    ]
    assert json.loads(stream.offsets(0)) == {topic: {"0": 5, "1": 1}}
    # The stock connector writes no spaces: a checkpoint of either has the same form.
    stream.rewrite_offsets(2, f'{{"{topic}":{{"0":15,"1":1}}}}')
    topics.commit(topic, [b"15"])
    topics.grow(topic, 3)
    topics.write(topic, [b"new"], partition=2)
    assert stream.run() == [["15", "new"]]
    assert stream.run() == []


def test_a_batch_that_is_repeated_has_the_same_rows(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    stream = Stream(spark, topics, topic, tmp_path, startingOffsets="earliest")
    topics.write(topic, [b"1", b"2"])
    producer = topics.open_transaction(topic, [b"4"])
    topics.write(topic, [b"5"])
    assert stream.run() == [["1", "2"]]
    topics.write(topic, [b"3"], partition=1)
    assert stream.run() == [["3"]]
    stream.forget_commit(1)
    topics.grow(topic, 3)
    topics.write(topic, [b"6"], partition=1)
    producer.commit_transaction(30)
    stream.batches.clear()
    assert stream.run() == [["3"], ["4", "5", "6"]]


def test_a_stream_from_the_end_loses_nothing_when_its_first_batch_is_repeated(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    topics.write(topic, [b"before"])
    stream = Stream(spark, topics, topic, tmp_path)
    assert stream.run() == []
    topics.write(topic, [b"after"])
    topics.write(topic, [b"too"], partition=1)
    # The driver dies before the first batch is committed: its start is in no file.
    stream.forget_commit(0)
    assert stream.run() == [["after", "too"]]


def test_a_running_stream_finds_new_records_partitions_and_topics(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    stream = Stream(
        spark,
        topics,
        topic,
        tmp_path,
        subscribePattern=f"{topic}.*",
        progressGroup=f"group-of-{topic}",
    )
    query = stream.start(processingTime="0 seconds")
    try:
        until(lambda: 0 in stream.batches, told=query.exception)
        topics.write(topic, [b"1"])
        until(lambda: stream.all == ["1"], told=query.exception)
        topics.grow(topic, 3)
        topics.write(topic, [b"2"], partition=2)
        until(lambda: stream.all == ["1", "2"], told=query.exception)
        topics.create(f"{topic}-more")
        topics.write(f"{topic}-more", [b"3"])
        until(lambda: stream.all == ["1", "2", "3"], told=query.exception)
        end = {topic: {"0": 1, "1": 0, "2": 1}, f"{topic}-more": {"0": 1}}
        until(lambda: topics.committed(f"group-of-{topic}") == end, told=query.exception)
        source = query.lastProgress.sources[0]
        assert json.loads(source.latestOffset) == end
    finally:
        query.stop()


def test_a_trigger_waits_for_its_least_offsets(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    stream = Stream(
        spark,
        topics,
        topic,
        tmp_path,
        startingOffsets="earliest",
        minOffsetsPerTrigger=5,
        maxOffsetsPerTrigger=8,
        maxTriggerDelay="1h",
    )
    topics.write(topic, [b"0"])
    query = stream.start(processingTime="0 seconds")
    try:
        # The first trigger does not wait.
        until(lambda: stream.all == ["0"], told=query.exception)
        topics.write(topic, [b"1", b"2", b"3", b"4"])
        seen_by = {topic: {"0": 5, "1": 0}}
        until(lambda: latest_offset(query) == seen_by, told=query.exception)
        assert stream.all == ["0"]
        topics.write(topic, [b"5", b"6"])
        until(lambda: stream.all == ["0", "1", "2", "3", "4", "5", "6"], told=query.exception)
        assert [found for found in stream.batches.values() if found] == [
            ["0"],
            ["1", "2", "3", "4", "5", "6"],
        ]
    finally:
        query.stop()


def latest_offset(query: StreamingQuery) -> object:
    progress = query.lastProgress
    return json.loads(progress.sources[0].latestOffset or "null") if progress else None


def test_deleted_records_end_a_stream_or_are_left_out(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    stream = Stream(spark, topics, topic, tmp_path, startingOffsets="earliest")
    topics.write(topic, [b"1"])
    assert stream.run() == [["1"]]
    topics.write(topic, [b"2", b"3", b"4"])
    topics.delete_records(topic, 3)
    with pytest.raises(StreamingQueryException, match=f"{topic}-0: offsets 1 to 2 are lost"):
        stream.run()
    careless = Stream(spark, topics, topic, tmp_path, failOnDataLoss=False)
    assert careless.run() == [["4"]]


def test_a_topic_that_was_created_again_ends_a_stream_or_is_read(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    stream = Stream(spark, topics, topic, tmp_path, startingOffsets="earliest")
    topics.write(topic, [b"1", b"2"])
    assert stream.run() == [["1", "2"]]
    topics.delete(topic)
    with pytest.raises(StreamingQueryException, match="the partitions are gone"):
        stream.run()
    topics.create(topic, 2)
    topics.write(topic, [b"new"])
    careless = Stream(spark, topics, topic, tmp_path, failOnDataLoss=False)
    assert careless.run() == []
    topics.write(topic, [b"newer"])
    assert careless.run() == [["newer"]]


def test_register_leaves_a_format_that_spark_has_found(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's log had a warning of DataSourceManager for every call: a source was replaced."""
    registered: list[type[DataSource]] = []
    monkeypatch.setattr(DataSourceRegistration, "register", lambda _, each: registered.append(each))
    register(spark)
    register(spark.newSession())
    assert registered == []
    monkeypatch.setattr(BarnabasDataSource, "name", classmethod(lambda _: "elsewhere"))
    register(spark)
    assert registered == [BarnabasDataSource]
