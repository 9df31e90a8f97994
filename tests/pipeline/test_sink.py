"""The sink on a broker, through Spark: what it writes, and what bad input gets."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as f

from barnabas.testing import Broker
from tests.support.spark import spark_session
from tests.support.topic_names import topic_name
from tests.support.topics import Seen, Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.xdist_group("spark-source"), pytest.mark.timeout(300)]

CONFIGS = {"transaction.two.phase.commit.enable": "true"}


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker(CONFIGS) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    from barnabas.pipeline import register

    with spark_session(tmp_path_factory.mktemp("spark")) as spark:
        register(spark)
        yield spark


@pytest.fixture
def topics(servers: str) -> Topics:
    return Topics(servers)


@pytest.fixture
def topic(topics: Topics, request: pytest.FixtureRequest) -> str:
    name = topic_name(request)
    topics.create(name, 2)
    return name


def write(frame: "DataFrame", servers: str, **options: str) -> None:
    """Write a frame at once."""
    given = {"kafka.bootstrap.servers": servers, "sinkId": "sink", **options}
    frame.write.format("barnabas").mode("append").options(**given).save()


def error_of(frame: "DataFrame", servers: str, **options: str) -> str:
    """Return the line of the error that a write gets."""
    with pytest.raises(Exception, match="Error") as caught:
        write(frame, servers, **options)
    lines = [line for line in str(caught.value).splitlines() if "pipeline.sink" in line]
    return [line for line in lines if "Error: " in line][-1].partition("Error: ")[2]


def run(
    frame: "DataFrame", servers: str, folder: Path, mode: str = "append", **options: str
) -> None:
    """Write a stream until no input is left."""
    given = {"kafka.bootstrap.servers": servers, "checkpointLocation": str(folder / "c"), **options}
    query = (
        frame.writeStream.format("barnabas")
        .queryName(folder.name)
        .outputMode(mode)
        .options(**given)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def lines_of(spark: "SparkSession", folder: Path, *lines: str) -> "DataFrame":
    """Return a stream of lines; each call adds a file."""
    files = folder / "input"
    files.mkdir(exist_ok=True)
    (files / f"{len(list(files.iterdir()))}").write_text("".join(f"{line}\n" for line in lines))
    return spark.readStream.format("text").load(str(files))


def seen(topics: Topics, topic: str) -> list[Seen]:
    return topics.read(topic, partitions=2)


def values(topics: Topics, topic: str) -> list[bytes | None]:
    return sorted((each.value for each in seen(topics, topic)), key=lambda value: value or b"")


# -- streams -------------------------------------------------------------------------------------


@pytest.mark.parametrize("delivery", ["exactly-once", "exactly-once-bounded", "at-least-once"])
def test_stream_writes_each_row_once_and_continues_at_its_checkpoint(
    spark: "SparkSession", servers: str, topics: Topics, topic: str, tmp_path: Path, delivery: str
) -> None:
    options = {"topic": topic, "delivery": delivery, "compression": "zstd"}
    run(lines_of(spark, tmp_path, "1", "2", "3"), servers, tmp_path, **options)
    run(lines_of(spark, tmp_path, "4"), servers, tmp_path, **options)
    assert values(topics, topic) == [b"1", b"2", b"3", b"4"]


def counts(lines: "DataFrame") -> "DataFrame":
    counted = f.concat_ws("=", "value", "count")
    return lines.groupBy("value").count().select(counted.alias("value"))


def test_complete_mode_writes_all_rows_of_each_batch(
    spark: "SparkSession", servers: str, topics: Topics, topic: str, tmp_path: Path
) -> None:
    options = {"topic": topic, "sinkId": "complete"}
    run(counts(lines_of(spark, tmp_path, "a", "b")), servers, tmp_path, "complete", **options)
    run(counts(lines_of(spark, tmp_path, "a")), servers, tmp_path, "complete", **options)
    assert values(topics, topic) == [b"a=1", b"a=2", b"b=1", b"b=1"]


def test_update_mode_writes_changed_rows_by_foreach_batch(
    spark: "SparkSession", servers: str, topics: Topics, topic: str, tmp_path: Path
) -> None:
    """Spark refuses update mode for every data source in Python."""

    def run_each(*lines: str, folder: str, **options: str) -> None:
        def put(rows: "DataFrame", number: int) -> None:
            given = {name: value.format(number) for name, value in options.items()}
            write(rows, servers, topic=topic, sinkId="update", **given)

        query = counts(lines_of(spark, tmp_path, *lines)).writeStream.foreachBatch(put)
        query = query.outputMode("update").option("checkpointLocation", str(tmp_path / folder))
        query.trigger(availableNow=True).start().awaitTermination()

    run_each("a", "b", folder="c", batchId="{}")
    run_each("a", folder="c", batchId="{}")
    expected = [b"a=1", b"a=2", b"b=1"]
    assert values(topics, topic) == expected
    with pytest.raises(Exception, match="sink update belongs to query"):
        run_each("a", folder="another", batchId="{}")
    with pytest.raises(Exception, match="give the option batchId"):
        run_each("a", folder="c")
    assert values(topics, topic) == expected


@pytest.mark.parametrize(
    ("column", "wrong", "reason"),
    [
        ("topic", "NULL", "the topic is null"),
        ("partition", "2", "partition 2 is not there"),
        ("value", "repeat('x', 2000000)", "MESSAGE_TOO_LARGE"),
    ],
)
def test_row_that_cannot_be_written_fails_its_batch_and_nothing_is_visible(
    spark: "SparkSession",
    servers: str,
    topics: Topics,
    topic: str,
    tmp_path: Path,
    column: str,
    wrong: str,
    reason: str,
) -> None:
    lines = lines_of(spark, tmp_path, *map(str, range(10)))
    rows = lines.selectExpr("value", f"'{topic}' AS topic", "0 AS partition")
    rows = rows.withColumn(column, f.expr(f"if(value = '7', {wrong}, {column})"))
    with pytest.raises(Exception, match=f"of batch 0: row 7 was not written.*{reason}"):
        run(rows, servers, tmp_path)
    assert values(topics, topic) == []


# -- writes without a stream ---------------------------------------------------------------------


def test_columns_of_a_write_are_those_of_the_records(
    spark: "SparkSession", servers: str, topics: Topics, topic: str
) -> None:
    # Retention would delete a record of long ago.
    at_ms = time.time_ns() // 1_000_000
    rows = spark.sql(
        f"""SELECT '{topic}' AS topic, 'k' AS key, X'00FF' AS value, 1 AS partition,
        array(named_struct('key', 'h', 'value', X'01')) AS headers,
        timestamp_millis({at_ms}) AS timestamp, 'x' AS other"""
    )
    write(rows, servers)
    (found,) = seen(topics, topic)
    assert (found.key, found.value, found.partition) == (b"k", b"\x00\xff", 1)
    assert (found.headers, found.timestamp) == ([("h", b"\x01")], at_ms)


def test_write_with_a_batch_id_is_carried_out_once(
    spark: "SparkSession", servers: str, topics: Topics, topic: str
) -> None:
    options = {"topic": topic, "sinkId": "numbered"}
    for number in ("5", "5", "6"):
        write(spark.range(3).selectExpr("string(id) AS value"), servers, batchId=number, **options)
    assert values(topics, topic) == sorted([b"0", b"1", b"2"] * 2)
    told = error_of(spark.range(1).selectExpr("'x' AS value"), servers, batchId="4", **options)
    assert "batch 6 is the last that sink numbered has decided" in told


def test_writes_without_a_batch_id_are_all_carried_out(
    spark: "SparkSession", servers: str, topics: Topics, topic: str
) -> None:
    for _ in range(2):
        write(spark.range(1).selectExpr("'x' AS value"), servers, topic=topic)
    assert values(topics, topic) == [b"x", b"x"]


# -- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"topik": "a"}, "option topik is unknown: did you mean topic?"),
        ({"topic": "missing"}, "topic missing cannot be written: "),
        ({"topic": "a", "kafka.security.protocol": "TLS"}, "String must be one of: PLAINTEXT"),
        ({}, "no topic is given: set the option topic, or add a column topic"),
        ({"topic": "a", "sinkId": "a.b"}, "use letters, digits, _ and - only"),
        ({"topic": "a", "transactionTimeout": "1 d"}, "is more than the brokers allow"),
    ],
)
def test_wrong_options_are_refused_in_one_line(
    spark: "SparkSession", servers: str, topic: str, options: dict[str, str], text: str
) -> None:
    if options.get("topic") == "a":
        options = {**options, "topic": topic}
    assert text in error_of(spark.range(1).selectExpr("'x' AS value"), servers, **options)


def test_wrong_column_is_refused_in_one_line(spark: "SparkSession", servers: str) -> None:
    told = error_of(spark.range(1).selectExpr("id AS value"), servers, topic="any")
    assert told == "column value has the type bigint: cast it to string or binary"


def test_overwrite_is_refused(spark: "SparkSession", servers: str) -> None:
    writer = spark.range(1).selectExpr("'x' AS value").write.format("barnabas").mode("overwrite")
    with pytest.raises(Exception, match="a topic only grows: use mode append"):
        writer.options(**{"kafka.bootstrap.servers": servers, "sinkId": "s", "topic": "a"}).save()


def test_brokers_without_two_phase_commit_are_refused(spark: "SparkSession") -> None:
    with Broker() as broker:
        Topics(broker.bootstrap_servers).create("a")
        rows = spark.range(1).selectExpr("'x' AS value")
        told = error_of(rows, broker.bootstrap_servers, topic="a")
    assert "transaction.two.phase.commit.enable=true" in told
    assert "exactly-once-bounded" in told
