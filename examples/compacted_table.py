"""Keep a table in a compacted topic: the last value of each key counts. Client: confluent-kafka.

    python examples/compacted_table.py localhost:9092

A record without a value (a tombstone) deletes its key. Compaction removes older values some time
later; a reader of the whole topic gets the same table before and after. On a new broker it prints:

    wrote 6 changes
    apples: 3
    plums: 1
"""

import sys

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

SERVERS = sys.argv[1] if sys.argv[1:] else "localhost:9092"
TOPIC = "examples.prices"
CHANGES = [
    *[("apples", "2"), ("pears", "4"), ("plums", "1")],
    *[("apples", "3"), ("pears", "5"), ("pears", None)],
]


def create_table() -> None:
    """Create the topic, unless it exists."""
    admin = AdminClient({"bootstrap.servers": SERVERS})
    topic = NewTopic(TOPIC, num_partitions=3, config={"cleanup.policy": "compact"})
    try:
        admin.create_topics([topic])[TOPIC].result()
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


def write() -> None:
    """Write the changes. All changes of a key are in one partition, and so in order."""
    failed: list[KafkaError] = []
    producer = Producer({"bootstrap.servers": SERVERS, "enable.idempotence": True})
    for fruit, price in CHANGES:
        producer.produce(
            TOPIC, price, key=fruit, on_delivery=lambda error, _: error and failed.append(error)
        )
    producer.flush()
    if failed:
        raise KafkaException(failed[0])
    print(f"wrote {len(CHANGES)} changes")


def read_table() -> dict[str, str]:
    """Return the table: read every partition from its start to its end."""
    table: dict[str, str] = {}
    consumer = Consumer(
        {
            "bootstrap.servers": SERVERS,
            "group.id": "price-table",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    partitions = consumer.list_topics(TOPIC).topics[TOPIC].partitions
    consumer.assign([TopicPartition(TOPIC, each, OFFSET_BEGINNING) for each in partitions])
    unread = set(partitions)
    while unread:
        message = consumer.poll(1)
        if message is None:
            continue
        if message.error():
            if message.error().code() != KafkaError._PARTITION_EOF:
                raise KafkaException(message.error())
            unread.discard(message.partition())
        elif message.value() is None:
            table.pop(message.key().decode(), None)
        else:
            table[message.key().decode()] = message.value().decode()
    consumer.close()
    return table


create_table()
write()
for fruit, price in sorted(read_table().items()):
    print(f"{fruit}: {price}")
