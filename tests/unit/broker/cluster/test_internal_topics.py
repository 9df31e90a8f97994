"""The settings of internal topics."""

import pytest

from barnabas.broker.cluster.internal_topics import InternalTopic, in_cluster, internal_topics
from barnabas.broker.cluster.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from barnabas.config.broker import BrokerConfig

CLUSTER = {
    "metadata.socket": "/run/metadata",
    "listeners": "A://:9092,B://:9192",
    "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
    "inter.broker.listener.name": "B",
}


def made(topic: str, **properties: str) -> InternalTopic:
    texts = {key.replace("_", "."): value for key, value in properties.items()}
    config = BrokerConfig.from_properties({"broker.id": "1", **texts})
    return internal_topics(lambda: config)[topic]()


@pytest.mark.parametrize("topic", [CONSUMER_OFFSETS, TRANSACTION_STATE])
def test_single_broker_uses_one_replica(topic: str) -> None:
    found = made(topic)
    assert (found.num_partitions, found.replication_factor) == (50, 1)
    assert found.configs["min.insync.replicas"] == "1"


def test_cluster_uses_kafkas_replication_factor() -> None:
    offsets, transactions = (
        made(topic, **CLUSTER) for topic in (CONSUMER_OFFSETS, TRANSACTION_STATE)
    )
    assert (offsets.replication_factor, transactions.replication_factor) == (3, 3)
    assert transactions.configs["min.insync.replicas"] == "2"
    assert "min.insync.replicas" not in offsets.configs, "the brokers' own value holds"


def test_keys_take_effect() -> None:
    keys = {
        "offsets.topic.replication.factor": "5",
        "transaction.state.log.replication.factor": "4",
        "transaction.state.log.min.isr": "3",
    }
    offsets, transactions = (
        made(topic, **CLUSTER, **keys) for topic in (CONSUMER_OFFSETS, TRANSACTION_STATE)
    )
    assert (offsets.replication_factor, transactions.replication_factor) == (5, 4)
    assert transactions.configs["min.insync.replicas"] == "3"


def test_overrides_of_users_stay_when_brokers_join() -> None:
    config = BrokerConfig.from_properties({"broker.id": "1", **CLUSTER})
    for topic in (CONSUMER_OFFSETS, TRANSACTION_STATE):
        for overrides in ({"min.insync.replicas": "3"}, {"cleanup.policy": "compact"}):
            assert in_cluster(topic, overrides, config) == overrides
