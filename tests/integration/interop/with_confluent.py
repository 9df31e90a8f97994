"""The commands of the tests, carried out by confluent-kafka."""

from typing import Any

import confluent_kafka
from confluent_kafka import TopicPartition, admin

from tests.integration.interop.member import DEADLINE
from tests.integration.interop.message import Message


def write(
    servers: str, topic: str, codec: str, messages: list[Message], options: dict[str, Any]
) -> list[int]:
    offsets: list[int] = []

    def delivered(error: object, message: confluent_kafka.Message) -> None:
        if error is not None:
            raise confluent_kafka.KafkaException(error)
        offsets.append(message.offset())

    config = {"bootstrap.servers": servers, "compression.type": codec, "linger.ms": 20}
    producer = confluent_kafka.Producer({**config, "enable.idempotence": True, **options})
    for each in messages:
        producer.produce(
            topic,
            partition=0,
            key=each.key,
            value=each.value,
            headers=list(each.headers),
            timestamp=each.timestamp,
            on_delivery=delivered,
        )
    producer.flush(DEADLINE)
    return offsets


def read(
    servers: str, topic: str, count: int, since: int | None, options: dict[str, Any]
) -> list[Message]:
    config = {"bootstrap.servers": servers, "group.id": "unused", "enable.auto.commit": False}
    consumer = confluent_kafka.Consumer({**config, **options})
    start = TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)
    if since is not None:
        (start,) = consumer.offsets_for_times([TopicPartition(topic, 0, since)], timeout=DEADLINE)
    consumer.assign([start])
    records = consumer.consume(count, DEADLINE)
    consumer.close()
    return [
        Message(each.key(), each.value(), tuple(each.headers() or ()), each.timestamp()[1])
        for each in records
    ]


class Consumer:
    """See `member.Consumer`."""

    def __init__(self, servers: str, topic: str, options: dict[str, Any]) -> None:
        self.revoked = 0
        self._consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, **options})
        self._consumer.subscribe([topic], on_revoke=self._on_revoke)

    def _on_revoke(self, _consumer: object, partitions: list[TopicPartition]) -> None:
        self.revoked += len(partitions)

    def poll(self) -> list[str]:
        records = self._consumer.consume(100, 0.02)
        return [each.value().decode() for each in records if each.error() is None]

    def owned(self) -> list[int]:
        return [each.partition for each in self._consumer.assignment()]

    def commit(self) -> None:
        self._consumer.commit(asynchronous=False)

    def lag(self) -> int:
        lag = 0
        for place in self._consumer.position(self._consumer.assignment()):
            first, end = self._consumer.get_watermark_offsets(place, DEADLINE)
            # A partition of which nothing was read has no position yet.
            lag += end - max(first, place.offset)
        return lag

    def close(self) -> None:
        self._consumer.close()


def _done(futures: dict[Any, Any]) -> Any:
    (future,) = futures.values()
    return future.result(DEADLINE)


class Administrator:
    """An administrator's calls."""

    def __init__(self, servers: str) -> None:
        self._admin = admin.AdminClient({"bootstrap.servers": servers})

    def create_topic(self, topic: str, partitions: int) -> None:
        _done(self._admin.create_topics([admin.NewTopic(topic, partitions)]))

    def topics(self) -> list[str]:
        return list(self._admin.list_topics(timeout=DEADLINE).topics)

    def partitions(self, topic: str) -> int:
        names = confluent_kafka.TopicCollection([topic])
        return len(_done(self._admin.describe_topics(names)).partitions)

    def grow(self, topic: str, partitions: int) -> None:
        _done(self._admin.create_partitions([admin.NewPartitions(topic, partitions)]))

    def delete_topic(self, topic: str) -> None:
        _done(self._admin.delete_topics([topic]))

    def set_config(self, topic: str, key: str, value: str) -> None:
        operation = admin.AlterConfigOpType.SET
        change = admin.ConfigEntry(key, value, incremental_operation=operation)
        _done(self._admin.incremental_alter_configs([self._resource(topic, [change])]))

    def config(self, topic: str, key: str) -> str:
        return str(_done(self._admin.describe_configs([self._resource(topic)]))[key].value)

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        place = TopicPartition(topic, partition, before)
        return int(_done(self._admin.delete_records([place])).low_watermark)

    def cluster(self) -> dict[str, Any]:
        described = self._admin.describe_cluster().result(DEADLINE)
        nodes = [node.id for node in described.nodes]
        return {"nodes": nodes, "controller": described.controller.id}

    def groups(self) -> list[str]:
        listed = self._admin.list_consumer_groups().result(DEADLINE)
        return [each.group_id for each in listed.valid]

    def group(self, group: str) -> dict[str, Any]:
        described = _done(self._admin.describe_consumer_groups([group]))
        return {"state": described.state.name.capitalize(), "members": len(described.members)}

    def delete_group(self, group: str) -> None:
        _done(self._admin.delete_consumer_groups([group]))

    def offsets(self, group: str) -> dict[int, int]:
        asked = confluent_kafka.ConsumerGroupTopicPartitions(group)
        found = _done(self._admin.list_consumer_group_offsets([asked]))
        return {each.partition: each.offset for each in found.topic_partitions}

    def alter_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        place = TopicPartition(topic, partition, offset)
        wanted = confluent_kafka.ConsumerGroupTopicPartitions(group, [place])
        _done(self._admin.alter_consumer_group_offsets([wanted]))

    def close(self) -> None:
        """Do nothing: the library has nothing to close."""

    @staticmethod
    def _resource(topic: str, changes: list[Any] | None = None) -> admin.ConfigResource:
        kind = admin.ResourceType.TOPIC
        return admin.ConfigResource(kind, topic, incremental_configs=changes)
