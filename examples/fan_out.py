"""Write one order to three topics in one transaction, and abort another. Client: kafka-python.

    python examples/fan_out.py localhost:9092

A read_committed consumer sees an order in all three topics, or in none. On a new broker it prints:

    order-1: committed
    order-2: aborted, the payment was refused
    order-3: committed
    examples.invoices: order-1, order-3
    examples.parcels: order-1, order-3
    examples.stock: order-1, order-3
"""

import sys

from kafka import KafkaConsumer, KafkaProducer

SERVERS = sys.argv[1] if sys.argv[1:] else "localhost:9092"
TOPICS = ("examples.invoices", "examples.parcels", "examples.stock")


class PaymentRefused(Exception):
    """The bank has refused the payment of an order."""


def pay(order: str) -> None:
    """Ask the bank; it refuses the second order."""
    if order == "order-2":
        raise PaymentRefused(order)


def place(producer: KafkaProducer, order: str) -> None:
    """Write an order to all topics; raises PaymentRefused."""
    producer.begin_transaction()
    try:
        for topic in TOPICS:
            producer.send(topic, order.encode())
        pay(order)
    except PaymentRefused:
        producer.abort_transaction()
        raise
    producer.commit_transaction()


def read(topic: str, count: int) -> list[str]:
    """Return the first committed records of a topic."""
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=SERVERS,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    found = [next(consumer).value.decode() for _ in range(count)]
    consumer.close()
    return found


def main() -> None:
    """Place three orders and read the topics."""
    producer = KafkaProducer(bootstrap_servers=SERVERS, transactional_id="shop-orders")
    producer.init_transactions()
    for order in ("order-1", "order-2", "order-3"):
        try:
            place(producer, order)
        except PaymentRefused:
            print(f"{order}: aborted, the payment was refused")
        else:
            print(f"{order}: committed")
    producer.close()
    for topic in TOPICS:
        print(f"{topic}: {', '.join(read(topic, 2))}")


main()
