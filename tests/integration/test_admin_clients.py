"""Topics and configurations managed by confluent-kafka, which survive a restart of the broker; and
requests about many partitions.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import admin as confluent

from barnabas.testing import Broker
from tests.support.data_path import running_in_memory
from tests.support.garbage import without_collector
from tests.support.kafka import jvm
from tests.support.mem_files import MemFiles

DEADLINE = 20.0
MANY = 10_000
"""Partitions of one request. The bound is ten times as many elements."""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def results(futures: dict[Any, Any]) -> list[Any]:
    return [future.result(DEADLINE) for future in futures.values()]


def confluent_admin(broker: Broker) -> confluent.AdminClient:
    return confluent.AdminClient({"bootstrap.servers": broker.bootstrap_servers})


def value_of(client: confluent.AdminClient, kind: Any, name: str, key: str) -> str:
    resource = confluent.ConfigResource(kind, name)
    (entries,) = results(client.describe_configs([resource]))
    value: str = entries[key].value
    return value


def alteration(kind: Any, name: str, key: str, value: str) -> confluent.ConfigResource:
    change = confluent.ConfigEntry(
        key, value, incremental_operation=confluent.AlterConfigOpType.SET
    )
    return confluent.ConfigResource(kind, name, incremental_configs=[change])


def test_confluent_manages_topics(broker: Broker) -> None:
    client = confluent_admin(broker)
    new = confluent.NewTopic("confluent", 3, 1, config={"retention.ms": "1000"})
    assert results(client.create_topics([new])) == [None]
    assert len(client.list_topics(timeout=DEADLINE).topics["confluent"].partitions) == 3
    grown = confluent.NewPartitions("confluent", 5)
    assert results(client.create_partitions([grown])) == [None]
    assert (
        len(client.list_topics("confluent", timeout=DEADLINE).topics["confluent"].partitions) == 5
    )
    assert value_of(client, confluent.ResourceType.TOPIC, "confluent", "retention.ms") == "1000"
    with pytest.raises(confluent_kafka.KafkaException, match="TOPIC_ALREADY_EXISTS"):
        results(client.create_topics([new]))
    assert results(client.delete_topics(["confluent"])) == [None]
    assert "confluent" not in client.list_topics(timeout=DEADLINE).topics


def test_confluent_alters_configurations(broker: Broker) -> None:
    client = confluent_admin(broker)
    results(client.create_topics([confluent.NewTopic("altered", 1, 1)]))
    for kind, name, key in (
        (confluent.ResourceType.TOPIC, "altered", "max.message.bytes"),
        (confluent.ResourceType.BROKER, "0", "log.cleaner.backoff.ms"),
    ):
        change = alteration(kind, name, key, "12345")
        assert results(client.incremental_alter_configs([change])) == [None]
        assert value_of(client, kind, name, key) == "12345"


def test_confluent_describes_the_cluster(broker: Broker) -> None:
    client = confluent_admin(broker)
    cluster = client.describe_cluster(include_authorized_operations=True)
    description = cluster.result(DEADLINE)
    assert [node.id for node in description.nodes] == [0]
    assert description.controller.id == 0
    assert description.authorized_operations


def test_a_restart_keeps_what_admins_did(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        client = confluent_admin(broker)
        cluster_id = client.list_topics(timeout=DEADLINE).cluster_id
        names = ("kept", "gone")
        results(client.create_topics([confluent.NewTopic(name, 2, 1) for name in names]))
        kept = results(client.describe_topics(confluent_kafka.TopicCollection(["kept"])))[0]
        changes = [
            alteration(confluent.ResourceType.TOPIC, "kept", "retention.ms", "777"),
            alteration(confluent.ResourceType.BROKER, "0", "log.cleaner.backoff.ms", "555"),
        ]
        results(client.incremental_alter_configs(changes))
        results(client.delete_topics(["gone"]))
    with Broker(data_dir=tmp_path) as broker:
        client = confluent_admin(broker)
        metadata = client.list_topics(timeout=DEADLINE)
        assert metadata.cluster_id == cluster_id
        assert list(metadata.topics) == ["kept"]
        again = results(client.describe_topics(confluent_kafka.TopicCollection(["kept"])))[0]
        assert str(again.topic_id) == str(kept.topic_id)
        assert value_of(client, confluent.ResourceType.TOPIC, "kept", "retention.ms") == "777"
        backoff = value_of(client, confluent.ResourceType.BROKER, "0", "log.cleaner.backoff.ms")
        assert backoff == "555"


def test_request_of_ten_thousand_partitions_is_answered(broker: Broker) -> None:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "many"}
    )
    asked = [confluent_kafka.TopicPartition("many", index) for index in range(MANY)]
    found = consumer.committed(asked, timeout=DEADLINE)
    consumer.close()
    assert [(each.partition, each.offset, each.error) for each in found] == [
        (index, confluent_kafka.OFFSET_INVALID, None) for index in range(MANY)
    ]
    topic = confluent.NewTopic("many", MANY, 1)
    client = confluent_admin(broker)
    assert results(client.create_topics([topic], validate_only=True)) == [None]


async def test_java_uses_ten_thousand_partitions_at_once(tmp_path: Path) -> None:
    """The files are in memory: on a disk each partition holds two descriptors."""
    keys = {
        "offsets_topic_num_partitions": 1,
        "offsets_topic_replication_factor": 1,
        "transaction_state_log_num_partitions": 1,
        "transaction_state_log_replication_factor": 1,
        "transaction_state_log_min_isr": 1,
    }
    async with running_in_memory(MemFiles(), **keys) as broker:
        with without_collector(), jvm.start(tmp_path / "errors") as java:
            many = {"servers": broker.bootstrap_servers, "topic": "many", "count": MANY}
            await asyncio.to_thread(java.call, "create_many_partitions", **many)
            found = await asyncio.to_thread(java.call, "use_many_partitions", **many)
        assert found == dict.fromkeys(found, MANY)
        asked: Counter[str] = Counter()
        for (name, _), count in broker._metrics.requests.requests.snapshot().samples:
            asked[name] += int(count)
    for name in ("CreateTopics", "Produce", "TxnOffsetCommit", "OffsetCommit", "DeleteRecords"):
        assert 1 <= asked[name] <= 2, name
