"""Topics that librdkafka writes and reads, for tests of the source."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

IN_TIME_S = 30.0
_QUICK = {"log_level": 0, "retry.backoff.ms": 20, "linger.ms": 0}

Headers = list[tuple[str, bytes | None]]


class Seen(NamedTuple):
    """A record as librdkafka reads it; the timestamp is in ms, its type Kafka's number."""

    key: bytes | None
    value: bytes | None
    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    headers: Headers | None


class Topics:
    """The topics of one cluster."""

    def __init__(self, servers: str, security: Mapping[str, str] = MappingProxyType({})) -> None:
        """`security` has librdkafka's keys."""
        self.servers = servers
        self._common = {"bootstrap.servers": servers, **security}
        self._admin = AdminClient({**self._common, "log_level": 0})
        self._producers: dict[str, Producer] = {}
        self._numbers = itertools.count()

    def create(self, topic: str, partitions: int = 1, *, replicas: int = 1, **configs: str) -> None:
        """Create a topic; `configs` have underscores for the dots."""
        named = {key.replace("_", "."): value for key, value in configs.items()}
        new = NewTopic(topic, partitions, replicas, config=named)
        self._admin.create_topics([new])[topic].result(IN_TIME_S)

    def grow(self, topic: str, partitions: int) -> None:
        """Add partitions up to a number."""
        self._admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(IN_TIME_S)
        # The old ones learn of new partitions after minutes.
        self._producers.clear()

    def delete(self, topic: str) -> None:
        self._admin.delete_topics([topic])[topic].result(IN_TIME_S)

    def delete_records(self, topic: str, before: int, partition: int = 0) -> None:
        place = TopicPartition(topic, partition, before)
        for done in self._admin.delete_records([place]).values():
            done.result(IN_TIME_S)

    def write(
        self,
        topic: str,
        values: Sequence[bytes | None],
        *,
        partition: int = 0,
        key: bytes | None = None,
        headers: Headers | None = None,
        timestamp: int = 0,
        codec: str = "none",
    ) -> list[int]:
        """Write records in order; return their offsets. Timestamp 0 stands for the time now."""
        producer = self._producers.get(codec)
        if producer is None:
            config = {**self._common, "compression.type": codec, **_QUICK}
            producer = self._producers[codec] = Producer(config)
        offsets: list[int] = []
        for value in values:
            producer.produce(
                topic,
                value,
                key,
                partition,
                on_delivery=_collect(offsets),
                timestamp=timestamp,
                headers=headers,
            )
        assert producer.flush(IN_TIME_S) == 0
        return offsets

    def open_transaction(self, topic: str, values: Sequence[bytes], partition: int = 0) -> Producer:
        """Write records in a transaction, which the caller ends by the producer."""
        producer = Producer(
            {
                **self._common,
                "transactional.id": f"writer-{next(self._numbers)}",
                **_QUICK,
            }
        )
        producer.init_transactions(IN_TIME_S)
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, partition=partition)
        assert producer.flush(IN_TIME_S) == 0
        return producer

    def commit(self, topic: str, values: Sequence[bytes], partition: int = 0) -> None:
        self.open_transaction(topic, values, partition).commit_transaction(IN_TIME_S)

    def abort(self, topic: str, values: Sequence[bytes], partition: int = 0) -> None:
        self.open_transaction(topic, values, partition).abort_transaction(IN_TIME_S)

    def committed(self, group: str) -> dict[str, dict[str, int]]:
        """Return the committed offsets of a group, as a checkpoint has them."""
        wanted = ConsumerGroupTopicPartitions(group)
        (done,) = self._admin.list_consumer_group_offsets([wanted]).values()
        found: dict[str, dict[str, int]] = {}
        for each in sorted(done.result(IN_TIME_S).topic_partitions):
            found.setdefault(each.topic, {})[str(each.partition)] = each.offset
        return found

    def read(self, topic: str, partitions: int = 1, *, committed: bool = True) -> list[Seen]:
        """Return all records of a topic up to its end, by partition and offset."""
        consumer = Consumer(
            {
                **self._common,
                "group.id": "unused",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed" if committed else "read_uncommitted",
                "log_level": 0,
            }
        )
        consumer.assign(
            [TopicPartition(topic, each, OFFSET_BEGINNING) for each in range(partitions)]
        )
        found: list[Seen] = []
        left = set(range(partitions))
        try:
            while left:
                message = consumer.poll(IN_TIME_S)
                assert message is not None
                error = message.error()
                if error is None:
                    found.append(_seen(message))
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    left.discard(message.partition())
        finally:
            consumer.close()
        return sorted(found, key=lambda each: each[3:5])


def _collect(offsets: list[int]) -> Callable[[KafkaError | None, Message], None]:
    def delivered(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        offsets.append(message.offset())

    return delivered


def _seen(message: Message) -> Seen:
    kind, timestamp = message.timestamp()
    return Seen(
        message.key(),
        message.value(),
        message.topic(),
        message.partition(),
        message.offset(),
        timestamp,
        # librdkafka counts from "not available".
        kind - 1,
        message.headers(),
    )
