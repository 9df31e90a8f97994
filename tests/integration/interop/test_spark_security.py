"""Spark's own connector over SASL_SSL, with SCRAM and with a delegation token.

tests/run-spark stock tests/integration/interop/test_spark_security.py
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.integration.interop.spark_job import CONNECTOR
from tests.support.secured import Secured, secured_broker

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars.packages", CONNECTOR)
        .config("spark.ui.enabled", "false")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .getOrCreate()
    )
    yield session
    session.stop()


def options_of(secured: Secured, login: str) -> dict[str, str]:
    return secured.by_token() if login == "token" else secured.options


@pytest.mark.parametrize("login", ["password", "token"])
def test_stock_connector_copies_a_topic(spark: SparkSession, tmp_path: Path, login: str) -> None:
    with secured_broker() as secured:
        topics, options = secured.topics, options_of(secured, login)
        topics.create("input")
        topics.create("output")
        topics.write("input", [b"1", b"2", b"3"])
        rows = spark.readStream.format("kafka").option("subscribe", "input").options(**options)
        writer = (
            rows.option("startingOffsets", "earliest")
            .load()
            .select("value")
            .writeStream.format("kafka")
            .option("topic", "output")
            .options(**options)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
        )
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(240)
        assert [each.value for each in topics.read("output")] == [b"1", b"2", b"3"]


@pytest.mark.parametrize("login", ["password", "token"])
def test_stock_connector_is_refused_with_a_wrong_secret(spark: SparkSession, login: str) -> None:
    with secured_broker() as secured:
        secured.topics.create("input")
        options = options_of(secured, login)
        name = "kafka.sasl.jaas.config"
        options = options | {name: options[name].replace('password="', 'password="x')}
        rows = spark.read.format("kafka").option("subscribe", "input").options(**options).load()
        with pytest.raises(Exception, match="SaslAuthenticationException"):
            rows.count()
