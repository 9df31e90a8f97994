"""Publish what a database has committed: a transactional outbox. Client: confluent-kafka.

    python examples/outbox.py localhost:9092 shop.sqlite

The shop writes an order and its event into one database, in one transaction. The relay publishes
the events in order. It keeps its position in Kafka, in the transaction that has the events: after a
crash at any point the next relay goes on behind the last published event. With a new broker and a
new file it prints:

    relayed 3 events
    relayed 0 events
    relayed 1 events
    order 1: apples
    order 2: pears
    order 3: plums
    order 4: figs
"""

import sqlite3
import sys

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

SERVERS = sys.argv[1] if sys.argv[1:] else "localhost:9092"
DATABASE = sys.argv[2] if sys.argv[2:] else "shop.sqlite"
TOPIC = "examples.shop-events"
POSITION = TopicPartition(TOPIC, 0)
"""The committed offset of this partition in the relay's group is the id of the next event."""


def open_database() -> sqlite3.Connection:
    """Return the database of the shop, with its tables."""
    database = sqlite3.connect(DATABASE)
    database.executescript(
        """
        CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, item TEXT);
        CREATE TABLE IF NOT EXISTS outbox (id INTEGER PRIMARY KEY, event TEXT);
        """
    )
    return database


def place_order(database: sqlite3.Connection, item: str) -> None:
    """Write an order and its event: both are in the database, or neither is."""
    with database:
        number = database.execute("INSERT INTO orders (item) VALUES (?)", [item]).lastrowid
        event = f"order {number}: {item}"
        database.execute("INSERT INTO outbox (event) VALUES (?)", [event])


class Relay:
    """A publisher of the outbox; a later one fences it, because both have one transactional id."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self._producer = Producer({"bootstrap.servers": SERVERS, "transactional.id": "shop-relay"})
        self._producer.init_transactions()
        self._group = Consumer({"bootstrap.servers": SERVERS, "group.id": "shop-relay"})

    def run_once(self) -> int:
        """Publish all new events in one transaction; return their number."""
        rows = self._database.execute(
            "SELECT id, event FROM outbox WHERE id >= ? ORDER BY id", [self._next_event()]
        ).fetchall()
        if not rows:
            return 0
        self._producer.begin_transaction()
        for _, event in rows:
            self._producer.produce(TOPIC, event, partition=0)
        position = TopicPartition(TOPIC, 0, rows[-1][0] + 1)
        self._producer.send_offsets_to_transaction(
            [position], self._group.consumer_group_metadata()
        )
        # After an error here the program ends, and the next relay knows which case it was.
        self._producer.commit_transaction()
        return len(rows)

    def _next_event(self) -> int:
        (position,) = self._group.committed([POSITION], timeout=30)
        if position.error:
            raise KafkaException(position.error)
        return max(position.offset, 0)

    def close(self) -> None:
        """Close the connections."""
        self._group.close()


def published(count: int) -> list[str]:
    """Return the first committed events of the topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": SERVERS,
            "group.id": "shop-reader",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    events: list[str] = []
    while len(events) < count:
        for message in consumer.consume(1, timeout=1):
            if message.error():
                raise KafkaException(message.error())
            events.append(message.value().decode())
    consumer.close()
    return events


def main() -> None:
    """Place orders, relay their events, and read them."""
    database = open_database()
    for item in ("apples", "pears", "plums"):
        place_order(database, item)
    relay = Relay(database)
    print(f"relayed {relay.run_once()} events")
    relay.close()

    second = Relay(database)
    print(f"relayed {second.run_once()} events")
    place_order(database, "figs")
    print(f"relayed {second.run_once()} events")
    second.close()
    (count,) = database.execute("SELECT count(*) FROM outbox").fetchone()
    print("\n".join(published(count)))


main()
