"""A transactional load from librdkafka, in its own process; prints JSON.

`one-record`: transactions of one record each, one after the other, by each of N producers.
`stream`: records at full speed, in bursts: without a pause, flushed, or as transactions.
`consume`: a topic from its beginning, by isolation level.
"""

import argparse
import json
import os
import resource
import threading
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, Producer

_TIMEOUT_S = 60.0
_LOG_LEVEL = {"log_level": 2}


def one_record(args: argparse.Namespace) -> dict[str, float]:
    taken: list[float] = []

    def work(number: int, count: int, note: Callable[[float], None]) -> None:
        producer = producers[number]
        for _ in range(count):
            began = time.perf_counter()
            producer.begin_transaction()
            producer.produce(args.topic, bytes(args.size))
            producer.commit_transaction(_TIMEOUT_S)
            note(time.perf_counter() - began)

    producers = [
        Producer(
            {
                "bootstrap.servers": args.bootstrap,
                "transactional.id": f"{args.topic}-{number}",
                "linger.ms": 0,
                **_LOG_LEVEL,
            }
        )
        for number in range(args.producers)
    ]
    for producer in producers:
        producer.init_transactions(_TIMEOUT_S)
    each = args.count // args.producers
    threads = [
        threading.Thread(target=work, args=(number, each, taken.append))
        for number in range(args.producers)
    ]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - began
    taken.sort()
    return {
        "count": len(taken),
        "seconds": seconds,
        "p50_ms": taken[len(taken) // 2] * 1e3,
        "p99_ms": taken[len(taken) * 99 // 100] * 1e3,
    }


def stream(args: argparse.Namespace) -> dict[str, float]:
    """Send bursts of a given length with a small queue, so that a flush has little left to do.

    A transaction is flushed before its commit: the time of the commit is its own.
    """
    producer = _streaming(args)
    payload = os.urandom(args.size)
    transactional, flushed = args.bursts_are == "transactions", args.bursts_are != "idempotent"
    flushes: list[float] = []
    commits: list[float] = []
    count, began = 0, time.perf_counter()
    for _ in range(args.bursts):
        if transactional:
            producer.begin_transaction()
        count += _burst(producer, args, payload)
        if flushed:
            flushes.append(_timed(lambda: _flush(producer)))
        if transactional:
            commits.append(_timed(lambda: producer.commit_transaction(_TIMEOUT_S)))
    _flush(producer)
    seconds = time.perf_counter() - began
    told = {"count": count, "seconds": seconds, "mb_per_s": count * args.size / seconds / 1e6}
    for name, taken in (("flush", sorted(flushes)), ("commit", sorted(commits))):
        if taken:
            told[f"{name}_p50_ms"] = taken[len(taken) // 2] * 1e3
            told[f"{name}_p99_ms"] = taken[len(taken) * 99 // 100] * 1e3
    return told


def _streaming(args: argparse.Namespace) -> Producer:
    """Return a producer that has its producer id, which takes librdkafka a while."""
    settings: dict[str, Any] = {
        "bootstrap.servers": args.bootstrap,
        "linger.ms": 5,
        "batch.size": 16384,
        "queue.buffering.max.messages": 500_000,
        "queue.buffering.max.kbytes": args.queue_kb,
        "enable.idempotence": True,
        **_LOG_LEVEL,
    }
    if args.bursts_are == "transactions":
        producer = Producer(settings | {"transactional.id": args.topic})
        producer.init_transactions(_TIMEOUT_S)
    else:
        producer = Producer(settings)
        producer.produce(args.topic, b"")
        _flush(producer)
    return producer


def _burst(producer: Producer, args: argparse.Namespace, payload: bytes) -> int:
    """Send records for the length of a burst; return their number."""
    count, end = 0, time.perf_counter() + args.burst_ms / 1e3
    while time.perf_counter() < end:
        for _ in range(50):
            while True:
                try:
                    producer.produce(args.topic, payload)
                    break
                except BufferError:
                    producer.poll(0.005)
        count += 50
        producer.poll(0)
    return count


def _flush(producer: Producer) -> None:
    if producer.flush(_TIMEOUT_S):
        raise SystemExit("not everything was delivered")


def _timed(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def consume(args: argparse.Namespace) -> dict[str, float]:
    consumer = Consumer(
        {
            "bootstrap.servers": args.bootstrap,
            "group.id": f"{args.topic}-{args.isolation}-{time.time_ns()}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": args.isolation,
            **_LOG_LEVEL,
        }
    )
    consumer.subscribe([args.topic])
    seen, first, began = 0, 0, time.perf_counter()
    deadline = time.monotonic() + 120
    while seen < args.count:
        seen += len([each for each in consumer.consume(10_000, 0.2) if not each.error()])
        if seen and not first:
            first, began = seen, time.perf_counter()
        if time.monotonic() > deadline:
            raise SystemExit(f"only {seen} of {args.count} records came")
    seconds = (time.perf_counter() - began) * seen / max(seen - first, 1)
    return {"count": seen, "seconds": seconds, "mb_per_s": seen * args.size / seconds / 1e6}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["one-record", "stream", "consume"])
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--producers", type=int, default=1)
    kinds = ["idempotent", "flushed", "transactions"]
    parser.add_argument("--bursts-are", choices=kinds, default="idempotent")
    parser.add_argument("--bursts", type=int, default=30)
    parser.add_argument("--burst-ms", type=int, default=100)
    parser.add_argument("--queue-kb", type=int, default=16 * 1024)
    parser.add_argument("--isolation", default="read_committed")
    args = parser.parse_args()
    told = {"one-record": one_record, "stream": stream, "consume": consume}[args.what](args)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    told["client_cpu_seconds"] = usage.ru_utime + usage.ru_stime
    print(json.dumps(told), flush=True)
    # Tearing librdkafka down is not part of the measurement.
    os._exit(0)


if __name__ == "__main__":
    main()
