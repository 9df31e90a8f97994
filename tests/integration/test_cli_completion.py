"""A shell completes the names of a cluster, and shows no error if no broker answers."""

import socket
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from barnabas.testing import Broker
from tests.support.command_line import run

NOTHING: list[str] = []


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker() as broker:
        for name in ("orders", "order-lines", "payments"):
            broker.create_topic(name)
        keys = {"bootstrap.servers": broker.bootstrap_servers}
        consumer = Consumer(keys | {"group.id": "shippers"})
        consumer.commit(offsets=[TopicPartition("orders", 0, 0)], asynchronous=False)
        consumer.close()
        Producer(keys | {"transactional.id": "shop-1"}).init_transactions(20)
        yield broker.bootstrap_servers


def completed(servers: str, *words: str) -> list[str]:
    """Return what the shell offers for the last of the words."""
    line = " ".join(["barnabas", *words])
    done = run(
        servers=servers,
        _BARNABAS_COMPLETE="bash_complete",
        COMP_WORDS=line,
        COMP_CWORD=str(len(words)),
    )
    assert (done.returncode, done.stderr) == (0, b"")
    # Without names click prints one empty line.
    return [each.partition(",")[2] for each in done.stdout.decode().split()]


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["topics", "describe", "ord"], ["order-lines", "orders"]),
        (["consume", "pay"], ["payments"]),
        (["transactions", "why", "pay"], ["payments"]),
        (["groups", "describe", "s"], ["shippers"]),
        (["consume", "orders", "--group", "ship"], ["shippers"]),
        (["transactions", "describe", "shop"], ["shop-1"]),
        (["brokers", "describe", ""], ["0"]),
        (["configs", "describe", "topic", "pay"], ["payments"]),
        (["configs", "describe", "broker", "0"], ["0"]),
        (["config", "describe", "topics", "pay"], ["payments"]),
        (["config", "alter", "brokers", "0", "--set", "num.part"], ["num.partitions"]),
        (
            ["configs", "alter", "topic", "orders", "--set", "retention"],
            ["retention.bytes", "retention.ms"],
        ),
        (["topics", "create", "new", "--config", "min.ins"], ["min.insync.replicas"]),
        (["configs", "alter", "group", "g", "--set", "retention"], NOTHING),
        (
            ["configs", "alter", "group", "g", "--set", "consumer.as"],
            ["consumer.assignment.interval.ms", "consumer.assignor.offload.enable"],
        ),
        (["topics", "create", "ord"], NOTHING),
    ],
)
def test_names_of_the_cluster_are_completed(
    servers: str, words: list[str], names: list[str]
) -> None:
    assert completed(servers, *words) == names


def test_option_counts_before_the_environment(servers: str) -> None:
    words = ("topics", "describe", "-b", servers, "pay")
    assert completed("127.0.0.1:1", *words) == ["payments"]


def test_without_a_broker_nothing_is_completed_and_nothing_said() -> None:
    assert completed("127.0.0.1:1", "topics", "describe", "") == NOTHING


def test_broker_that_does_not_answer_keeps_no_shell_waiting() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        servers = f"127.0.0.1:{silent.getsockname()[1]}"
        assert completed(servers, "groups", "describe", "") == NOTHING


def test_stopped_brokers_directory_is_not_asked_for_names(servers: str, tmp_path: object) -> None:
    words = ("configs", "--data", str(tmp_path), "describe", "topic", "")
    assert completed(servers, *words) == NOTHING
