"""The source beside Spark's stock Kafka connector, in one session: rows, tasks and checkpoints.

Spark fetches the connector of its own version from Maven Central, which lacks some versions:

    tests/run-spark 4.2.0 -m spark
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from barnabas.pipeline import register
from barnabas.testing import Broker
from tests.pipeline.rows import options, seen, values
from tests.support.secured import secured_broker
from tests.support.spark import spark_session
from tests.support.topics import Topics

pytest.importorskip("pyspark.sql.streaming.datasource", reason="needs PySpark 4.2")
pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

CONNECTOR = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
OURS, STOCK = "barnabas", "kafka"


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    directory = tmp_path_factory.mktemp("spark")
    with spark_session(directory, spark_jars_packages=CONNECTOR) as session:
        register(session)
        yield session


@pytest.fixture(scope="module")
def topics() -> Iterator[Topics]:
    with Broker({"auto.create.topics.enable": "false"}) as broker:
        yield Topics(broker.bootstrap_servers)


@pytest.fixture(scope="module")
def topic(topics: Topics) -> str:
    """A topic of two partitions: headers, transactions, a start that is not 0."""
    topics.create("t", 2)
    for number in range(40):
        headers = [("h", b"1"), ("n", None)] if number % 2 else None
        at = 1_000 * (number + 1)
        topics.write("t", [b"a%d" % number], timestamp=at, headers=headers, key=b"k")
        topics.write("t", [b"b%d" % number], timestamp=at * 3 // 2, partition=1)
    topics.delete_records("t", 1)
    topics.commit("t", [b"committed"])
    topics.abort("t", [b"aborted"])
    return "t"


def options_of(format: str, topics: Topics, topic: str, given: dict[str, object]) -> dict[str, str]:
    found = options(topics, topic, {"kafka.isolation.level": "read_committed", **given})
    if format == STOCK:
        # It would need another timeout below this one.
        del found["kafka.default.api.timeout.ms"]
    return found


def batch(
    spark: SparkSession, format: str, topics: Topics, topic: str, given: dict[str, object]
) -> DataFrame:
    return spark.read.format(format).options(**options_of(format, topics, topic, given)).load()


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"includeHeaders": "true"},
        {"kafka.isolation.level": "read_uncommitted"},
        {"startingOffsets": '{"t":{"0":2,"1":-2}}'},
        {"endingOffsets": '{"t":{"0":20,"1":-1}}'},
        {"startingTimestamp": "3000"},
        {"startingTimestamp": "3000", "startingOffsets": "earliest"},
        {"endingTimestamp": "3000"},
        {"startingOffsetsByTimestamp": '{"t":{"0":4000,"1":6000}}'},
        {"endingOffsetsByTimestamp": '{"t":{"0":4000,"1":99000}}'},
        {"startingTimestamp": "50000", "startingOffsetsByTimestampStrategy": "latest"},
        {"minPartitions": 1},
        {"minPartitions": 7},
        {"minPartitions": 30},
        {"maxRecordsPerPartition": 25, "minPartitions": 9},
        {"assign": '{"t":[1]}'},
        {"subscribePattern": "t.*"},
    ],
    ids=str,
)
def test_batches_have_the_same_columns_rows_and_tasks(
    spark: SparkSession, topics: Topics, topic: str, given: dict[str, object]
) -> None:
    ours, stock = (batch(spark, format, topics, topic, given) for format in (OURS, STOCK))
    assert ours.schema == stock.schema
    assert seen(ours) == seen(stock)
    assert seen(ours)
    assert ours.rdd.getNumPartitions() == stock.rdd.getNumPartitions()


@pytest.mark.parametrize(
    "given",
    [
        {"startingOffsets": "latest"},
        {"startingOffsets": "now"},
        {"startingOffsets": '{"t":{"0":2}}'},
        {"endingOffsets": "earliest"},
        {"startingOffsets": '{"t":{"0":3,"1":2}}', "endingOffsets": '{"t":{"0":2,"1":2}}'},
        {"startingTimestamp": "9999999999999"},
        {"assign": "t"},
        {"subscribe": ""},
        {"subscribe": "nowhere"},
        {"minPartitions": "0"},
        {"failOnDataLoss": "maybe"},
        {"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"},
        {"kafka.auto.offset.reset": "latest"},
        {"kafka.value.deserializer": "x"},
    ],
    ids=str,
)
def test_both_refuse_the_same_options(
    spark: SparkSession, topics: Topics, topic: str, given: dict[str, object]
) -> None:
    for format in (OURS, STOCK):
        with pytest.raises(Exception) as caught:  # noqa: PT011 the stock connector has several
            batch(spark, format, topics, topic, given).collect()
        if format == OURS:
            assert isinstance(caught.value, PySparkException)


def run(
    spark: SparkSession, format: str, topics: Topics, topic: str, checkpoint: Path
) -> list[list[str]]:
    """Read what is there now; return the values of each batch."""
    found: dict[int, list[str]] = {}

    def keep(rows: DataFrame, number: int) -> None:
        found[number] = values(rows)

    given = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 30}
    query = (
        spark.readStream.format(format)
        .options(**options_of(format, topics, topic, given))
        .load()
        .writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(100)
    return [found[number] for number in sorted(found)]


def test_checkpoints_have_the_same_offsets_and_either_goes_on_with_the_other(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topics.create("s", 2)
    topics.write("s", [b"%03d" % number for number in range(100)])
    topics.write("s", [b"b%d" % number for number in range(5)], partition=1)
    batches, logs = {}, {}
    for format in (OURS, STOCK):
        batches[format] = run(spark, format, topics, "s", tmp_path / format)
        files = sorted((tmp_path / format / "offsets").glob("[0-9]*"))
        logs[format] = [json.loads(file.read_text().splitlines()[2]) for file in files]
    assert batches[OURS] == batches[STOCK]
    assert logs[OURS] == logs[STOCK]
    assert len(logs[OURS]) == 4
    topics.write("s", [b"more"])
    assert run(spark, OURS, topics, "s", tmp_path / STOCK) == [["more"]]
    assert run(spark, STOCK, topics, "s", tmp_path / OURS) == [["more"]]


@pytest.mark.parametrize("format", [OURS, STOCK])
def test_both_copy_a_topic_over_tls_and_scram_by_the_same_options(
    spark: SparkSession, tmp_path: Path, format: str
) -> None:
    with secured_broker() as (topics, given):
        topics.create("input")
        topics.create("output")
        topics.write("input", [b"1", b"2"])
        reader = spark.readStream.format(format).options(**given, subscribe="input")
        rows = reader.option("startingOffsets", "earliest").load().select("value")
        writer = rows.writeStream.format(format).options(**given, topic="output").queryName("copy")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        assert writer.trigger(availableNow=True).start().awaitTermination(100)
        assert [each.value for each in topics.read("output")] == [b"1", b"2"]
