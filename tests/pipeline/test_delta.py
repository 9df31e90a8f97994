"""Tables of Delta in a job. `tests/run-spark delta` runs this with the package and its PySpark."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.testing import Broker
from tests.support.jobs import consume, create, finished, produce
from tests.support.spark import spark_session

PACKAGE = os.environ.get("DELTA_PACKAGE")

pytestmark = [
    pytest.mark.xdist_group("spark-jobs"),
    pytest.mark.timeout(600),
    pytest.mark.skipif(PACKAGE is None, reason="run by tests/run-spark delta"),
]

SETTINGS = {
    "spark.jars.packages": f"{PACKAGE}",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}

JOB = """\
name: NAME
source: {topic: sales, codec: json, schema: {product: string}, options: {startingOffsets: earliest}}
tables:
  - {view: products, format: delta, path: products, options: {OPTIONS}}
steps:
  - view: priced
    sql: SELECT s.product, p.price FROM source s LEFT JOIN products p ON s.product = p.product
sink: {topic: NAME}
trigger: available-now
checkpoint: NAME
spark:
  spark.master: local[2]
  spark.sql.shuffle.partitions: 2
"""


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker({"transaction.two.phase.commit.enable": "true"}) as broker:
        yield broker.bootstrap_servers


def test_a_job_joins_a_table_of_delta_as_it_is_and_as_it_was(servers: str, tmp_path: Path) -> None:
    create(servers, "sales", "latest", "first")
    with spark_session(tmp_path / "spark", **SETTINGS) as spark:
        path = str(tmp_path / "products")
        first = spark.createDataFrame([("a", 1)], "product string, price int")
        first.write.format("delta").save(path)
        second = spark.createDataFrame([("a", 2), ("b", 3)], "product string, price int")
        second.write.format("delta").mode("overwrite").save(path)
    produce(servers, "sales", [b'{"product": "a"}', b'{"product": "b"}'])
    for name, options in (("latest", ""), ("first", "versionAsOf: 0")):
        text = JOB.replace("NAME", name).replace("OPTIONS", options)
        text += "".join(f"  {key}: {value}\n" for key, value in SETTINGS.items())
        (tmp_path / f"{name}.yaml").write_text(text)
        code, _, errors = finished(servers, "run", str(tmp_path / f"{name}.yaml"))
        assert code == 0, errors
    latest, first = (
        [json.loads(each.value or b"").get("price", 0) for each in consume(servers, name)]
        for name in ("latest", "first")
    )
    assert (sorted(latest), sorted(first)) == ([2, 3], [0, 1])
