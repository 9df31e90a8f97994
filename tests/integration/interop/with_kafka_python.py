"""The commands of the tests, carried out by kafka-python."""

from typing import Any

import kafka
from kafka import TopicPartition, admin
from kafka.consumer.subscription_state import ConsumerRebalanceListener
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.structs import OffsetAndMetadata

from tests.integration.interop.member import DEADLINE
from tests.integration.interop.message import Message

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


def keywords(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options with the library's spelling of Kafka's names."""
    found = {key.replace(".", "_"): value for key, value in options.items()}
    if "partition_assignment_strategy" in found:
        found["partition_assignment_strategy"] = [ASSIGNORS[found["partition_assignment_strategy"]]]
    return found


def write(
    servers: str, topic: str, codec: str, messages: list[Message], options: dict[str, Any]
) -> list[int]:
    producer = kafka.KafkaProducer(
        bootstrap_servers=servers,
        compression_type=None if codec == "none" else codec,
        linger_ms=20,
        **keywords(options),
    )
    sent = [
        producer.send(
            topic,
            partition=0,
            key=each.key,
            value=each.value,
            headers=list(each.headers),
            timestamp_ms=each.timestamp,
        )
        for each in messages
    ]
    offsets = [each.get(DEADLINE).offset for each in sent]
    producer.close()
    return offsets


def read(
    servers: str, topic: str, count: int, since: int | None, options: dict[str, Any]
) -> list[Message]:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=servers,
        group_id=None,
        consumer_timeout_ms=int(DEADLINE * 1000),
        **keywords(options),
    )
    place = TopicPartition(topic, 0)
    consumer.assign([place])
    if since is None:
        consumer.seek_to_beginning(place)
    else:
        consumer.seek(place, consumer.offsets_for_times({place: since})[place].offset)
    messages: list[Message] = []
    while len(messages) < count:
        each = next(consumer)
        messages.append(Message(each.key, each.value, tuple(each.headers), each.timestamp))
    consumer.close()
    return messages


class Consumer(ConsumerRebalanceListener):  # type: ignore[misc]
    """See `member.Consumer`."""

    def __init__(self, servers: str, topic: str, options: dict[str, Any]) -> None:
        self.revoked = 0
        self._consumer = kafka.KafkaConsumer(bootstrap_servers=servers, **keywords(options))
        # The library loses its assignment if it learns the topic's partitions after joining and a
        # short poll ends during the second join; so it learns them before.
        self._consumer.partitions_for_topic(topic)
        self._consumer.subscribe([topic], listener=self)

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self.revoked += len(revoked)

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        """Do nothing: the assignment is asked of the consumer itself."""

    def poll(self) -> list[str]:
        # A poll that ends during a join restarts the join: with short polls on a busy machine the
        # library never joins, or it joins as two members, one of which is silent.
        joining = not self._consumer.assignment()
        polled = self._consumer.poll(timeout_ms=2_000 if joining else 500)
        return [each.value.decode() for records in polled.values() for each in records]

    def owned(self) -> list[int]:
        return [each.partition for each in self._consumer.assignment()]

    def commit(self) -> None:
        self._consumer.commit()

    def lag(self) -> int:
        ends = self._consumer.end_offsets(self._consumer.assignment())
        return sum(end - self._consumer.position(place) for place, end in ends.items())

    def close(self) -> None:
        self._consumer.close(autocommit=False)


def _done(answers: dict[Any, Any]) -> None:
    """Raise the errors that the library only returns."""
    (answer,) = answers.values()
    if isinstance(answer, dict):
        _done(answer)
    elif getattr(answer, "__name__", answer) not in ("OK", "NoError"):
        raise RuntimeError(answer)


class Administrator:
    """An administrator's calls."""

    def __init__(self, servers: str) -> None:
        self._admin = kafka.KafkaAdminClient(bootstrap_servers=servers)

    def create_topic(self, topic: str, partitions: int) -> None:
        self._admin.create_topics([admin.NewTopic(topic, partitions)])

    def topics(self) -> list[str]:
        return list(self._admin.list_topics())

    def partitions(self, topic: str) -> int:
        (described,) = self._admin.describe_topics([topic])
        return len(described["partitions"])

    def grow(self, topic: str, partitions: int) -> None:
        self._admin.create_partitions({topic: admin.NewPartitions(partitions)})

    def delete_topic(self, topic: str) -> None:
        self._admin.delete_topics([topic])

    def set_config(self, topic: str, key: str, value: str) -> None:
        kind = admin.ConfigResourceType.TOPIC
        _done(self._admin.alter_configs([admin.ConfigResource(kind, topic, configs={key: value})]))

    def config(self, topic: str, key: str) -> str:
        kind = admin.ConfigResourceType.TOPIC
        found = self._admin.describe_configs([admin.ConfigResource(kind, topic)])
        return str(found["topic"][topic][key]["value"])

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        place = TopicPartition(topic, partition)
        return int(self._admin.delete_records({place: before})[place]["low_watermark"])

    def log_size(self, topic: str, node: int) -> int:
        (described,) = self._admin.describe_log_dirs([topic], [node])
        return sum(
            partition["partition_size"]
            for directory in described["log_dirs"]
            for found in directory["topics"]
            for partition in found["partitions"]
        )

    def cluster(self) -> dict[str, Any]:
        described = self._admin.describe_cluster()
        nodes = [node["broker_id"] for node in described["brokers"]]
        return {"nodes": nodes, "controller": described["controller_id"]}

    def groups(self) -> list[str]:
        return [each["group_id"] for each in self._admin.list_groups()]

    def group(self, group: str) -> dict[str, Any]:
        described = self._admin.describe_groups([group])[group]
        return {"state": described["group_state"], "members": len(described["members"])}

    def delete_group(self, group: str) -> None:
        _done(self._admin.delete_groups([group]))

    def offsets(self, group: str) -> dict[int, int]:
        found = self._admin.list_group_offsets(group)[group]
        return {place.partition: found[place].offset for place in found}

    def alter_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        place = TopicPartition(topic, partition)
        wanted = {place: OffsetAndMetadata(offset, "", -1)}
        _done(self._admin.alter_group_offsets(group, wanted))

    def delete_offset(self, group: str, topic: str, partition: int) -> None:
        place = TopicPartition(topic, partition)
        _done(self._admin.delete_group_offsets(group, [place]))

    def close(self) -> None:
        self._admin.close()
