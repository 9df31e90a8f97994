"""Loads from librdkafka, each in a process of its own.

`produce`, `consume`: a topic at full speed. One Python call passes thousands of records, so that
the broker and C code are measured.
`one_record`: transactions of one record each, one after the other, by each of N producers.
`stream`: records at full speed, in bursts that are flushed, perhaps as transactions.
"""

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from benchmarks.measures import SETTINGS, Figures, percentiles

CHUNK, CONSUMED_AT_ONCE = 10_000, 1_000
TIMEOUT_S = 120.0
BURST_S = 0.1


class Watch:
    """The time since its making, and the CPU time of this process."""

    def __init__(self) -> None:
        self._cpu, self._began = time.process_time(), time.perf_counter()

    def stop(self, count: int, size: int) -> Figures:
        """Return the rate until now of records of so many bytes, and the cores in use."""
        seconds = time.perf_counter() - self._began
        return {
            "count": count,
            "seconds": seconds,
            "mb_per_s": count * size / seconds / 1e6,
            "client_cores": (time.process_time() - self._cpu) / seconds,
        }


def _settings(load: str, servers: str, authority: str = "") -> dict[str, Any]:
    """Return those of a client, which speaks TLS if there is the file of an authority."""
    tls = {"security.protocol": "ssl", "ssl.ca.location": authority} if authority else {}
    return {"bootstrap.servers": servers, "log_level": 2, **SETTINGS["clients"][load], **tls}


def produce(
    servers: str,
    topic: str,
    count: int,
    size: int,
    batch_size: int = 16384,
    partitions: int = 1,
    authority: str = "",
) -> Figures:
    settings = _settings("produce", servers, authority)
    most = max(batch_size + 1000, 1_000_000)
    producer = Producer(settings | {"batch.size": batch_size, "message.max.bytes": most})
    chunk = min(CHUNK, max(1, count // partitions))
    rows = [{"value": os.urandom(size)}] * chunk
    watch = Watch()
    for number, first in enumerate(range(0, count, chunk)):
        left = min(chunk, count - first)
        while left:
            left -= producer.produce_batch(topic, rows[:left], partition=number % partitions)
            if left:
                producer.poll(0.005)
    _flush(producer)
    return watch.stop(count, size)


def consume(servers: str, topic: str, count: int, size: int, authority: str = "") -> Figures:
    """Read partition 0. The client's first Fetch comes late: the rate is that of the rest."""
    consumer = Consumer(_settings("consume", servers, authority))
    # With a start offset the consumer needs no group coordinator.
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    seen, first, watch = 0, 0, Watch()
    deadline = time.monotonic() + TIMEOUT_S
    while seen < count:
        seen += sum(not each.error() for each in consumer.consume(CONSUMED_AT_ONCE, 0.2))
        if seen and not first:
            first, watch = seen, Watch()
        if time.monotonic() > deadline:
            raise TimeoutError(f"only {seen} of {count} records came in time")
    rest = seen - first or seen
    found = watch.stop(rest, size)
    return found | {"count": seen, "seconds": found["seconds"] * seen / rest}


# -- transactions ----------------------------------------------------------------------------------


def _transactional(settings: dict[str, Any], transactional_id: str) -> Producer:
    producer = Producer(settings | {"transactional.id": transactional_id})
    producer.init_transactions(TIMEOUT_S)
    return producer


def one_record(servers: str, topic: str, count: int, producers: int) -> Figures:
    settings = _settings("one_record", servers)
    several = [_transactional(settings, f"{topic}-{number}") for number in range(producers)]

    def work(producer: Producer) -> list[float]:
        return [_timed(partial(_one_record, producer, topic)) for _ in range(count // producers)]

    watch = Watch()
    with ThreadPoolExecutor(producers) as pool:
        taken = [each for some in pool.map(work, several) for each in some]
    return watch.stop(len(taken), 100) | percentiles(taken, "ms")


def _one_record(producer: Producer, topic: str) -> None:
    producer.begin_transaction()
    producer.produce(topic, bytes(100))
    producer.commit_transaction(TIMEOUT_S)


def stream(servers: str, topic: str, size: int, bursts: int, transactional: bool) -> Figures:
    """Send bursts of a given length, each flushed: the time of a commit behind it is its own."""
    settings = _settings("stream", servers)
    if transactional:
        producer = _transactional(settings, topic)
    else:
        # It takes librdkafka a while to get its producer id.
        producer = Producer(settings)
        producer.produce(topic, b"")
        _flush(producer)
    payload = os.urandom(size)
    flushes: list[float] = []
    commits: list[float] = []
    count, watch = 0, Watch()
    for _ in range(bursts):
        if transactional:
            producer.begin_transaction()
        count += _burst(producer, topic, payload)
        flushes.append(_timed(lambda: _flush(producer)))
        if transactional:
            commits.append(_timed(lambda: producer.commit_transaction(TIMEOUT_S)))
    found = watch.stop(count, size)
    return found | percentiles(flushes, "ms", "flush_") | percentiles(commits, "ms", "commit_")


def _burst(producer: Producer, topic: str, payload: bytes) -> int:
    """Send records for the length of a burst; return their number."""
    count, end = 0, time.perf_counter() + BURST_S
    while time.perf_counter() < end:
        for _ in range(50):
            while True:
                try:
                    producer.produce(topic, payload)
                    break
                except BufferError:
                    producer.poll(0.005)
        count += 50
        producer.poll(0)
    return count


def _flush(producer: Producer) -> None:
    if producer.flush(TIMEOUT_S):
        raise TimeoutError("not everything was delivered in time")


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
