"""confluent-kafka, kafka-python and aiokafka write with every codec and read each other."""

import asyncio
from collections.abc import Callable, Iterator
from typing import NamedTuple

import aiokafka
import confluent_kafka
import kafka
import pytest

from barnabas.testing import Broker

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
DEADLINE = 20.0


class Message(NamedTuple):
    """What a client writes, and must read again."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    timestamp: int


MESSAGES = [
    Message(b"key", b"value", (("h", b"1"), ("h", b"2")), 1_700_000_000_001),
    Message(None, b"without a key", (), 1_700_000_000_002),
    Message(b"", b"", (("empty", b""),), 1_700_000_000_003),
    Message(b"tombstone", None, (), 1_700_000_000_004),
    Message(b"large", bytes(range(256)) * 3000, (), 1_700_000_000_005),
    Message(b"one byte", b"x", (), 1_700_000_000_006),
]

Write = Callable[[str, str, str], None]
Read = Callable[[str, str], list[Message]]


def write_confluent(servers: str, topic: str, codec: str) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": servers, "compression.type": codec, "linger.ms": 20}
    )
    for message in MESSAGES:
        producer.produce(
            topic,
            key=message.key,
            value=message.value,
            headers=list(message.headers),
            timestamp=message.timestamp,
        )
    assert producer.flush(DEADLINE) == 0


def write_kafka_python(servers: str, topic: str, codec: str) -> None:
    producer = kafka.KafkaProducer(
        bootstrap_servers=servers,
        compression_type=None if codec == "none" else codec,
        linger_ms=20,
    )
    sent = [
        producer.send(
            topic,
            key=message.key,
            value=message.value,
            headers=list(message.headers),
            timestamp_ms=message.timestamp,
        )
        for message in MESSAGES
    ]
    for each in sent:
        each.get(DEADLINE)
    producer.close()


def write_aiokafka(servers: str, topic: str, codec: str) -> None:
    async def write() -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=servers,
            compression_type=None if codec == "none" else codec,
            linger_ms=20,
            enable_idempotence=True,
        )
        await producer.start()
        sent = [
            await producer.send(
                topic,
                key=message.key,
                value=message.value,
                headers=list(message.headers),
                timestamp_ms=message.timestamp,
            )
            for message in MESSAGES
        ]
        await asyncio.gather(*sent)
        await producer.stop()

    asyncio.run(asyncio.wait_for(write(), DEADLINE))


def read_confluent(servers: str, topic: str) -> list[Message]:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": "unused"})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    read = []
    for record in consumer.consume(len(MESSAGES), DEADLINE):
        assert record.error() is None
        headers = tuple(record.headers() or ())
        read.append(Message(record.key(), record.value(), headers, record.timestamp()[1]))
    consumer.close()
    return read


def read_kafka_python(servers: str, topic: str) -> list[Message]:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=servers, consumer_timeout_ms=int(DEADLINE * 1000), group_id=None
    )
    partition = kafka.TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    read = []
    for record in consumer:
        read.append(Message(record.key, record.value, tuple(record.headers), record.timestamp))
        if len(read) == len(MESSAGES):
            break
    consumer.close()
    return read


def read_aiokafka(servers: str, topic: str) -> list[Message]:
    async def read() -> list[Message]:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=servers, group_id=None)
        await consumer.start()
        partition = aiokafka.TopicPartition(topic, 0)
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        records = [await consumer.getone() for _ in MESSAGES]
        await consumer.stop()
        return [
            Message(record.key, record.value, tuple(record.headers), record.timestamp)
            for record in records
        ]

    return asyncio.run(asyncio.wait_for(read(), DEADLINE))


WRITERS: dict[str, Write] = {
    "confluent": write_confluent,
    "kafka-python": write_kafka_python,
    "aiokafka": write_aiokafka,
}
READERS: dict[str, Read] = {
    "confluent": read_confluent,
    "kafka-python": read_kafka_python,
    "aiokafka": read_aiokafka,
}


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("writer", WRITERS)
def test_every_client_reads_what_another_wrote(servers: str, writer: str, codec: str) -> None:
    topic = f"{writer}-{codec}"
    WRITERS[writer](servers, topic, codec)
    for read in READERS.values():
        assert read(servers, topic) == MESSAGES


def test_a_record_of_exactly_max_message_bytes_is_taken_and_a_larger_one_refused(
    servers: str,
) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": servers, "message.max.bytes": 2_000_000, "linger.ms": 0}
    )
    header, around_the_value = 61, 11
    largest = 1_048_588 - header - around_the_value
    errors: list[object] = []
    for size in (largest, largest + 1):
        producer.produce("large", bytes(size), on_delivery=lambda error, _: errors.append(error))
        producer.flush(DEADLINE)
    assert errors[0] is None
    assert errors[1].code() == confluent_kafka.KafkaError.MSG_SIZE_TOO_LARGE
