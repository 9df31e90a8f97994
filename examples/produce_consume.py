"""Produce three orders, and consume them in a group. Client: kafka-python.

    python examples/produce_consume.py localhost:9092

On a new broker it prints:

    produced 3 orders
    order-1: 2 apples, at offset 0
    order-2: 1 pear, at offset 1
    order-3: 5 plums, at offset 2
    the next consumer of the group begins at offset 3
"""

import sys

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

SERVERS = sys.argv[1] if sys.argv[1:] else "localhost:9092"
TOPIC = "examples.orders"
ORDERS = {"order-1": "2 apples", "order-2": "1 pear", "order-3": "5 plums"}


def produce() -> None:
    """Produce the orders, and wait until all in-sync replicas have them."""
    producer = KafkaProducer(bootstrap_servers=SERVERS, acks="all")
    sent = [
        producer.send(TOPIC, key=key.encode(), value=text.encode()) for key, text in ORDERS.items()
    ]
    # `get` raises the error of a record that was not written.
    for each in sent:
        each.get(timeout=30)
    producer.close()
    print(f"produced {len(sent)} orders")


def consume() -> None:
    """Consume as many orders as a member of the group `packers`, then commit."""
    consumer = KafkaConsumer(
        TOPIC,
        bootstrap_servers=SERVERS,
        group_id="packers",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    for _ in ORDERS:
        record = next(consumer)
        print(f"{record.key.decode()}: {record.value.decode()}, at offset {record.offset}")
    # Committed after the work: a crash before this line repeats orders, and loses none.
    consumer.commit()
    print(f"the next consumer of the group begins at offset {committed(consumer)}")
    consumer.close()


def committed(consumer: KafkaConsumer) -> int:
    """Return the committed offset of the only partition."""
    return consumer.committed(TopicPartition(TOPIC, 0))


produce()
consume()
