"""Writes one record after the other to each partition: `python -m tests.chaos.probe`.

    ... BOOTSTRAP TOPIC PARTITIONS      until SIGTERM

A line for each record: when it was acknowledged by all replicas in sync (monotonic clock, s), its
partition, and the error that is left after all retries, if any. Each partition has a producer of
its own, so that none waits for another.
"""

import contextlib
import signal
import sys
import time
from functools import partial

from confluent_kafka import KafkaError, Message, Producer

INTERVAL_S = 0.04
IN_FLIGHT = 3
PATIENT = {
    "acks": "all",
    "linger.ms": 0,
    "delivery.timeout.ms": 120_000,
    "request.timeout.ms": 1_500,
    "socket.timeout.ms": 2_000,
    "socket.connection.setup.timeout.ms": 1_000,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 100,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "topic.metadata.refresh.fast.interval.ms": 50,
    "topic.metadata.refresh.interval.ms": 1_000,
    "log_level": 0,
}


def _answered(partition: int, error: KafkaError | None, _: Message) -> None:
    print(f"{time.monotonic():.4f} {partition} {error.name() if error else ''}", flush=True)


def write(bootstrap: str, topic: str, partitions: int) -> None:
    producers = [Producer({"bootstrap.servers": bootstrap, **PATIENT}) for _ in range(partitions)]
    ended = False

    def end(*_: object) -> None:
        nonlocal ended
        ended = True

    signal.signal(signal.SIGTERM, end)
    while not ended:
        for partition, producer in enumerate(producers):
            producer.poll(0)
            if len(producer) < IN_FLIGHT:
                done = partial(_answered, partition)
                with contextlib.suppress(BufferError):
                    producer.produce(topic, b"probe", partition=partition, on_delivery=done)
        time.sleep(INTERVAL_S)
    for producer in producers:
        producer.flush(30)


if __name__ == "__main__":
    write(sys.argv[1], sys.argv[2], int(sys.argv[3]))
