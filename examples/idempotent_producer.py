"""Produce so that a batch that is sent again is written once. Client: aiokafka.

    python examples/idempotent_producer.py localhost:9092

An idempotent producer that gets no answer sends its batch again. The broker recognises the batch
by producer id, epoch and sequence number, so it is neither written twice nor out of order. On a
new broker it prints:

    1000 measurements acknowledged, the last at offset 999
    read back: 1000 measurements, each once, in order
"""

import asyncio
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

SERVERS = sys.argv[1] if sys.argv[1:] else "localhost:9092"
TOPIC = "examples.measurements"
COUNT = 1000


async def produce() -> int:
    """Produce all measurements and return the offset of the last one."""
    async with AIOKafkaProducer(bootstrap_servers=SERVERS, enable_idempotence=True) as producer:
        # `send` queues a record; its future ends when all in-sync replicas have it.
        sent = [await producer.send(TOPIC, b"%d" % number) for number in range(COUNT)]
        acknowledged = await asyncio.gather(*sent)
    return max(each.offset for each in acknowledged)


async def read(end: int) -> list[int]:
    """Return the last measurements up to an offset."""
    partition = TopicPartition(TOPIC, 0)
    async with AIOKafkaConsumer(bootstrap_servers=SERVERS) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, end + 1 - COUNT)
        records = []
        while not records or records[-1].offset < end:
            records.append(await consumer.getone())
    return [int(record.value) for record in records]


async def main() -> None:
    """Produce, read back and compare."""
    last = await produce()
    print(f"{COUNT} measurements acknowledged, the last at offset {last}")
    found = await read(last)
    order = "each once, in order" if found == list(range(COUNT)) else "NOT as they were sent"
    print(f"read back: {len(found)} measurements, {order}")


asyncio.run(main())
