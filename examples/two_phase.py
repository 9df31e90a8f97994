"""Commit to a database and to Kafka in one atomic step (KIP-939). Client: barnabas.client.

    python examples/two_phase.py localhost:9092 bank.sqlite

The brokers need `transaction.two.phase.commit.enable=true`. The producer prepares its transaction,
and the database stores the booking together with the name of that transaction: this commit decides.
Then the transaction in Kafka is committed, by the same process or by a later one. Here the process
crashes in between. With a new broker and a new file it prints:

    the database has the booking, and the process crashes
    in the topic: nothing
    the next process finds a prepared transaction
    in the topic: 100 from Alice to Bob
"""

import asyncio
import sqlite3
import sys

from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Consumer
from barnabas.client.offsets import EARLIEST
from barnabas.client.transactional_producer import (
    PreparedTransaction,
    State,
    TransactionalProducer,
)
from barnabas.protocol.topic_partition import TopicPartition

SERVERS = sys.argv[1] if sys.argv[1:] else "localhost:9092"
DATABASE = sys.argv[2] if sys.argv[2:] else "bank.sqlite"
TOPIC = "examples.bookings"
TRANSACTIONAL_ID = "bank-1"
NOTHING_DECIDED = PreparedTransaction(0, 0)


def open_database() -> sqlite3.Connection:
    """Return the database of the bank, with its tables."""
    database = sqlite3.connect(DATABASE)
    database.executescript(
        """
        CREATE TABLE IF NOT EXISTS bookings (text TEXT);
        CREATE TABLE IF NOT EXISTS decided (producer TEXT PRIMARY KEY, prepared TEXT);
        """
    )
    return database


def decide(database: sqlite3.Connection, booking: str, prepared: PreparedTransaction) -> None:
    """Store a booking and the prepared transaction that has its record, or neither."""
    with database:
        database.execute("INSERT INTO bookings VALUES (?)", [booking])
        row = (TRANSACTIONAL_ID, str(prepared))
        database.execute("INSERT OR REPLACE INTO decided VALUES (?, ?)", row)


def last_decided(database: sqlite3.Connection) -> PreparedTransaction:
    """Return the last transaction that the database has decided to commit."""
    query = "SELECT prepared FROM decided WHERE producer = ?"
    row = database.execute(query, [TRANSACTIONAL_ID]).fetchone()
    return PreparedTransaction.parse(row[0]) if row else NOTHING_DECIDED


async def book(producer: TransactionalProducer, database: sqlite3.Connection, text: str) -> None:
    """Send a booking, and decide in the database; the caller completes the transaction."""
    await producer.begin_transaction()
    await producer.send(TOPIC, text.encode())
    decide(database, text, await producer.prepare_transaction())


async def recover(producer: TransactionalProducer, database: sqlite3.Connection) -> None:
    """Complete the transaction that an earlier process has left: as the database has decided."""
    await producer.init_transactions(keep_prepared=True)
    if producer.state is State.PREPARED:
        print("the next process finds a prepared transaction")
        await producer.complete_transaction(last_decided(database))


async def show_topic(cluster: Cluster) -> None:
    """Print the records that a read_committed consumer is given."""
    consumer = Consumer(cluster)
    partition = TopicPartition(TOPIC, 0)
    consumer.assign({partition: EARLIEST})
    found = await consumer.poll()
    while not consumer.at_end(partition):
        found += await consumer.poll()
    texts = [(each.value or b"").decode() for each in found]
    print(f"in the topic: {', '.join(texts) or 'nothing'}")


async def main() -> None:
    """Book, crash before the commit in Kafka, and recover."""
    database = open_database()
    async with Cluster(SERVERS) as cluster:
        async with TransactionalProducer(cluster, TRANSACTIONAL_ID, two_phase=True) as producer:
            await recover(producer, database)
            await book(producer, database, "100 from Alice to Bob")
            print("the database has the booking, and the process crashes")
        await show_topic(cluster)
        async with TransactionalProducer(cluster, TRANSACTIONAL_ID, two_phase=True) as producer:
            await recover(producer, database)
        await show_topic(cluster)


asyncio.run(main())
