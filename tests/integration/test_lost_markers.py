"""A power cut loses a transaction's marker; its COMPLETE record survives (KIP-98, correlated hard
failures). Aborting by hand would tear a committed transaction: `repair` writes the decided marker
again."""

from pathlib import Path
from typing import NamedTuple

import pytest

from barnabas.testing import Broker
from tests.support.command_line import DEADLINE, Cli
from tests.support.newer_producer import NewerProducer
from tests.support.transactions_by_hand import (
    committed_values,
    lose_marker,
    older_producer,
    refused,
    wait_until_over,
)

KEYS = {
    "transaction.state.log.num.partitions": "3",
    "transaction.two.phase.commit.enable": "true",
}
HANGING = ("find-hanging", "--max-transaction-timeout", "0")
ABORT = ("abort", "t:0", "--start-offset", "0")


class Ended(NamedTuple):
    """The producer of an ended transaction."""

    producer_id: int
    epoch: int


@pytest.fixture
def tools(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> Cli:
    return Cli("", (monkeypatch, capfdbinary), tmp_path)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


def write_newer(broker: Broker, cli: Cli, *, committed: bool, keeps: int = 0) -> Ended:
    """Write and end a transaction in t:0 and t:1 that has its own epoch; it is kept first."""
    producer = NewerProducer(broker.bootstrap_servers, "x").init()
    ended = Ended(producer.producer_id, producer.epoch)
    producer.send("t", 0, b"a")
    producer.send("t", 1, b"b")
    for _ in range(keeps):
        producer.keep()
    producer.end(committed=committed)
    wait_until_over(cli)
    return ended


def write_older(broker: Broker, cli: Cli) -> None:
    """Write and end the same transaction in the older protocol."""
    producer = older_producer(broker.bootstrap_servers, "x")
    producer.begin_transaction()
    for partition in (0, 1):
        producer.produce("t", b"a", partition=partition)
    producer.commit_transaction(DEADLINE)
    wait_until_over(cli)


@pytest.mark.parametrize(
    ("committed", "values", "keeps"), [(True, [b"a"], 0), (False, [], 0), (True, [b"a"], 2)]
)
def test_repair_writes_the_decision_again(
    tools: Cli, data: Path, committed: bool, values: list[bytes], keeps: int
) -> None:
    """The records and the marker of a kept transaction bear the producer that wrote it."""
    with Broker(KEYS, data_dir=data) as broker:
        cli = tools.at(broker.bootstrap_servers)
        cli("topics", "create", "t", "-p", "2")
        ended = write_newer(broker, cli, committed=committed, keeps=keeps)
    lose_marker(data)
    with Broker(KEYS, data_dir=data) as broker:
        cli = tools.at(broker.bootstrap_servers)
        assert committed_values(broker.bootstrap_servers, "t") == []
        (found,) = cli.json("transactions", "why", "t")
        decision = "commit" if committed else "abort"
        state = f"Complete{decision.title()}"
        assert f"its marker is lost: the transaction log says {decision}" in found["because"]
        assert found["advice"] == "barnabas transactions repair t:0"
        assert (found["transactional_id"], found["state"]) == ("x", state)
        assert (found["time_left_ms"], found["client"]) == (None, None)
        # For events before the restart the log is the only source.
        timeline = [each["event"] for each in found["timeline"]]
        timeline.remove("record 0 of t-0 (timestamp of the record)")
        name = f"InitProducerId keeps the transaction for client {ended.producer_id}"
        assert timeline == [
            f"InitProducerId, epoch {ended.epoch}",
            "adds t-0",
            "adds t-1",
            *(f"{name}:{ended.epoch + 1 + number}" for number in range(keeps)),
            f"Prepare{decision.title()}",
            state,
        ]
        row = {
            "topic": "t",
            "partition": 0,
            "producer_id": ended.producer_id,
            "producer_epoch": ended.epoch,
            "coordinator_epoch": -1,
            "start_offset": 0,
            "decision": "committed" if committed else "aborted",
            "why": f"the transaction log says {decision} for this epoch",
        }
        (planned,) = cli.json("transactions", "repair", "--dry-run")
        row["last_timestamp_ms"] = planned["last_timestamp_ms"]
        assert planned == {**row, "written": False}
        assert cli.json("transactions", "repair", "t:1") == []
        assert cli.json("transactions", "repair", "t") == [{**row, "written": True}]
        assert cli.json("transactions", "repair") == []
        assert cli.json("transactions", "why", "t") == []
        assert committed_values(broker.bootstrap_servers, "t") == values
        # The producer continues as if nothing had happened.
        producer = NewerProducer(broker.bootstrap_servers, "x").init()
        producer.send("t", 0, b"next")
        producer.end(committed=True)
        wait_until_over(cli)
        assert committed_values(broker.bootstrap_servers, "t") == [*values, b"next"]


def test_abort_refuses_a_transaction_that_has_committed(tools: Cli, data: Path) -> None:
    with Broker(KEYS, data_dir=data) as broker:
        cli = tools.at(broker.bootstrap_servers)
        cli("topics", "create", "t", "-p", "2")
        write_newer(broker, cli, committed=True)
    lose_marker(data)
    with Broker(KEYS, data_dir=data) as broker:
        cli = tools.at(broker.bootstrap_servers)
        # Kafka's own check reports it as hanging, and Kafka's abort would follow.
        assert len(cli.json("transactions", *HANGING)) == 1
        assert refused(cli, *ABORT) == (
            "barnabas: it committed: the transaction log says commit for this epoch; "
            "`repair` writes its marker again"
        )
        assert len(cli.json("transactions", *HANGING)) == 1
        cli("transactions", *ABORT, "--force")
        assert committed_values(broker.bootstrap_servers, "t") == []


def test_repair_works_after_the_producer_began_its_next_transaction(tools: Cli, data: Path) -> None:
    with Broker(KEYS, data_dir=data) as broker:
        cli = tools.at(broker.bootstrap_servers)
        cli("topics", "create", "t", "-p", "2")
        write_newer(broker, cli, committed=True)
    lose_marker(data)
    with Broker(KEYS, data_dir=data) as broker:
        cli = tools.at(broker.bootstrap_servers)
        producer = NewerProducer(broker.bootstrap_servers, "x").init()
        producer.send("t", 1, b"later")
        (found,) = cli.json("transactions", "why", "t:0")
        timeline = [each["event"] for each in found["timeline"]]
        timeline.remove("record 0 of t-0 (timestamp of the record)")
        assert timeline == [
            "InitProducerId, epoch 0",
            "adds t-0",
            "adds t-1",
            "PrepareCommit",
            "CompleteCommit",
        ]
        (row,) = cli.json("transactions", "repair")
        assert (row["partition"], row["written"]) == (0, True)
        assert committed_values(broker.bootstrap_servers, "t") == [b"a"]
        producer.end(committed=False)


def test_repair_of_the_older_protocol_needs_an_explicit_decision(tools: Cli, data: Path) -> None:
    with Broker(KEYS, data_dir=data) as broker:
        cli = tools.at(broker.bootstrap_servers)
        cli("topics", "create", "t", "-p", "2")
        write_older(broker, cli)
    lose_marker(data)
    with Broker(KEYS, data_dir=data) as broker:
        cli = tools.at(broker.bootstrap_servers)
        code, out, errors = cli.run("transactions", "repair")
        assert code == 1
        assert b"\tunknown\tFalse\tthe older protocol has many transactions" in out
        (line,) = errors.decode().splitlines()
        assert line.startswith(
            "barnabas: 1 hanging transaction(s) without a certain decision in the log"
        )
        assert "cannot be told; --force" in refused(cli, *ABORT)
        (found,) = cli.json("transactions", "why", "t:0")
        assert found["advice"] == " ".join(["barnabas", "transactions", *ABORT, "--force"])
        assert cli.json("transactions", "find-hanging", "t:0") == []


def test_offsets_of_a_group_are_repaired_too(tools: Cli, data: Path) -> None:
    offsets = "__consumer_offsets"
    keys = {**KEYS, "offsets.topic.num.partitions": "1"}
    with Broker(keys, data_dir=data) as broker:
        cli = tools.at(broker.bootstrap_servers)
        cli("topics", "create", "t", "-p", "1")
        producer = NewerProducer(broker.bootstrap_servers, "x").init()
        producer.commit_offset("g", "t", 5)
        producer.end(committed=True)
        wait_until_over(cli)
    lose_marker(data, f"{offsets}-0")
    with Broker(keys, data_dir=data) as broker:
        cli = tools.at(broker.bootstrap_servers)
        assert cli.json("groups", "describe", "g")["partitions"] == []
        (found,) = cli.json("transactions", "why", offsets)
        assert found["advice"] == f"barnabas transactions repair {offsets}:0"
        assert cli.json("transactions", "repair")[0]["written"] is True
        assert cli.json("groups", "describe", "g")["partitions"][0]["offset"] == 5
