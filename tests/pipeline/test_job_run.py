"""A job from its file to its verdict: check, run, kill -9, resume, verify."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from jsonschema import Draft202012Validator

from barnabas.cli.json_answers import schema_of
from barnabas.testing import Broker
from tests.support.command_line import environment
from tests.support.jobs import command, consume, create, finished, produce, produce_keyed
from tests.support.waiting import until

pytestmark = [pytest.mark.xdist_group("spark-jobs"), pytest.mark.timeout(600)]

JOB = """\
name: orders
source:
  topic: orders
  codec: json
  schema: {id: string not null, amount: int, at: timestamp}
  options: {startingOffsets: earliest, maxOffsetsPerTrigger: 30}
steps:
  - view: once
    dedupe: {columns: id}
  - view: priced
    sql: |
      SELECT o.*, o.amount * r.rate AS price
      FROM once o JOIN VALUES (0, 2), (1, 3) AS r(parity, rate) ON o.amount % 2 = r.parity
sink: {topic: priced, key: id}
bad_records: broken
lineage: true
trigger: TRIGGER
checkpoint: points
spark:
  spark.master: local[2]
  spark.sql.shuffle.partitions: 2
  spark.driver.extraJavaOptions: -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
"""


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker({"transaction.two.phase.commit.enable": "true"}) as broker:
        yield broker.bootstrap_servers


WHERE = """
import sys
from pathlib import Path
import pyspark
from barnabas.pipeline.jobs.reading import read_job
from barnabas.pipeline.spark.job import session_of

def at_start(_):
    import os, pyspark, sys
    has_modules = "barnabas.pipeline.spark.sink" in sys.modules
    return pyspark.__file__, has_modules, os.environ.get("PYTHON_UNIX_DOMAIN_ENABLED", "").lower()

with session_of(read_job(Path(sys.argv[1])).job, log_level="off") as spark:
    found = spark.sparkContext.parallelize([0], 1).map(at_start).collect()
assert found == [(pyspark.__file__, True, "true")], found
"""


@contextmanager
def running(servers: str, path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a job; yield its process and the address of its page."""
    process = command(servers, "run", str(path), "--json", "--http", "127.0.0.1:0")
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        found = re.search(r"http://\S+", line)
        assert found is not None, line
        yield process, found[0]
    finally:
        process.kill()
        process.communicate(timeout=60)


def orders(start: int, count: int) -> list[bytes]:
    """Return orders, of which every fifth comes twice, and every tenth is broken."""
    values = []
    for number in range(start, start + count):
        order = {"id": f"o{number}", "amount": number, "at": "2026-01-01T12:00:00Z"}
        values += [json.dumps(order).encode()] * (2 if number % 5 == 0 else 1)
        if number % 10 == 0:
            values.append(b"broken %d" % number)
    return values


def progress(page: str) -> dict[str, Any]:
    with urlopen(f"{page}/progress", timeout=10) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def check_figures(last: dict[str, Any]) -> None:
    """Check lag, state, bad records and decisions of a run that has read all of `orders`."""
    [source] = last["sources"]
    assert source == {"view": "source", "topics": [{"topic": "orders", "lag": 0}]}
    [dedupe] = last["operators"]
    assert (dedupe["name"], dedupe["rows"], dedupe["late_rows"]) == ("dedupe", 90, 0)
    assert dedupe["bytes"] > 0
    bad = {each["reason"]: each for each in last["bad"] if each["part"] == "value"}
    assert bad["misfit"]["records"] == 0
    assert bad["not_json"]["records"] == last["bad_rows"]
    assert bad["not_json"]["example"]["topic"] == "orders"
    counts = last["cluster"]["counts"]
    assert 0 < counts["committed"] <= last["batches"]
    assert counts["transactions"] >= counts["committed"]


def test_a_job_that_is_killed_goes_on_and_each_order_comes_once(
    servers: str, tmp_path: Path
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(JOB.replace("TRIGGER", "0 seconds"))
    create(servers, "orders", "priced", "broken")
    produce(servers, "orders", orders(0, 60))
    with running(servers, path) as (process, page):
        assert process.stdout is not None
        # A busy machine takes minutes to start: pytest's timeout is the deadline.
        lines = (json.loads(line) for line in process.stdout)
        assert next(each["batches"] for each in lines if each["batches"] >= 2) == 2
        assert progress(page)["batches"] >= 2
        process.send_signal(signal.SIGKILL)
        process.wait(60)
    produce(servers, "orders", orders(60, 30))
    path.write_text(JOB.replace("TRIGGER", "available-now"))
    code, out, errors = finished(servers, "run", str(path), "--json")
    assert (code, errors) == (0, "")
    lines = [json.loads(line) for line in out.splitlines()]
    for each in lines:
        Draft202012Validator(schema_of("pipeline run")).validate(each)
    last = lines[-1]
    assert (last["state"], last["last"]["lag"]) == ("stopped", 0)
    assert last["bad_rows"] > 0
    check_figures(last)

    priced = [json.loads(each.value or b"") for each in consume(servers, "priced")]
    assert sorted(each["id"] for each in priced) == sorted(f"o{number}" for number in range(90))
    assert {each["price"] // each["amount"] for each in priced if each["amount"]} == {2, 3}
    broken = consume(servers, "broken")
    assert sorted(each.value or b"" for each in broken) == sorted(
        b"broken %d" % number for number in range(0, 90, 10)
    )
    headers = dict(broken[0].headers)
    assert headers["h"] == b"1"
    assert headers["barnabas.reason"] == b"value is not JSON"
    assert headers["barnabas.topic"] == b"orders"

    code, out, errors = finished(servers, "verify", str(path), "--missing", "0", "--json")
    verdict = json.loads(out)
    assert (code, errors, verdict["problems"]) == (0, "", [])
    assert (verdict["rows"], verdict["dropped"]) == (99, 18)
    code, out, _ = finished(servers, "status", str(path), "--json")
    status = json.loads(out)
    assert (code, status["lag"], status["cluster"]["open"]) == (0, 0, [])
    assert status["cluster"]["decision"]["batch"] <= status["batch"]
    Draft202012Validator(schema_of("pipeline status")).validate(status)
    assert status["progress"] == last
    assert "not_json, such as orders/" in finished(servers, "status", str(path))[1]


COUNTS = """\
name: counts
source:
  topic: counted
  codec: json
  schema: {amount: int}
  options: {startingOffsets: earliest}
steps:
  - view: counts
    sql: SELECT amount, count(*) AS n FROM source GROUP BY amount
sink: {topic: counts, mode: update}
trigger: available-now
checkpoint: points
spark:
  spark.master: local[2]
  spark.sql.shuffle.partitions: 2
"""


def test_a_job_in_update_mode_writes_through_the_sink(servers: str, tmp_path: Path) -> None:
    create(servers, "counted", "counts")
    (tmp_path / "job.yaml").write_text(COUNTS)
    produce(servers, "counted", [b'{"amount": %d}' % each for each in (1, 2, 1)])
    code, _, errors = finished(servers, "run", str(tmp_path / "job.yaml"), "--json")
    assert code == 0, errors
    found = [json.loads(each.value or b"") for each in consume(servers, "counts")]
    assert sorted(found, key=str) == [{"amount": 1, "n": 2}, {"amount": 2, "n": 1}]


ENRICHED = """\
name: enriched
source:
  topic: sales
  codec: json
  schema: {product: string}
  options: {startingOffsets: earliest}
tables:
  - {view: products, topic: products, codec: json, schema: {price: int}, refresh: 3 seconds}
steps:
  - view: enriched
    sql: SELECT s.product, p.price FROM source s LEFT JOIN products p ON s.product = p._key
sink: {topic: enriched}
checkpoint: points
spark:
  spark.master: local[2]
  spark.sql.shuffle.partitions: 2
"""


def test_a_table_of_a_topic_follows_the_topic_while_the_job_runs(
    servers: str, tmp_path: Path
) -> None:
    create(servers, "sales", "products", "enriched")
    (tmp_path / "job.yaml").write_text(ENRICHED)
    prices = {"k0": b"1", "k1": b"1"}

    def set_prices(**changes: bytes | None) -> None:
        produce_keyed(
            servers,
            "products",
            {key: each and b'{"price": %b}' % each for key, each in changes.items()},
        )

    def found() -> list[str]:
        return sorted((each.value or b"").decode() for each in consume(servers, "enriched"))

    def sell() -> list[str]:
        """Sell both products, and return the whole output when both are there."""
        count = len(found()) + 2
        produce(servers, "sales", [b'{"product": "k0"}', b'{"product": "k1"}'])
        # A busy machine takes minutes to start: pytest's timeout is the deadline.
        return until(lambda: (rows := found())[count - 1 :] and rows, within_s=300)

    set_prices(**prices)
    with running(servers, tmp_path / "job.yaml") as (process, _):
        assert sell() == ['{"product":"k0","price":1}', '{"product":"k1","price":1}']
        set_prices(k0=b"2", k1=None)
        until(
            lambda: {'{"product":"k0","price":2}', '{"product":"k1"}'} <= set(sell()), within_s=120
        )
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 0


def test_workers_start_with_our_modules_compiled_pyspark_and_unix_sockets(
    tmp_path: Path,
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(JOB.replace("TRIGGER", "available-now"))
    done = subprocess.run(
        [sys.executable, "-c", WHERE, str(path)],
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
