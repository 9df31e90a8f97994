"""Apache Kafka's tools on three brokers, of which one crashes or lacks records of another."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from barnabas.protocol.errors import ErrorCode
from barnabas.testing import Cluster
from tests.support.client_program import Program
from tests.support.kafka import tools as kafka
from tests.support.kafka.jars import require
from tests.support.kafka.node import java
from tests.support.kafka.tools import Tool, Tools
from tests.support.transactor import TV1, Transactor, Wire
from tests.support.waiting import until

Rows = Callable[..., list[dict[str, str]]]

TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
VERIFIABLE_PRODUCER = "org.apache.kafka.tools.VerifiableProducer"
VERIFIABLE_CONSUMER = "org.apache.kafka.tools.VerifiableConsumer"
CONFIGS = {
    "metadata.session.timeout.ms": "1000",
    "auto.leader.rebalance.enable": "false",
    "transaction.partition.verification.enable": "false",
}
DEADLINE_S = 40.0

pytestmark = pytest.mark.xdist_group("referee-tools")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Yield the cluster; each test leaves all brokers running."""
    with Cluster(CONFIGS, processes=True) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def tool(tools: Tools, cluster: Cluster) -> Tool:
    return tools.at(cluster.bootstrap_servers)


@pytest.fixture(scope="module")
def rows(tool: Tool) -> Rows:
    """Return the table that the transactions tool printed, by its column heads."""

    def table(*arguments: str) -> list[dict[str, str]]:
        heads, *lines = (line.split("\t") for line in tool(TRANSACTIONS, *arguments).splitlines())
        names = [head.strip() for head in heads]
        return [dict(zip(names, map(str.strip, line), strict=False)) for line in lines]

    return table


def test_an_unclean_election_is_the_last_resort(cluster: Cluster, tool: Tool) -> None:
    tool(
        kafka.TOPICS,
        "--create",
        "--topic",
        "torn",
        "--replica-assignment",
        "1:2",
        "--config",
        "min.insync.replicas=1",
    )
    tool(kafka.CONSOLE_PRODUCER, "--topic", "torn", stdin="both\n")
    cluster.stop_broker(2)
    tool(kafka.CONSOLE_PRODUCER, "--topic", "torn", stdin="one\n")
    cluster.stop_broker(1)
    cluster.start_broker(2)
    described = ("--describe", "--unavailable-partitions", "--topic", "torn")
    until(lambda: "Leader: none" in tool(kafka.TOPICS, *described))
    partition = ("--topic", "torn", "--partition", "0")
    said = tool(kafka.LEADER_ELECTION, "--election-type", "unclean", *partition)
    assert "Successfully completed leader election (UNCLEAN) for partitions torn-0" in said
    assert cluster.leader_of("torn") == 2
    assert tool(kafka.GET_OFFSETS, "--topic", "torn").strip() == "torn:0:1"
    cluster.start_broker(1)
    cluster.wait_until_in_sync()
    assert tool(kafka.TOPICS, *described).strip() == ""


def test_transactions_of_three_coordinators(cluster: Cluster, tool: Tool, rows: Rows) -> None:
    tool(kafka.TOPICS, "--create", "--topic", "open", "--replica-assignment", "1:2:3,2:3:1,3:1:2")
    names = [f"open-{number}" for number in range(6)]
    producers = [opened(cluster, name) for name in names]
    listed = {row["TransactionalId"]: row for row in rows("list") if "open-" in str(row)}
    assert {name: int(row["Coordinator"]) for name, row in listed.items()} == {
        name: cluster.coordinator_of(transactional_id=name) for name in names
    }
    assert {row["TransactionState"] for row in listed.values()} == {"Ongoing"}
    (row,) = rows("describe", "--transactional-id", "open-0")
    assert set(row["TopicPartitions"].split(",")) == {"open-0", "open-1", "open-2"}
    for partition in range(3):
        found = rows("describe-producers", "--topic", "open", "--partition", str(partition))
        assert {each["ProducerId"] for each in found} == {
            each["ProducerId"] for each in listed.values()
        }
    for broker in cluster.broker_ids:
        assert rows("find-hanging", "--broker-id", str(broker)) == []
    for producer in producers:
        producer.commit_transaction(DEADLINE_S)


def opened(cluster: Cluster, name: str) -> Producer:
    """Return a producer with an open transaction in all partitions of the topic."""
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": name, "log_level": 0}
    )
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    for partition in range(3):
        producer.produce("open", name.encode(), partition=partition)
    assert producer.flush(DEADLINE_S) == 0
    return producer


def test_hanging_transaction_is_found_and_aborted(cluster: Cluster, tool: Tool, rows: Rows) -> None:
    tool(kafka.TOPICS, "--create", "--topic", "hanging", "--replica-assignment", "3:1")
    with Wire(cluster.address_of(3)) as wire:
        # The coordinator does not know this transaction.
        x = Transactor(wire, "hanging", TV1)
        x.producer_id, x.epoch, x.behind_ms = 999_999, 0, 3_600_000
        assert x.send("hanging", b"hangs", sequence=0).error is ErrorCode.NONE
    for broker in (3, 1):
        # The tool asks followers as well.
        (found,) = rows("find-hanging", "--broker-id", str(broker))
        what = ("hanging", "999999", "0")
        assert (found["Topic"], found["ProducerId"], found["StartOffset"]) == what
    assert rows("find-hanging", "--broker-id", "2") == []
    tool(TRANSACTIONS, "abort", "--topic", "hanging", "--partition", "0", "--start-offset", "0")
    until(lambda: rows("find-hanging", "--broker-id", "3") == [])


def events(program: Program) -> list[dict[str, Any]]:
    return [json.loads(line) for line in program.told() if re.match(r"\{.*\}$", line)]


def named(program: Program, name: str) -> list[dict[str, Any]]:
    return [each for each in events(program) if each["name"] == name]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_verifiable_consumer_reads_all_acknowledged_records_despite_a_kill(
    cluster: Cluster, tool: Tool, tmp_path: Path, protocol: str
) -> None:
    topic, group = f"verified-{protocol}", f"verifiers-{protocol}"
    tool(kafka.TOPICS, "--create", "--topic", topic, "--partitions", "6")
    servers = ("--bootstrap-server", cluster.bootstrap_servers, "--topic", topic)
    writing = [*java(require()), VERIFIABLE_PRODUCER, *servers]
    reading = [*java(require()), VERIFIABLE_CONSUMER, *servers, "--group-id", group]
    reading += ["--group-protocol", protocol]
    reading += ["--reset-policy", "earliest", "--verbose"]
    total = 3000
    writing += ["--max-messages", str(total), "--throughput", "300", "--acks", "-1"]
    with (
        Program(reading, tmp_path / "consumer") as consumer,
        Program(writing, tmp_path / "producer") as producer,
    ):
        until(lambda: named(consumer, "offsets_committed"))
        victim = cluster.coordinator_of(group=group)
        cluster.kill(victim)
        until(lambda: cluster.leader_of(topic) != victim)
        seen = len(named(consumer, "record_data"))
        until(lambda: len(named(consumer, "record_data")) > seen + 300)
        cluster.start_broker(victim)
        producer.finish()
        acknowledged = {each["value"] for each in named(producer, "producer_send_success")}
        assert len(acknowledged) > total // 2
        until(lambda: {each["value"] for each in named(consumer, "record_data")} >= acknowledged)
        until(lambda: lag(tool, protocol) == {0})
        assert all(each["success"] for each in named(consumer, "offsets_committed")[-1:])
    cluster.wait_until_in_sync()


def lag(tool: Tool, protocol: str) -> set[int]:
    """Return the lags of the partitions that the group has read."""
    said = tool(kafka.CONSUMER_GROUPS, "--describe", "--group", f"verifiers-{protocol}")
    return {int(each) for each in re.findall(rf"verified-{protocol} +\d+ +\d+ +\d+ +(\d+)", said)}
