"""A power cut takes a transaction's marker; its COMPLETE record survives (KIP-98, correlated hard
failures). Aborted by hand, what committed would be torn: `repair` writes the decision again."""

from pathlib import Path
from typing import NamedTuple

import pytest

from barnabas.protocol.records.batch import iter_headers
from barnabas.testing import Broker
from tests.integration.command_line import DEADLINE, Cli
from tests.integration.newer_producer import NewerProducer
from tests.integration.test_cli_transactions import (
    committed_values,
    older_producer,
    refused,
)
from tests.waiting import until

CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
KEYS = {"transaction.state.log.num.partitions": "3"}
HANGING = ("find-hanging", "--max-transaction-timeout", "0")
ABORT = ("abort", "t:0", "--start-offset", "0")


class Ended(NamedTuple):
    """Who wrote the transaction."""

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


def lose_marker(data: Path, partition: str = "t-0") -> None:
    """What a power cut leaves that comes before the marker is written back."""
    (log,) = (data / partition).glob("*.log")
    written = log.read_bytes()
    *_, (at, last) = iter_headers(memoryview(written))
    assert last.is_control
    log.write_bytes(written[:at])
    for snapshot in (data / partition).glob("*.snapshot"):
        snapshot.unlink()
    (data / CLEAN_SHUTDOWN).unlink()


def write_newer(broker: Broker, cli: Cli, *, committed: bool) -> Ended:
    """A transaction in t:0 and t:1 with an epoch of its own, which is over."""
    producer = NewerProducer(broker.bootstrap_servers, "x").init()
    ended = Ended(producer.producer_id, producer.epoch)
    producer.send("t", 0, b"a")
    producer.send("t", 1, b"b")
    producer.end(committed=committed)
    wait_until_over(cli)
    return ended


def write_older(broker: Broker, cli: Cli) -> None:
    """The same of the older protocol."""
    producer = older_producer(broker.bootstrap_servers, "x")
    producer.begin_transaction()
    for partition in (0, 1):
        producer.produce("t", b"a", partition=partition)
    producer.commit_transaction(DEADLINE)
    wait_until_over(cli)


def wait_until_over(cli: Cli) -> None:
    def over() -> bool:
        (row,) = cli.json("transactions", "describe", "x")
        return str(row["state"]).startswith("Complete")

    until(over)


@pytest.mark.parametrize(("committed", "values"), [(True, [b"a"]), (False, [])])
def test_repair_writes_the_decision_again(
    tools: Cli, data: Path, committed: bool, values: list[bytes]
) -> None:
    with Broker(KEYS, data_dir=data) as broker:
        cli = tools.at(broker.bootstrap_servers)
        cli("topics", "create", "t", "-p", "2")
        ended = write_newer(broker, cli, committed=committed)
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
        # Of before the restart only the log knows.
        timeline = [each["event"] for each in found["timeline"]]
        timeline.remove("record 0 of t-0, by its own clock")
        assert timeline == [
            f"InitProducerId, epoch {ended.epoch}",
            "adds t-0",
            "adds t-1",
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
        row["last_timestamp"] = planned["last_timestamp"]
        assert planned == {**row, "written": False}
        assert cli.json("transactions", "repair", "t:1") == []
        assert cli.json("transactions", "repair", "t") == [{**row, "written": True}]
        assert cli.json("transactions", "repair") == []
        assert cli.json("transactions", "why", "t") == []
        assert committed_values(broker.bootstrap_servers, "t") == values
        # The producer goes on as if nothing had been.
        producer = NewerProducer(broker.bootstrap_servers, "x").init()
        producer.send("t", 0, b"next")
        producer.end(committed=True)
        wait_until_over(cli)
        assert committed_values(broker.bootstrap_servers, "t") == [*values, b"next"]


def test_abort_refuses_to_tear_what_committed(tools: Cli, data: Path) -> None:
    with Broker(KEYS, data_dir=data) as broker:
        cli = tools.at(broker.bootstrap_servers)
        cli("topics", "create", "t", "-p", "2")
        write_newer(broker, cli, committed=True)
    lose_marker(data)
    with Broker(KEYS, data_dir=data) as broker:
        cli = tools.at(broker.bootstrap_servers)
        # Kafka's own test says that it hangs, and Kafka's abort would follow.
        assert len(cli.json("transactions", *HANGING)) == 1
        assert refused(cli, *ABORT) == (
            "barnabas: it committed: the transaction log says commit for this epoch; "
            "`repair` writes its marker again"
        )
        assert len(cli.json("transactions", *HANGING)) == 1
        cli("transactions", *ABORT, "--force")
        assert committed_values(broker.bootstrap_servers, "t") == []


def test_repair_does_not_wait_for_a_producer_that_has_gone_on(tools: Cli, data: Path) -> None:
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
        timeline.remove("record 0 of t-0, by its own clock")
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


def test_of_the_older_protocol_nothing_is_written_without_being_told(
    tools: Cli, data: Path
) -> None:
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
        assert line.startswith("barnabas: 1 transaction(s) hang for which the log cannot tell")
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
        assert cli.json("groups", "describe", "g") == []
        (found,) = cli.json("transactions", "why", offsets)
        assert found["advice"] == f"barnabas transactions repair {offsets}:0"
        assert cli.json("transactions", "repair")[0]["written"] is True
        assert cli.json("groups", "describe", "g")[0]["offset"] == 5
