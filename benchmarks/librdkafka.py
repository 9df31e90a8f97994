"""A load from librdkafka in a process of its own: `python benchmarks/librdkafka.py LOAD ...`.

Prints JSON: the count of records or transactions, the seconds, and what the client took.

`produce`, `consume`: a topic at full speed. The library inside confluent-kafka's wheel is called
through ctypes: one Python call passes thousands of records, so that the broker and C code are
measured.
`one-record`: transactions of one record each, one after the other, by each of N producers.
`stream`: records at full speed, in bursts: without a pause, flushed, or as transactions.
`isolated`: a topic from its beginning, by isolation level.
"""

import argparse
import ctypes as c
import glob
import json
import os
import resource
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import confluent_kafka

CHUNK = 10_000
CONSUMED_AT_ONCE = 1000
PRODUCER, CONSUMER = 0, 1
BEGINNING = -2
TIMEOUT_S = 120.0
BURST_S = 0.1
QUEUE_KB = 16 * 1024
"""A small queue, so that a flush has little left to do."""

Figures = dict[str, float]


class Message(c.Structure):
    """`rd_kafka_message_t`."""

    _fields_ = [
        ("err", c.c_int),
        ("rkt", c.c_void_p),
        ("partition", c.c_int32),
        ("payload", c.c_void_p),
        ("len", c.c_size_t),
        ("key", c.c_void_p),
        ("key_len", c.c_size_t),
        ("offset", c.c_int64),
        ("_private", c.c_void_p),
    ]


def load() -> c.CDLL:
    where = os.path.dirname(confluent_kafka.__file__) + ".libs/librdkafka*"
    lib = c.CDLL(glob.glob(where)[0])
    pointers = (
        "conf_new new topic_new queue_get_consumer topic_partition_list_new "
        "topic_partition_list_add"
    )
    for name in pointers.split():
        getattr(lib, f"rd_kafka_{name}").restype = c.c_void_p
    lib.rd_kafka_consume_batch_queue.restype = c.c_ssize_t
    return lib


def client(
    lib: c.CDLL, kind: int, args: argparse.Namespace, settings: dict[str, object]
) -> c.c_void_p:
    """Make a client, which speaks TLS if there is an authority."""
    conf = c.c_void_p(lib.rd_kafka_conf_new())
    error = c.create_string_buffer(512)
    settings = {"bootstrap.servers": args.bootstrap, **settings}
    if args.authority:
        settings |= {"security.protocol": "ssl", "ssl.ca.location": args.authority}
    for key, value in settings.items():
        if lib.rd_kafka_conf_set(conf, key.encode(), str(value).encode(), error, 512):
            raise SystemExit(f"{key}: {error.value.decode()}")
    handle = lib.rd_kafka_new(kind, conf, error, 512)
    if not handle:
        raise SystemExit(error.value.decode())
    return c.c_void_p(handle)


class Watch:
    """The CPU time of this process, as cores in use, since its making."""

    def __init__(self) -> None:
        self._before = _threads()
        self._began = time.perf_counter()

    def stop(self, count: int) -> Figures:
        """Return the seconds until now, the cores that all threads use, and the share of one that
        the busiest thread uses."""
        seconds = time.perf_counter() - self._began
        used = [now - self._before.get(thread, 0.0) for thread, now in _threads().items()]
        cores, busiest = sum(used) / seconds, max(used) / seconds
        figures = {"count": count, "seconds": seconds}
        return figures | {"client_cores": cores, "client_busiest": busiest}


def _threads() -> dict[str, float]:
    """Return the CPU time of each thread in seconds."""
    files = Path("/proc/self/task").glob("*/schedstat")
    return {each.parent.name: int(each.read_text().split()[0]) / 1e9 for each in files}


def produce(args: argparse.Namespace) -> Figures:
    lib = load()
    settings = {
        "batch.size": args.batch_size,
        "batch.num.messages": 1_000_000,
        "linger.ms": 5,
        "queue.buffering.max.messages": 500_000,
        "queue.buffering.max.kbytes": 256 * 1024,
        "message.max.bytes": max(args.batch_size + 1000, 1_000_000),
        "acks": "all",
    }
    rk = client(lib, PRODUCER, args, settings)
    topic = c.c_void_p(lib.rd_kafka_topic_new(rk, args.topic.encode(), None))
    payload = c.create_string_buffer(os.urandom(args.size), args.size)
    rows = (Message * args.chunk)()
    sent, watch = 0, Watch()
    while sent < args.count:
        count = min(args.chunk, args.count - sent)
        for row in rows[:count]:
            row.err, row.payload, row.len = 0, c.addressof(payload), args.size
        partition = (sent // args.chunk) % args.partitions
        offset = 0
        while offset < count:
            at = c.byref(rows, offset * c.sizeof(Message))
            offset += lib.rd_kafka_produce_batch(topic, partition, 0, at, count - offset)
            if offset < count:
                lib.rd_kafka_poll(rk, 5)
        sent += count
    if lib.rd_kafka_flush(rk, int(TIMEOUT_S * 1000)):
        raise SystemExit("not everything was delivered in time")
    return watch.stop(sent)


def consume(args: argparse.Namespace) -> Figures:
    lib = load()
    settings = {
        "group.id": "benchmark",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": "false",
        "fetch.message.max.bytes": 1024 * 1024,
        "queued.min.messages": 1_000_000,
        "queued.max.messages.kbytes": 128 * 1024,
        "check.crcs": "false",
    }
    rk = client(lib, CONSUMER, args, settings)
    wanted = c.c_void_p(lib.rd_kafka_topic_partition_list_new(args.partitions))
    for partition in range(args.partitions):
        lib.rd_kafka_topic_partition_list_add(wanted, args.topic.encode(), partition)
        # With a start offset the consumer needs no group coordinator.
        lib.rd_kafka_topic_partition_list_set_offset(
            wanted, args.topic.encode(), partition, c.c_int64(BEGINNING)
        )
    lib.rd_kafka_poll_set_consumer(rk)
    lib.rd_kafka_assign(rk, wanted)
    queue = c.c_void_p(lib.rd_kafka_queue_get_consumer(rk))
    rows = (c.POINTER(Message) * CONSUMED_AT_ONCE)()

    def more() -> int:
        count = lib.rd_kafka_consume_batch_queue(queue, 200, rows, CONSUMED_AT_ONCE)
        records = 0
        for row in rows[:count]:
            records += row.contents.err == 0
            lib.rd_kafka_message_destroy(row)
        return records

    return _read(args.count, more)


def isolated(args: argparse.Namespace) -> Figures:
    settings = {
        "group.id": f"{args.topic}-{args.isolation}-{time.time_ns()}",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "isolation.level": args.isolation,
    }
    consumer = confluent_kafka.Consumer(_quiet(args) | settings)
    consumer.subscribe([args.topic])

    def more() -> int:
        return len([each for each in consumer.consume(10_000, 0.2) if not each.error()])

    return _with_rate(_read(args.count, more), args)


def _read(count: int, more: Callable[[], int]) -> Figures:
    """Read so many records. The client's first Fetch comes late: the rate is that of the rest."""
    seen, first, watch = 0, 0, Watch()
    deadline = time.monotonic() + TIMEOUT_S
    while seen < count:
        seen += more()
        if seen and not first:
            first, watch = seen, Watch()
        if time.monotonic() > deadline:
            raise SystemExit(f"only {seen} of {count} records came in time")
    found = watch.stop(seen)
    found["seconds"] *= seen / max(seen - first, 1)
    return found


# -- transactions ----------------------------------------------------------------------------------


def _quiet(args: argparse.Namespace) -> dict[str, Any]:
    return {"bootstrap.servers": args.bootstrap, "log_level": 2}


def _producer(settings: dict[str, Any], transactional_id: str) -> Any:
    producer = confluent_kafka.Producer(settings | {"transactional.id": transactional_id})
    producer.init_transactions(TIMEOUT_S)
    return producer


def one_record(args: argparse.Namespace) -> Figures:
    taken: list[float] = []
    settings = _quiet(args) | {"linger.ms": 0}
    producers = [_producer(settings, f"{args.topic}-{n}") for n in range(args.producers)]

    def work(producer: Any) -> None:
        for _ in range(args.count // args.producers):
            began = time.perf_counter()
            producer.begin_transaction()
            producer.produce(args.topic, bytes(args.size))
            producer.commit_transaction(TIMEOUT_S)
            taken.append(time.perf_counter() - began)

    threads = [threading.Thread(target=work, args=(each,)) for each in producers]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    told = {"count": len(taken), "seconds": time.perf_counter() - began}
    return told | _percentiles("", taken)


def stream(args: argparse.Namespace) -> Figures:
    """Send bursts of a given length.

    A transaction is flushed before its commit: the time of the commit is its own.
    """
    settings = _quiet(args) | {
        "linger.ms": 5,
        "batch.size": 16384,
        "queue.buffering.max.messages": 500_000,
        "queue.buffering.max.kbytes": QUEUE_KB,
        "enable.idempotence": True,
    }
    transactional, flushed = args.bursts_are == "transactions", args.bursts_are != "idempotent"
    if transactional:
        producer = _producer(settings, args.topic)
    else:
        # It takes librdkafka a while to get its producer id.
        producer = confluent_kafka.Producer(settings)
        producer.produce(args.topic, b"")
        _flush(producer)
    payload = os.urandom(args.size)
    flushes: list[float] = []
    commits: list[float] = []
    count, began = 0, time.perf_counter()
    for _ in range(args.bursts):
        if transactional:
            producer.begin_transaction()
        count += _burst(producer, args.topic, payload)
        if flushed:
            flushes.append(_timed(lambda: _flush(producer)))
        if transactional:
            commits.append(_timed(lambda: producer.commit_transaction(TIMEOUT_S)))
    _flush(producer)
    told = _with_rate({"count": count, "seconds": time.perf_counter() - began}, args)
    return told | _percentiles("flush_", flushes) | _percentiles("commit_", commits)


def _burst(producer: Any, topic: str, payload: bytes) -> int:
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


def _flush(producer: Any) -> None:
    if producer.flush(TIMEOUT_S):
        raise SystemExit("not everything was delivered in time")


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _percentiles(name: str, taken: Sequence[float]) -> Figures:
    at = {"p50": len(taken) // 2, "p99": len(taken) * 99 // 100}
    ordered = sorted(taken)
    return {f"{name}{key}_ms": ordered[index] * 1e3 for key, index in at.items() if taken}


def _with_rate(told: Figures, args: argparse.Namespace) -> Figures:
    return told | {"mb_per_s": told["count"] * args.size / told["seconds"] / 1e6}


LOADS = {
    "produce": produce,
    "consume": consume,
    "one-record": one_record,
    "stream": stream,
    "isolated": isolated,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("load", choices=LOADS)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=16384)
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--chunk", type=int, default=CHUNK, help="records in turn to a partition")
    parser.add_argument("--authority", help="PEM file of the authority of brokers with TLS")
    parser.add_argument("--producers", type=int, default=1)
    kinds = ["idempotent", "flushed", "transactions"]
    parser.add_argument("--bursts-are", choices=kinds, default="idempotent")
    parser.add_argument("--bursts", type=int, default=30)
    parser.add_argument("--isolation", default="read_committed")
    args = parser.parse_args()
    told = LOADS[args.load](args)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    told["client_cpu_seconds"] = usage.ru_utime + usage.ru_stime
    print(json.dumps(told), flush=True)
    # Tearing librdkafka down is not part of the measurement.
    os._exit(0)


if __name__ == "__main__":
    main()
