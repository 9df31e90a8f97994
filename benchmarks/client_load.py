"""The load of one client library in a process of its own: `python benchmarks/client_load.py`.

Prints the microseconds of CPU time (all threads, user and system) that the process takes for a
record. Every client has the defaults of its library, except that a batch may have as many bytes as
ours: with 16 KB the cost of a batch would hide that of a record. Connecting, metadata and the first
records are not counted.
"""

import argparse
import asyncio
import json
from collections.abc import Callable, Coroutine
from time import perf_counter, process_time
from typing import Any, Final

WARM_UP: Final = 1000
"""The records before the counted ones, in a partition of their own."""
PARTITION, WARM_UP_PARTITION = 0, 1
BATCH_SIZE: Final = 512 * 1024


class Watch:
    """The CPU time and the time of the clock since the first record that counts."""

    def start(self) -> None:
        self._cpu, self._clock = process_time(), perf_counter()

    def stop(self, records: int) -> dict[str, float]:
        cpu, clock = process_time() - self._cpu, perf_counter() - self._clock
        return {"cpu_us": cpu * 1e6 / records, "per_s": records / clock}


async def produce_with_barnabas(
    servers: str, topic: str, count: int, value: bytes, watch: Watch
) -> None:
    from barnabas.client.cluster import Cluster
    from barnabas.client.producer import Producer

    async with Cluster(servers) as cluster, Producer(cluster) as producer:
        for partition, records in ((WARM_UP_PARTITION, WARM_UP), (PARTITION, count)):
            watch.start()
            for _ in range(records):
                await producer.send(topic, value, partition=partition)
            await producer.flush()


async def consume_with_barnabas(
    servers: str, topic: str, count: int, value: bytes, watch: Watch
) -> None:
    from barnabas.client.cluster import Cluster
    from barnabas.client.consumer import Consumer
    from barnabas.protocol.topic_partition import TopicPartition

    async with Cluster(servers) as cluster:
        consumer = Consumer(cluster)
        for partition, records in ((WARM_UP_PARTITION, WARM_UP), (PARTITION, count)):
            consumer.assign({TopicPartition(topic, partition): 0})
            watch.start()
            size = 0
            while size < records * len(value):
                for message in await consumer.poll():
                    size += len(message.value or b"")


async def produce_with_aiokafka(
    servers: str, topic: str, count: int, value: bytes, watch: Watch
) -> None:
    from aiokafka import AIOKafkaProducer

    async with AIOKafkaProducer(bootstrap_servers=servers, max_batch_size=BATCH_SIZE) as producer:
        for partition, records in ((WARM_UP_PARTITION, WARM_UP), (PARTITION, count)):
            watch.start()
            for _ in range(records):
                await producer.send(topic, value, partition=partition)
            await producer.flush()


async def consume_with_aiokafka(
    servers: str, topic: str, count: int, value: bytes, watch: Watch
) -> None:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    for partition, records in ((WARM_UP_PARTITION, WARM_UP), (PARTITION, count)):
        async with AIOKafkaConsumer(bootstrap_servers=servers) as consumer:
            place = TopicPartition(topic, partition)
            consumer.assign([place])
            consumer.seek(place, 0)
            watch.start()
            size = 0
            while size < records * len(value):
                for messages in (await consumer.getmany(timeout_ms=500)).values():
                    for message in messages:
                        size += len(message.value)


async def produce_with_kafka_python(
    servers: str, topic: str, count: int, value: bytes, watch: Watch
) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=servers, batch_size=BATCH_SIZE)
    for partition, records in ((WARM_UP_PARTITION, WARM_UP), (PARTITION, count)):
        watch.start()
        for _ in range(records):
            producer.send(topic, value, partition=partition)
        producer.flush()


async def consume_with_kafka_python(
    servers: str, topic: str, count: int, value: bytes, watch: Watch
) -> None:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=servers)
    for partition, records in ((WARM_UP_PARTITION, WARM_UP), (PARTITION, count)):
        place = TopicPartition(topic, partition)
        consumer.assign([place])
        consumer.seek(place, 0)
        watch.start()
        size = 0
        while size < records * len(value):
            for messages in consumer.poll(timeout_ms=500).values():
                for message in messages:
                    size += len(message.value)


async def produce_with_confluent(
    servers: str, topic: str, count: int, value: bytes, watch: Watch
) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers, "batch.size": BATCH_SIZE})
    for partition, records in ((WARM_UP_PARTITION, WARM_UP), (PARTITION, count)):
        watch.start()
        for _ in range(records):
            while True:
                try:
                    producer.produce(topic, value, partition=partition)
                    break
                except BufferError:
                    producer.poll(0.1)
        producer.flush()


async def consume_with_confluent(
    servers: str, topic: str, count: int, value: bytes, watch: Watch
) -> None:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": servers, "group.id": "unused"})
    for partition, records in ((WARM_UP_PARTITION, WARM_UP), (PARTITION, count)):
        consumer.assign([TopicPartition(topic, partition, 0)])
        watch.start()
        size = 0
        while size < records * len(value):
            for message in consumer.consume(500, timeout=0.5):
                size += len(message.value())
    consumer.close()


Load = Callable[[str, str, int, bytes, Watch], Coroutine[Any, Any, None]]
LOADS: Final[dict[str, dict[str, Load]]] = {
    "Barnabas": {"produce": produce_with_barnabas, "consume": consume_with_barnabas},
    "aiokafka": {"produce": produce_with_aiokafka, "consume": consume_with_aiokafka},
    "kafka-python": {"produce": produce_with_kafka_python, "consume": consume_with_kafka_python},
    "confluent-kafka": {"produce": produce_with_confluent, "consume": consume_with_confluent},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("client", choices=LOADS)
    parser.add_argument("direction", choices=("produce", "consume"))
    parser.add_argument("servers")
    parser.add_argument("topic")
    parser.add_argument("count", type=int)
    parser.add_argument("size", type=int)
    args = parser.parse_args()
    watch = Watch()
    load = LOADS[args.client][args.direction]
    asyncio.run(load(args.servers, args.topic, args.count, b"x" * args.size, watch))
    print(json.dumps(watch.stop(args.count)))


if __name__ == "__main__":
    main()
