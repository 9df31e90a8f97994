"""`barnabas transactions` with Apache Kafka: Kafka's APIs and log suffice for it."""

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.referee.brokers import SHARED, Address
from tests.support.command_line import DEADLINE, Cli
from tests.support.kafka.node import Kafka
from tests.support.newer_producer import NewerProducer
from tests.support.transactions_by_hand import (
    committed_values,
    hanging,
    lose_marker,
    older_producer,
    refused,
    wait_until_over,
)

VERIFICATION = "transaction.partition.verification.enable"


@pytest.fixture
def tools_at(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> Callable[[str], Cli]:
    return lambda servers: Cli(servers, (monkeypatch, capfdbinary), tmp_path)


@pytest.fixture
def cli(kafka: Address, tools_at: Callable[[str], Cli]) -> Cli:
    return tools_at(f"{kafka.host}:{kafka.port}")


@pytest.fixture
def topic(cli: Cli) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    cli("topics", "create", name, "-p", "2", "-r", "1")
    return name


@pytest.fixture
def unverified(cli: Cli) -> Iterator[None]:
    """Switch verification off: records outside a transaction are accepted, as by Kafka before
    3.6."""
    cli("configs", "alter", "broker", "1", "-s", f"{VERIFICATION}=false")
    yield
    cli("configs", "alter", "broker", "1", "-d", VERIFICATION)


@pytest.mark.xdist_group("referee")
def test_an_open_transaction_is_listed_described_and_explained(cli: Cli, topic: str) -> None:
    transactional_id = f"x-{uuid.uuid4().hex[:8]}"
    producer = older_producer(cli.servers, transactional_id)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=1)
    producer.flush(DEADLINE)
    (listed,) = cli.json("transactions", "list", "-s", "Ongoing", "--pattern", transactional_id)
    assert (listed["transactional_id"], listed["coordinator"]) == (transactional_id, 1)
    described = cli.json("transactions", "describe", transactional_id)
    assert (described["state"], described["partitions"]) == ("Ongoing", [f"{topic}:1"])
    assert cli.json("transactions", "find-hanging", topic, "--max-transaction-timeout", "0") == []
    (found,) = cli.json("transactions", "why", topic)
    timeline = [each["event"] for each in found.pop("timeline")]
    timeline.remove(f"record 0 of {topic}-1 (timestamp of the record)")
    assert timeline == ["InitProducerId, epoch 0", f"adds {topic}-1"]
    assert found.pop("age_ms") >= 0
    assert found == {
        "topic": topic,
        "partition": 1,
        "last_stable_offset": 0,
        "high_watermark": 1,
        "because": "the transaction is open: its producer has not ended it yet",
        "advice": f"barnabas transactions fence {transactional_id}",
        "producer_id": listed["producer_id"],
        "producer_epoch": described["epoch"],
        "transactional_id": transactional_id,
        "coordinator": 1,
        "state": "Ongoing",
        # Fields that Kafka does not return.
        "time_left_ms": None,
        "client": None,
        "keeper": None,
    }
    assert "has it open" in refused(cli, "abort", f"{topic}:1", "--start-offset", "0")
    cli("transactions", "fence", transactional_id)
    assert cli.json("transactions", "why", topic) == []


@pytest.mark.xdist_group("referee")
@pytest.mark.usefixtures("unverified")
def test_hanging_transaction_is_found_explained_and_aborted(cli: Cli, topic: str) -> None:
    start = hanging(cli.servers, topic, committed_before=True)
    find = ("transactions", "find-hanging", topic, "--max-transaction-timeout", "0")
    (row,) = cli.json(*find)
    assert (row["partition"], row["start_offset"]) == (0, start)
    (found,) = cli.json("transactions", "why", topic)
    abort = ("abort", f"{topic}:0", "--start-offset", str(start))
    assert found["advice"] == " ".join(["barnabas", "transactions", *abort, "--force"])
    assert "one of this epoch committed here" in refused(cli, *abort)
    cli("transactions", *abort, "--force")
    assert cli.json(*find) == []
    assert committed_values(cli.servers, topic) == [b"good"]


def test_marker_that_kafka_lost_is_written_again(
    tools_at: Callable[[str], Cli], tmp_path: Path
) -> None:
    with Kafka(tmp_path / "kafka", properties=SHARED) as broker:
        cli = tools_at(broker.bootstrap_servers)
        cli("topics", "create", "t", "-p", "2", "-r", "1")
        producer = NewerProducer(broker.bootstrap_servers, "x").init()
        producer.send("t", 0, b"a")
        producer.send("t", 1, b"b")
        producer.end(committed=True)
        wait_until_over(cli)
        broker.stop()
        lose_marker(broker.data)
        broker.start()
        cli = tools_at(broker.bootstrap_servers)
        (found,) = cli.json("transactions", "why", "t")
        assert found["advice"] == "barnabas transactions repair t:0"
        said = refused(cli, "abort", "t:0", "--start-offset", "0")
        assert "it committed: the transaction log says commit" in said
        (row,) = cli.json("transactions", "repair")
        assert (row["decision"], row["written"]) == ("committed", True)
        assert cli.json("transactions", "repair") == []
        assert committed_values(broker.bootstrap_servers, "t") == [b"a"]
