"""The job files of docs/examples with several inputs and outputs, run to the end of their input."""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from barnabas.pipeline.jobs.reading import read_job
from barnabas.pipeline.monitor.progress import STOPPED, Monitor
from barnabas.testing import Broker
from tests.support.jobs import consume, create, produce, produce_keyed
from tests.support.spark import end_jvm

pytestmark = [pytest.mark.xdist_group("spark-jobs"), pytest.mark.timeout(900)]

NOW = ("5 seconds", "available-now")
EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    # The JVM of a job has options of its own.
    end_jvm()
    with Broker({"transaction.two.phase.commit.enable": "true"}) as broker:
        create(
            broker.bootstrap_servers,
            *("shop-orders", "shop-clicks", "shop-regions", "shop-broken"),
            *("orders-with-clicks", "hourly-sums", "hourly-sums-large"),
            *("orders-enriched", "orders-replayed"),
        )
        create(broker.bootstrap_servers, "old-orders", retention_ms="-1")
        try:
            yield broker.bootstrap_servers
        finally:
            end_jvm()


def run(servers: str, name: str, folder: Path, *changes: tuple[str, str]) -> None:
    """Run an example until all input is read; the jobs of a test share a JVM."""
    from barnabas.pipeline.spark.job import run_job

    text = (EXAMPLES / name).read_text()
    for old, new in (*changes, ("localhost:9092", servers)):
        assert old in text
        text = text.replace(old, new)
    (folder / name).write_text(text)
    file = read_job(folder / name)
    monitor = Monitor(file.job.name, file.job.sink_id, time.time())
    run_job(file, monitor, lambda _: None, threading.Event())
    assert monitor.state == STOPPED


def values(servers: str, topic: str) -> list[dict[str, object]]:
    found = [json.loads(each.value or b"") for each in consume(servers, topic)]
    return sorted(found, key=str)


def order(name: str, hour: int, amount: int, region: int = 1) -> bytes:
    fields = {"id": name, "customer": name[0], "region": region, "amount": amount}
    return json.dumps({**fields, "at": f"2026-01-01T{hour}:30:00Z"}).encode()


def click(customer: str, page: str, at: str) -> bytes:
    fields = {"customer": customer, "page": page, "at": f"2026-01-01T{at}:00Z"}
    return json.dumps(fields).encode()


def test_examples_join_clicks_and_orders_and_sum_hours_into_two_topics(
    servers: str, tmp_path: Path
) -> None:
    produce(
        servers, "shop-orders", [order("a1", 10, 700), order("b1", 10, 5), order("a2", 10, 300)]
    )
    produce(servers, "shop-clicks", [click("b", "home", "08:00"), b"broken"])
    run(servers, "clicks-and-orders.yaml", tmp_path, NOW)
    assert values(servers, "orders-with-clicks") == []

    # Its order is in the state of the run before.
    produce(servers, "shop-clicks", [click("a", "shoes", "10:10"), click("z", "end", "14:00")])
    produce(servers, "shop-orders", [order("z1", 14, 1, region=2)])
    run(servers, "clicks-and-orders.yaml", tmp_path, NOW)
    assert values(servers, "orders-with-clicks") == [
        {"id": "a1", "amount": 700.0, "page": "shoes"},
        {"id": "a2", "amount": 300.0, "page": "shoes"},
        {"id": "b1", "amount": 5.0},
        {"id": "z1", "amount": 1.0, "page": "end"},
    ]
    broken = consume(servers, "shop-broken")
    assert [each.value for each in broken] == [b"broken"]

    produce_keyed(servers, "shop-regions", {"1": b'{"name": "old"}', "2": b'{"name": "south"}'})
    produce_keyed(servers, "shop-regions", {"1": b'{"name": "north"}'})
    run(servers, "hourly-sums.yaml", tmp_path, NOW)
    hour = "2026-01-01T10:00:00.000Z"
    north = {"hour": hour, "region": "north", "orders": 3, "total": 1005.0}
    assert values(servers, "hourly-sums") == [north]
    assert values(servers, "hourly-sums-large") == [north]


def test_example_drops_repetitions_and_adds_columns_of_a_table(
    servers: str, tmp_path: Path
) -> None:
    twice = order("a-7", 10, 5)
    produce(servers, "shop-orders", [twice, twice, order("e-1", 10, 6)])
    (tmp_path / "customers.csv").write_text((EXAMPLES / "customers.csv").read_text())
    run(servers, "orders-enriched.yaml", tmp_path, NOW)
    at = "2026-01-01T10:30:00.000Z"
    found = [each for each in values(servers, "orders-enriched") if "-" in str(each["id"])]
    assert found == [
        {"id": "a-7", "amount": 5.0, "at": at, "name": "Ada", "tier": "gold"},
        {"id": "e-1", "amount": 6.0, "at": at, "tier": "none"},
    ]
    # A repetition that comes in a later batch.
    produce(servers, "shop-orders", [twice])
    run(servers, "orders-enriched.yaml", tmp_path, NOW)
    again = [each for each in values(servers, "orders-enriched") if "-" in str(each["id"])]
    assert again == found


def test_example_writes_the_records_of_a_day_again(servers: str, tmp_path: Path) -> None:
    midnight = 1767225600000
    for name, timestamp in (
        ("before", midnight - 1),
        ("first", midnight),
        ("last", midnight + 86_400_000 - 1),
        ("after", midnight + 86_400_000),
    ):
        produce(servers, "old-orders", [order(name, 10, 5)], timestamp)
    run(servers, "replay-a-day.yaml", tmp_path, ("topic: shop-orders", "topic: old-orders"))
    assert [each["id"] for each in values(servers, "orders-replayed")] == ["first", "last"]
    rows = [
        row
        for part in tmp_path.glob("archive/orders/query=*/batch=*/*.parquet")
        for row in pq.read_table(part, partitioning=None).to_pylist()
    ]
    assert sorted((row["id"], row["cents"]) for row in rows) == [("first", 500), ("last", 500)]
