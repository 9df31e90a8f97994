"""Price orders exactly once: consume, transform, produce in transactions. Client: confluent-kafka.

    python examples/exactly_once.py localhost:9092

A transaction has the priced orders and the offsets of the orders that they come from. Both are
committed, or neither is. Here the price of pears is unknown at first: the transaction is aborted,
and its orders are read again. On a new broker it prints:

    no price for pears yet: the transaction is aborted
    priced 4 orders
    2 apples cost 4
    1 pears cost 3
    5 plums cost 5
    3 apples cost 6
"""

import sys

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, Producer

SERVERS = sys.argv[1] if sys.argv[1:] else "localhost:9092"
SOURCE, TARGET = "examples.unpriced", "examples.priced"
ORDERS = ["2 apples", "1 pears", "5 plums", "3 apples"]


class PriceUnknown(Exception):
    """A fruit has no price yet."""


def price(order: str, prices: dict[str, int]) -> str:
    """Return an order with its price; raises PriceUnknown."""
    count, fruit = order.split()
    if fruit not in prices:
        raise PriceUnknown(fruit)
    return f"{order} cost {int(count) * prices[fruit]}"


def price_orders(consumer: Consumer, producer: Producer, prices: dict[str, int]) -> int:
    """Price the orders that arrive within a second in one transaction; return their number."""
    orders = [checked(each) for each in consumer.consume(100, timeout=1)]
    if not orders:
        return 0
    producer.begin_transaction()
    try:
        for order in orders:
            producer.produce(TARGET, price(order.value().decode(), prices), key=order.key())
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata()
        )
        producer.commit_transaction()
    except (PriceUnknown, KafkaException) as error:
        # Any other error of Kafka is fatal: a new producer with the same transactional.id aborts
        # the transaction, and goes on from the committed offsets.
        if isinstance(error, KafkaException) and not error.args[0].txn_requires_abort():
            raise
        producer.abort_transaction()
        rewind(consumer)
        raise
    return len(orders)


def rewind(consumer: Consumer) -> None:
    """Seek to the committed offsets: the orders of the aborted transaction are read again."""
    for partition in consumer.committed(consumer.assignment(), timeout=30):
        if partition.offset < 0:
            partition.offset = OFFSET_BEGINNING
        consumer.seek(partition)


def checked(message: Message) -> Message:
    """Return a message that is a record; raises the error that it has otherwise."""
    if message.error():
        raise KafkaException(message.error())
    return message


def read_committed(topic: str, count: int) -> list[str]:
    """Return the first committed records of a topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": SERVERS,
            "group.id": "exactly-once-report",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([topic])
    found: list[str] = []
    while len(found) < count:
        found += [checked(each).value().decode() for each in consumer.consume(1, timeout=1)]
    consumer.close()
    return found


def main() -> None:
    """Produce the orders, price them, and print the result."""
    orders = Producer({"bootstrap.servers": SERVERS})
    for order in ORDERS:
        orders.produce(SOURCE, order)
    orders.flush()

    consumer = Consumer(
        {
            "bootstrap.servers": SERVERS,
            "group.id": "pricing",
            "auto.offset.reset": "earliest",
            # The transaction commits the offsets.
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([SOURCE])
    producer = Producer({"bootstrap.servers": SERVERS, "transactional.id": "pricing-1"})
    producer.init_transactions()
    prices, done = {"apples": 2, "plums": 1}, 0
    while done < len(ORDERS):
        try:
            done += price_orders(consumer, producer, prices)
        except PriceUnknown as error:
            print(f"no price for {error} yet: the transaction is aborted")
            prices[str(error)] = 3
    consumer.close()
    print(f"priced {done} orders")
    print("\n".join(read_committed(TARGET, len(ORDERS))))


main()
