"""Users, rules and certificates of brokers for the tests of other projects."""

import asyncio
import subprocess
import time
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from aiokafka import AIOKafkaProducer
from kafka import KafkaProducer

from barnabas.client.security import connect_with
from barnabas.testing import Broker, Cluster, allow, deny
from barnabas.testing.plugin import barnabas_broker, barnabas_cluster

__all__ = ["barnabas_broker", "barnabas_cluster"]
DEADLINE = 20.0
RULES = [
    allow("alice", "Write", "Topic:orders"),
    allow("alice", "Create", "Topic:orders"),
    allow("bob", "Write", "Topic:*"),
    deny("bob", "All", "Topic:ord*"),
    allow("carl", "Write", "Topic:orders", host="10.0.0.1"),
]
USERS = ["alice", "bob", "carl"]


def produce(settings: dict[str, Any]) -> str | None:
    """Produce with librdkafka; return the name of the error, None after a success."""
    producer = confluent_kafka.Producer({"message.timeout.ms": 5000} | settings)
    errors: list[Any] = []
    producer.produce("orders", b"1", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(DEADLINE) == 0
    return None if errors[0] is None else str(errors[0].name())


@pytest.mark.barnabas(users=USERS, rules=RULES)
def test_rules_hold_for_users(barnabas_broker: Broker) -> None:
    settings = barnabas_broker.settings
    assert produce(settings("alice").librdkafka()) is None
    for user in ("bob", "carl"):
        assert produce(settings(user).librdkafka()) == "TOPIC_AUTHORIZATION_FAILED"
    assert produce(settings().librdkafka()) is None
    with pytest.raises(ValueError, match="there is no user dave"):
        settings("dave")


@pytest.mark.barnabas(users=["alice"], rules=RULES[:2])
def test_each_library_takes_its_settings(barnabas_broker: Broker) -> None:
    for settings in (
        barnabas_broker.settings("alice"),
        barnabas_broker.certificate_settings("alice"),
    ):
        assert produce(settings.librdkafka()) is None
        producer = KafkaProducer(**settings.kafka_python())
        producer.send("orders", b"2").get(DEADLINE)
        producer.close()
        asyncio.run(_use_aiokafka(settings.aiokafka()))
        assert connect_with(settings.java()) is not None


async def _use_aiokafka(settings: dict[str, Any]) -> None:
    async with AIOKafkaProducer(**settings) as producer:
        await producer.send_and_wait("orders", b"3")


@pytest.mark.barnabas({"num.partitions": "2"}, users={"alice": 'quoted " \\ secret'})
def test_passwords_and_keys_may_be_given(barnabas_broker: Broker) -> None:
    settings = barnabas_broker.settings("alice")
    assert settings.password == 'quoted " \\ secret'
    assert settings.password not in repr(settings)
    # Without a rule.
    assert produce(settings.librdkafka()) == "TOPIC_AUTHORIZATION_FAILED"
    assert connect_with(settings.java()) is not None


@pytest.mark.barnabas(secure=True)
def test_strangers_are_not_let_in(barnabas_broker: Broker) -> None:
    admin = barnabas_broker.settings().librdkafka()
    soon = {"message.timeout.ms": 1000}
    for wrong in ({"sasl.password": "wrong"}, {"security.protocol": "PLAINTEXT"}):
        assert produce(admin | wrong | soon) == "_MSG_TIMED_OUT"
    with_certificate = barnabas_broker.certificate_settings("eve").librdkafka()
    assert produce(with_certificate) == "TOPIC_AUTHORIZATION_FAILED"
    del with_certificate["ssl.certificate.location"], with_certificate["ssl.key.location"]
    assert produce(with_certificate | soon) == "_MSG_TIMED_OUT"


def test_an_open_broker_has_settings_too() -> None:
    with Broker() as broker:
        assert produce(broker.settings().librdkafka()) is None
        with pytest.raises(ValueError, match="there is no user alice"):
            broker.settings("alice")
        with pytest.raises(ValueError, match="secure=True"):
            broker.certificate_settings("alice")


@pytest.mark.barnabas(users=["alice"], rules=RULES[:2])
def test_a_cluster_has_users_and_levers(barnabas_cluster: Cluster) -> None:
    settings = barnabas_cluster.settings("alice").librdkafka()
    assert produce(settings) is None
    assert produce(barnabas_cluster.certificate_settings("alice").librdkafka()) is None
    leader = barnabas_cluster.leader_of("orders")
    barnabas_cluster.cut_clients(leader)
    assert produce(settings | {"message.timeout.ms": 1500}) == "_MSG_TIMED_OUT"
    barnabas_cluster.heal()
    assert produce(settings) is None
    barnabas_cluster.stop_broker(leader)
    barnabas_cluster.start_broker(leader)
    barnabas_cluster.wait_until_in_sync()
    assert produce(settings) is None


def test_processes_of_a_cluster_show_no_password() -> None:
    with Cluster(users=["alice"], rules=RULES[:2], processes=True) as cluster:
        password = cluster.settings("alice").password
        assert produce(cluster.settings("alice").librdkafka()) is None
        shown = subprocess.run(["ps", "axeww"], capture_output=True, text=True, check=True).stdout
        assert "barnabas.testing.child" in shown
        assert password not in shown


def test_data_and_users_outlive_a_broker(tmp_path: Path) -> None:
    broker = Broker(users=["alice"], rules=RULES[:2], data_dir=tmp_path)
    for _ in range(2):
        with broker:
            assert produce(broker.settings("alice").librdkafka()) is None


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("a", "Reed", "Topic:t"), "'Reed' is not one of All, Read"),
        (("a", "Read", "Tpic:t"), "'Tpic' is not one of Topic"),
        (("a", "Read", "Topic"), "'Topic' is not TYPE:NAME"),
    ],
)
def test_wrong_rules_are_told(arguments: tuple[str, str, str], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        allow(*arguments)


def test_security_takes_less_than_a_second() -> None:
    def start(**keys: Any) -> float:
        began = time.perf_counter()
        with Broker(**keys):
            return time.perf_counter() - began

    start()
    start(users=USERS, rules=RULES)
    plain = min(start() for _ in range(3))
    assert min(start(users=USERS, rules=RULES) for _ in range(3)) < plain + 1.0
