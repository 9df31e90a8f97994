"""Compare read_committed with read_uncommitted while a transaction is open. Client: aiokafka.

    python examples/isolation_levels.py localhost:9092

The topic gets a committed, an aborted and an open transaction, with one record each; each end of a
transaction takes an offset of its own. On a new broker it prints:

    read_uncommitted: committed, aborted, open
    read_committed: committed; it may read up to offset 4 of 5
    after the commit, read_committed: open
"""

import asyncio
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

SERVERS = sys.argv[1] if sys.argv[1:] else "localhost:9092"
PARTITION = TopicPartition("examples.isolation", 0)


async def values(consumer: AIOKafkaConsumer, count: int) -> str:
    """Return the values of the next records."""
    return ", ".join([(await consumer.getone()).value.decode() for _ in range(count)])


async def main() -> None:
    """Write three transactions, and read them at both levels."""
    producer = AIOKafkaProducer(bootstrap_servers=SERVERS, transactional_id="isolation-1")
    dirty = AIOKafkaConsumer(bootstrap_servers=SERVERS, isolation_level="read_uncommitted")
    clean = AIOKafkaConsumer(bootstrap_servers=SERVERS, isolation_level="read_committed")
    async with producer, dirty, clean:
        async with producer.transaction():
            await producer.send_and_wait(PARTITION.topic, b"committed")
        await producer.begin_transaction()
        await producer.send_and_wait(PARTITION.topic, b"aborted")
        await producer.abort_transaction()
        await producer.begin_transaction()
        await producer.send_and_wait(PARTITION.topic, b"open")

        for consumer in (dirty, clean):
            consumer.assign([PARTITION])
            consumer.seek(PARTITION, 0)
        print(f"read_uncommitted: {await values(dirty, 3)}")
        first = await values(clean, 1)
        stable, end = clean.last_stable_offset(PARTITION), clean.highwater(PARTITION)
        print(f"read_committed: {first}; it may read up to offset {stable} of {end}")
        await producer.commit_transaction()
        print(f"after the commit, read_committed: {await values(clean, 1)}")


asyncio.run(main())
