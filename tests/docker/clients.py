"""confluent-kafka, as a program on the host uses it."""

from collections.abc import Iterable

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.docker.engine import wait_for

SECONDS = 60.0
QUIET = {"log_level": 0}
"""Switches librdkafka's logs off: it reports every connection that breaks, as the tests intend."""
NO_CONTROLLER = {KafkaError.NOT_CONTROLLER, KafkaError.BROKER_NOT_AVAILABLE}


def create_topic(servers: str, topic: str, partitions: int = 3) -> None:
    """Create a topic with the default number of replicas of docker-compose.yml.

    Retries while a controller is being elected: librdkafka leaves that to its user.
    """
    wait_for(f"topic {topic} created", SECONDS, lambda: _created(servers, topic, partitions))


def _created(servers: str, topic: str, partitions: int) -> bool:
    admin = AdminClient({"bootstrap.servers": servers} | QUIET)
    (created,) = admin.create_topics([NewTopic(topic, partitions)]).values()
    try:
        created.result(SECONDS)
    except KafkaException as error:
        if error.args[0].code() not in NO_CONTROLLER:
            raise
        return False
    return True


def brokers(servers: str) -> dict[int, str]:
    """Return the brokers' advertised addresses by broker id."""
    found = AdminClient({"bootstrap.servers": servers} | QUIET).list_topics(timeout=SECONDS)
    return {broker.id: f"{broker.host}:{broker.port}" for broker in found.brokers.values()}


def leaders(servers: str, topic: str) -> set[int]:
    partitions = _partitions(servers, topic)
    return {partition.leader for partition in partitions.values()}


def in_sync(servers: str, topic: str) -> list[set[int]]:
    """Return the in-sync replicas of each partition."""
    return [set(partition.isrs) for partition in _partitions(servers, topic).values()]


def produce(servers: str, topic: str, values: Iterable[str]) -> None:
    """Produce values; return when all in-sync replicas have acknowledged all, else
    AssertionError."""
    write(producer(servers), topic, values)


def producer(servers: str) -> Producer:
    """Return an idempotent producer."""
    return Producer({"bootstrap.servers": servers, "enable.idempotence": True} | QUIET)


def write(producer: Producer, topic: str, values: Iterable[str]) -> None:
    """Produce values as `produce` does, with a producer that is used further."""
    failed: list[KafkaError] = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: error and failed.append(error))
    assert producer.flush(SECONDS) == 0, "not acknowledged in time"
    assert failed == []


def transactional_producer(servers: str, transactional_id: str) -> Producer:
    """Return a transactional producer that has its producer id."""
    settings = {"bootstrap.servers": servers, "transactional.id": transactional_id}
    producer = Producer(settings | QUIET)
    producer.init_transactions(SECONDS)
    return producer


def read(servers: str, topic: str) -> list[str]:
    """Return all committed records, sorted."""
    settings = {
        "bootstrap.servers": servers,
        "group.id": "reader",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
    }
    consumer = Consumer(settings | QUIET)
    unread = set(_partitions(servers, topic))
    consumer.assign([TopicPartition(topic, partition, 0) for partition in unread])
    values = []
    while unread:
        message = consumer.poll(SECONDS)
        assert message is not None, f"nothing more from partitions {unread}"
        if message.error() is None:
            values.append(message.value().decode())
        elif message.error().code() == KafkaError._PARTITION_EOF:
            unread.discard(message.partition())
    consumer.close()
    return sorted(values)


def _partitions(servers: str, topic: str):
    found = AdminClient({"bootstrap.servers": servers} | QUIET).list_topics(topic, SECONDS)
    return found.topics[topic].partitions
