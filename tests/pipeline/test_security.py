"""Source and sink over SASL_SSL, and secrets, which appear in no text of Spark."""

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from barnabas.pipeline import register
from tests.support.secured import PASSWORD, Secured, secured_broker
from tests.support.spark import spark_session

pytestmark = [pytest.mark.xdist_group("spark-source"), pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def secured() -> Iterator[Secured]:
    with secured_broker() as broker:
        yield broker


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with spark_session(tmp_path_factory.mktemp("spark")) as session:
        register(session)
        yield session


class Job:
    """A query from one topic to another over SASL_SSL."""

    def __init__(self, spark: SparkSession, options: dict[str, str], directory: Path) -> None:
        self._options = options
        self._directory = directory
        self.rows: DataFrame = (
            spark.readStream.format("barnabas")
            .option("subscribe", "input")
            .option("startingOffsets", "earliest")
            .options(**options)
            .load()
        )

    def run(self) -> str:
        """Copy what is there, and return all that Spark tells of it."""
        writer = self.rows.select("value").writeStream.format("barnabas").queryName("copy")
        writer = writer.option("topic", "output").options(**self._options)
        writer = writer.option("checkpointLocation", str(self._directory / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        told = io.StringIO()
        try:
            query.awaitTermination(120)
        finally:
            with contextlib.redirect_stdout(told):
                self.rows.explain(extended=True)
                query.explain(extended=True)
            progress = [each.json for each in query.recentProgress]
            told.write(f"{query.status} {progress} {query.exception()}")
        return told.getvalue()

    def files(self) -> str:
        found = (self._directory / "checkpoint").rglob("*")
        return "".join(each.read_text("latin-1") for each in found if each.is_file())


def reveals(text: str, security: dict[str, str]) -> list[str]:
    """Return the options whose values stand in a text; of a key, a line is enough."""
    secret = {
        "password": PASSWORD,
        "key": security["kafka.ssl.keystore.key"].splitlines()[1],
    }
    return [name for name, value in secret.items() if value in text]


def test_stream_copies_a_topic_over_tls_and_scram_and_tells_no_secret(
    spark: SparkSession, secured: Secured, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    topics, options = secured
    topics.create("input")
    topics.create("output")
    topics.write("input", [b"1", b"2", b"3"])
    job = Job(spark, options, tmp_path)
    told = job.run()
    assert [each.value for each in topics.read("output")] == [b"1", b"2", b"3"]
    assert "input" in told
    assert reveals(told, options) == []
    assert reveals(job.files(), options) == []
    assert reveals("".join(capfd.readouterr()), options) == []


def test_stream_copies_a_topic_with_a_delegation_token(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with secured_broker() as secured:
        topics = secured.topics
        topics.create("input")
        topics.create("output")
        topics.write("input", [b"1", b"2", b"3"])
        options = secured.by_token()
        job = Job(spark, options, tmp_path)
        told = job.run()
        assert [each.value for each in topics.read("output")] == [b"1", b"2", b"3"]
    hmac = options["kafka.sasl.jaas.config"].split('"')[3]
    assert hmac not in "".join([told, job.files(), *capfd.readouterr()])


def test_wrong_password_fails_the_query_and_is_not_told(
    spark: SparkSession, secured: Secured, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    name = "kafka.sasl.jaas.config"
    wrong = secured.options[name].replace(PASSWORD, f"{PASSWORD}-of-yesterday")
    job = Job(spark, secured.options | {name: wrong}, tmp_path)
    with pytest.raises(Exception, match=r"SASL_AUTHENTICATION_FAILED|credentials") as caught:
        job.run()
    texts = "".join([str(caught.value), *capfd.readouterr()])
    assert reveals(texts, secured.options) == []
