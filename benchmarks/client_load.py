"""The load of one client library, in a process of its own.

The figures are the microseconds of CPU time (all threads, user and system) that the process takes
for a record. Every client has the defaults of its library, except that a batch may have as many
bytes as ours: with 16 KB the cost of a batch would hide that of a record. Connecting, metadata and
the first records are not counted. Nothing else of this folder is imported: the client may be that
of another checkout.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from time import perf_counter, process_time
from typing import Any, Final

WARM_UP: Final = 1000
"""The records before the counted ones, in a partition of their own."""
PARTITION, WARM_UP_PARTITION = 0, 1
BATCH_SIZE: Final = 512 * 1024


class Load:
    """Records of a topic, and the CPU time and the time of the clock that they take."""

    def __init__(self, servers: str, topic: str, count: int, size: int) -> None:
        self.servers, self.topic, self.count, self.value = servers, topic, count, b"x" * size

    def parts(self) -> Iterator[tuple[int, int]]:
        """Yield each partition with the bytes of its records, and start the clocks."""
        for partition, records in ((WARM_UP_PARTITION, WARM_UP), (PARTITION, self.count)):
            self._cpu, self._clock = process_time(), perf_counter()
            yield partition, records * len(self.value)

    def figures(self) -> dict[str, float]:
        cpu, clock = process_time() - self._cpu, perf_counter() - self._clock
        return {"cpu_us": cpu * 1e6 / self.count, "per_s": self.count / clock}


async def produce_with_barnabas(load: Load) -> None:
    from barnabas.client.cluster import Cluster
    from barnabas.client.producer import Producer

    async with Cluster(load.servers) as cluster, Producer(cluster) as producer:
        for partition, size in load.parts():
            for _ in range(0, size, len(load.value)):
                await producer.send(load.topic, load.value, partition=partition)
            await producer.flush()


async def consume_with_barnabas(load: Load) -> None:
    from barnabas.client.cluster import Cluster
    from barnabas.client.consumer import Consumer
    from barnabas.protocol.topic_partition import TopicPartition

    async with Cluster(load.servers) as cluster:
        consumer = Consumer(cluster)
        for partition, size in load.parts():
            consumer.assign({TopicPartition(load.topic, partition): 0})
            while size > 0:
                for message in await consumer.poll():
                    size -= len(message.value or b"")


async def produce_with_aiokafka(load: Load) -> None:
    from aiokafka import AIOKafkaProducer

    settings = {"bootstrap_servers": load.servers, "max_batch_size": BATCH_SIZE}
    async with AIOKafkaProducer(**settings) as producer:
        for partition, size in load.parts():
            for _ in range(0, size, len(load.value)):
                await producer.send(load.topic, load.value, partition=partition)
            await producer.flush()


async def consume_with_aiokafka(load: Load) -> None:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async with AIOKafkaConsumer(bootstrap_servers=load.servers) as consumer:
        for partition, size in load.parts():
            place = TopicPartition(load.topic, partition)
            consumer.assign([place])
            consumer.seek(place, 0)
            while size > 0:
                for messages in (await consumer.getmany(timeout_ms=500)).values():
                    for message in messages:
                        size -= len(message.value)


async def produce_with_kafka_python(load: Load) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=load.servers, batch_size=BATCH_SIZE)
    for partition, size in load.parts():
        for _ in range(0, size, len(load.value)):
            producer.send(load.topic, load.value, partition=partition)
        producer.flush()


async def consume_with_kafka_python(load: Load) -> None:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=load.servers)
    for partition, size in load.parts():
        place = TopicPartition(load.topic, partition)
        consumer.assign([place])
        consumer.seek(place, 0)
        while size > 0:
            for messages in consumer.poll(timeout_ms=500).values():
                for message in messages:
                    size -= len(message.value)


async def produce_with_confluent(load: Load) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": load.servers, "batch.size": BATCH_SIZE})
    for partition, size in load.parts():
        for _ in range(0, size, len(load.value)):
            while True:
                try:
                    producer.produce(load.topic, load.value, partition=partition)
                    break
                except BufferError:
                    producer.poll(0.1)
        producer.flush()


async def consume_with_confluent(load: Load) -> None:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": load.servers, "group.id": "unused"})
    for partition, size in load.parts():
        consumer.assign([TopicPartition(load.topic, partition, 0)])
        while size > 0:
            for message in consumer.consume(500, timeout=0.5):
                size -= len(message.value())
    consumer.close()


LOADS: Final[dict[str, dict[str, Callable[[Load], Coroutine[Any, Any, None]]]]] = {
    "Barnabas": {"produce": produce_with_barnabas, "consume": consume_with_barnabas},
    "aiokafka": {"produce": produce_with_aiokafka, "consume": consume_with_aiokafka},
    "kafka-python": {"produce": produce_with_kafka_python, "consume": consume_with_kafka_python},
    "confluent-kafka": {"produce": produce_with_confluent, "consume": consume_with_confluent},
}


def run(library: str, direction: str, **options: Any) -> dict[str, float]:
    """Write or read a topic with a library; return the figures."""
    load = Load(**options)
    asyncio.run(LOADS[library][direction](load))
    return load.figures()
