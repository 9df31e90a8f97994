"""`barnabas transactions` against Apache Kafka: what its APIs and its log tell is enough."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

from tests.integration.command_line import DEADLINE, Cli
from tests.integration.test_cli_transactions import committed_values, hanging, refused
from tests.referee.brokers import Address

pytestmark = pytest.mark.xdist_group("referee")
VERIFICATION = "transaction.partition.verification.enable"


@pytest.fixture
def cli(
    kafka: Address,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
    tmp_path: Path,
) -> Cli:
    return Cli(f"{kafka.host}:{kafka.port}", (monkeypatch, capfdbinary), tmp_path)


@pytest.fixture
def topic(cli: Cli) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    cli("topics", "create", name, "-p", "2", "-r", "1")
    return name


@pytest.fixture
def unverified(cli: Cli) -> Iterator[None]:
    """Records outside a transaction get in, as into any Kafka before 3.6."""
    cli("configs", "alter", "broker", "1", "-s", f"{VERIFICATION}=false")
    yield
    cli("configs", "alter", "broker", "1", "-d", VERIFICATION)


def test_an_open_transaction_is_listed_described_and_explained(cli: Cli, topic: str) -> None:
    transactional_id = f"x-{uuid.uuid4().hex[:8]}"
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cli.servers, "transactional.id": transactional_id}
    )
    producer.init_transactions(DEADLINE)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=1)
    producer.flush(DEADLINE)
    (listed,) = cli.json("transactions", "list", "-s", "Ongoing", "--pattern", transactional_id)
    assert (listed["transactional_id"], listed["coordinator"]) == (transactional_id, 1)
    (described,) = cli.json("transactions", "describe", transactional_id)
    assert (described["state"], described["partitions"]) == ("Ongoing", [f"{topic}:1"])
    assert cli.json("transactions", "find-hanging", topic, "--max-transaction-timeout", "0") == []
    (found,) = cli.json("transactions", "why", topic)
    timeline = [each["event"] for each in found.pop("timeline")]
    timeline.remove(f"record 0 of {topic}-1, by its own clock")
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
        # What Kafka does not tell.
        "time_left_ms": None,
        "client": None,
    }
    assert "has it open" in refused(cli, "abort", f"{topic}:1", "--start-offset", "0")
    cli("transactions", "fence", transactional_id)
    assert cli.json("transactions", "why", topic) == []


@pytest.mark.usefixtures("unverified")
def test_a_hanging_transaction_is_found_judged_and_aborted(cli: Cli, topic: str) -> None:
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
