"""A load from librdkafka itself: the library inside confluent-kafka's wheel, called through ctypes.

One Python call passes thousands of records, so that the broker and C code are measured. Run in its
own process: `python benchmarks/librdkafka.py produce|consume ...` prints JSON.
"""

import argparse
import ctypes as c
import glob
import json
import os
import resource
import time
from pathlib import Path

CHUNK = 10_000
CONSUMED_AT_ONCE = 1000
PRODUCER, CONSUMER = 0, 1
BEGINNING = -2


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
    import confluent_kafka

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


def client(lib: c.CDLL, kind: int, settings: dict[str, object]) -> c.c_void_p:
    conf = c.c_void_p(lib.rd_kafka_conf_new())
    error = c.create_string_buffer(512)
    for key, value in settings.items():
        if lib.rd_kafka_conf_set(conf, key.encode(), str(value).encode(), error, 512):
            raise SystemExit(f"{key}: {error.value.decode()}")
    handle = lib.rd_kafka_new(kind, conf, error, 512)
    if not handle:
        raise SystemExit(error.value.decode())
    return c.c_void_p(handle)


def connection(args: argparse.Namespace) -> dict[str, object]:
    """Return the settings of a connection: over TLS if there is an authority."""
    servers = {"bootstrap.servers": args.bootstrap}
    if not args.authority:
        return servers
    return servers | {"security.protocol": "ssl", "ssl.ca.location": args.authority}


class Watch:
    """The CPU time of this process, as cores in use, since its making."""

    def __init__(self) -> None:
        self._before = _threads()
        self.began = time.perf_counter()
        self.cores = self.busiest = 0.0
        """The cores that all threads use, and the share of one that the busiest thread uses."""

    def stop(self) -> float:
        """Return the seconds until now."""
        seconds = time.perf_counter() - self.began
        used = [now - self._before.get(thread, 0.0) for thread, now in _threads().items()]
        self.cores, self.busiest = sum(used) / seconds, max(used) / seconds
        return seconds


def _threads() -> dict[str, float]:
    """Return the CPU time of each thread in seconds."""
    files = Path("/proc/self/task").glob("*/schedstat")
    return {each.parent.name: int(each.read_text().split()[0]) / 1e9 for each in files}


def produce(args: argparse.Namespace) -> tuple[int, float, Watch]:
    lib = load()
    rk = client(
        lib,
        PRODUCER,
        {
            **connection(args),
            "batch.size": args.batch_size,
            "batch.num.messages": 1_000_000,
            "linger.ms": 5,
            "queue.buffering.max.messages": 500_000,
            "queue.buffering.max.kbytes": 256 * 1024,
            "message.max.bytes": max(args.batch_size + 1000, 1_000_000),
            "acks": args.acks,
            "compression.type": args.compression,
        },
    )
    topic = c.c_void_p(lib.rd_kafka_topic_new(rk, args.topic.encode(), None))
    payload = c.create_string_buffer(os.urandom(args.size), args.size)
    rows = (Message * args.chunk)()
    sent, watch = 0, Watch()
    while sent < args.records:
        count = min(args.chunk, args.records - sent)
        for row in rows[:count]:
            row.err, row.payload, row.len = 0, c.addressof(payload), args.size
        partition = (sent // args.chunk) % args.partitions
        offset = 0
        while offset < count:
            at = c.byref(rows, offset * c.sizeof(Message))
            taken = lib.rd_kafka_produce_batch(topic, partition, 0, at, count - offset)
            offset += taken
            if offset < count:
                lib.rd_kafka_poll(rk, 5)
        sent += count
    if lib.rd_kafka_flush(rk, 120_000):
        raise SystemExit("not everything was delivered in 120 s")
    return sent, watch.stop(), watch


def consume(args: argparse.Namespace) -> tuple[int, float, Watch]:
    lib = load()
    rk = client(
        lib,
        CONSUMER,
        {
            **connection(args),
            "group.id": "benchmark",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
            "fetch.message.max.bytes": 1024 * 1024,
            "queued.min.messages": 1_000_000,
            "queued.max.messages.kbytes": 128 * 1024,
            "check.crcs": "false",
        },
    )
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
    seen, first, watch = 0, 0, Watch()
    deadline = time.monotonic() + 120
    while seen < args.records:
        count = lib.rd_kafka_consume_batch_queue(queue, 200, rows, CONSUMED_AT_ONCE)
        for row in rows[:count]:
            seen += row.contents.err == 0
            lib.rd_kafka_message_destroy(row)
        if not first:
            # The client's first Fetch comes after half a second: the rate is that of the rest.
            first, watch = seen, Watch()
        if time.monotonic() > deadline:
            raise SystemExit(f"only {seen} of {args.records} records came in 120 s")
    return seen, watch.stop() * seen / max(seen - first, 1), watch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["produce", "consume"])
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--batch-size", type=int, default=16384)
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--chunk", type=int, default=CHUNK, help="records in turn to a partition")
    parser.add_argument("--acks", default="all")
    parser.add_argument("--compression", default="none")
    parser.add_argument("--authority", help="PEM file of the authority of brokers with TLS")
    args = parser.parse_args()
    records, seconds, watch = produce(args) if args.what == "produce" else consume(args)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    print(
        json.dumps(
            {
                "records": records,
                "bytes": records * args.size,
                "seconds": seconds,
                "client_cpu_seconds": usage.ru_utime + usage.ru_stime,
                "client_cores": watch.cores,
                "client_busiest": watch.busiest,
            }
        ),
        flush=True,
    )
    # Tearing librdkafka down is not part of the measurement.
    os._exit(0)


if __name__ == "__main__":
    main()
