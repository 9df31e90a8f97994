"""A transactional load from librdkafka, in its own process; prints JSON.

`one-record`: transactions of one record each, one after the other, by each of N producers.
`stream`: records at full speed, in transactions of a given length or in none.
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
    settings: dict[str, Any] = {
        "bootstrap.servers": args.bootstrap,
        "linger.ms": 5,
        "batch.size": 16384,
        "queue.buffering.max.messages": 500_000,
        "enable.idempotence": args.idempotent or args.transaction_ms > 0,
        **_LOG_LEVEL,
    }
    if args.transaction_ms:
        settings["transactional.id"] = args.topic
    producer = Producer(settings)
    commits: list[float] = []
    if args.transaction_ms:
        producer.init_transactions(_TIMEOUT_S)
        producer.begin_transaction()
    else:
        # librdkafka takes a while to get a producer id.
        producer.produce(args.topic, b"")
        producer.flush(_TIMEOUT_S)
    payload = os.urandom(args.size)
    began = opened = time.perf_counter()
    for number in range(args.count):
        while True:
            try:
                producer.produce(args.topic, payload)
                break
            except BufferError:
                producer.poll(0.005)
        if number % 50 == 0:
            producer.poll(0)
            if args.transaction_ms and time.perf_counter() - opened >= args.transaction_ms / 1000:
                at = time.perf_counter()
                producer.commit_transaction(_TIMEOUT_S)
                producer.begin_transaction()
                opened = time.perf_counter()
                commits.append(opened - at)
    if args.transaction_ms:
        producer.commit_transaction(_TIMEOUT_S)
    elif producer.flush(_TIMEOUT_S):
        raise SystemExit("not everything was delivered")
    seconds = time.perf_counter() - began
    commits.sort()
    mb_per_s = args.count * args.size / seconds / 1e6
    told = {"count": args.count, "seconds": seconds, "mb_per_s": mb_per_s}
    if commits:
        told["commit_p50_ms"] = commits[len(commits) // 2] * 1e3
        told["commit_p99_ms"] = commits[len(commits) * 99 // 100] * 1e3
    return told


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
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--producers", type=int, default=1)
    parser.add_argument("--transaction-ms", type=int, default=0)
    parser.add_argument("--idempotent", action="store_true")
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
