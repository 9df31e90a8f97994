"""The effect of planted batches on other clients: how long a broker's event loop is held by them.

    python -m benchmarks.record_bombs [--records 1000000]

Each line is one request: the longest time for which the loop was held while the broker worked on
it (the wall time, and the CPU time of the loop's own thread, which other processes do not change),
what the memory grew by at most, the slowest small produce into another compacted topic meanwhile,
and the seconds until the answer.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from barnabas.protocol.messages import list_offsets, produce
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.records.compression import Compression
from barnabas.protocol.records.record import Record, build_batch
from benchmarks import raw
from benchmarks.limits import create_topic, timed_broker
from tests.support.brokers.loop_hold import held_since_last
from tests.support.brokers.memory import resident_mb
from tests.support.neighbour import TOPIC, Neighbour, produced
from tests.support.planted import CODECS, NOW, SHORTEST, batch_of, bomb, crowd, packed

BOMB_BYTES = 24 << 20
RECOMPRESSED = 16 << 20
EVERY_S = 0.02
SETTLE_S = 0.3


class Attack(NamedTuple):
    """A request with a planted batch, or about one."""

    name: str
    request: bytes
    prepare: bytes | None = None
    """A request that is sent before the measurement."""


def appended(topic: str, batch: bytes) -> bytes:
    return raw.frame(produce.API, 9, produced(topic, batch))


def searched(topic: str, timestamp: int) -> bytes:
    asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    topics = [ListOffsetsTopic(name=topic, partitions=[asked])]
    return raw.frame(list_offsets.API, 7, ListOffsetsRequest(replica_id=-1, topics=topics))


def attacks(records: int) -> Iterator[Attack]:
    for codec in CODECS:
        if codec is not Compression.SNAPPY or records <= 1_000_000:
            batch = crowd(codec, records)
            topic = f"plain-{codec.name}"
            size = f"{len(batch) // 1024} KB of {codec.name}"
            yield Attack(
                f"search by time, {size}", searched(topic, NOW + 1), appended(topic, batch)
            )
    for codec in CODECS:
        batch = bomb(codec, BOMB_BYTES if codec is not Compression.SNAPPY else 16 << 20)
        yield Attack(f"append, {len(batch) // 1024} KB of {codec.name}", appended("keyed", batch))
    text = b"".join(b"%d," % (number * 7919) for number in range(RECOMPRESSED // 10))
    value = text[: RECOMPRESSED // 64]
    records_of = [Record(at, NOW, b"%d" % at, value, ()) for at in range(64)]
    batch = build_batch(records_of, compression=Compression.ZSTD, level=9)
    yield Attack(f"append to lz4, {len(batch) // 1024} KB of ZSTD", appended("to-lz4", batch))
    small = batch_of(packed(Compression.GZIP, SHORTEST * 200), 200, Compression.GZIP)
    yield Attack("append, 200 records", appended("keyed", small))


def measure(attack: Attack, port: int, pid: int, directory: Path) -> str:
    with raw.connect(port) as client:
        if attack.prepare is not None:
            client.exchange(attack.prepare)
        with Neighbour(port, every_s=EVERY_S) as neighbour:
            time.sleep(SETTLE_S)
            before = resident_mb(pid)
            held_since_last(pid, directory)
            began = time.monotonic()
            client.exchange(attack.request)
            took = time.monotonic() - began
            time.sleep(SETTLE_S)
            held = held_since_last(pid, directory)
            slowest = neighbour.times(began, time.monotonic())[-1]
        grown = max(0.0, resident_mb(pid, "VmHWM") - before)
    return (
        f"| {attack.name} | {held.longest:.0f} | {held.longest_work:.0f} | {grown:.0f} "
        f"| {slowest * 1000:.0f} | {took:.2f} |"
    )


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--records", type=int, default=1_000_000)
    count = options.parse_args().records
    print("| request | loop held, ms | of it CPU, ms | memory, MB | neighbour, ms | answer, s |")
    print("|---|--:|--:|--:|--:|--:|")
    show: Callable[[str], None] = lambda line: print(line, flush=True)  # noqa: E731
    for attack in attacks(count):
        with tempfile.TemporaryDirectory() as path:
            # Each has a broker of its own: the greatest memory is that of the process.
            show(attacked(attack, Path(path)))


def attacked(attack: Attack, directory: Path) -> str:
    """Measure a request to a new broker; return the line of the table."""
    with (
        timed_broker(directory, message_max_bytes=str(4 << 20)) as broker,
        raw.connect(broker.port) as client,
    ):
        for topic in (TOPIC, "keyed"):
            create_topic(client, topic, cleanup_policy="compact")
        create_topic(client, "to-lz4", compression_type="lz4", compression_lz4_level="12")
        for codec in CODECS:
            create_topic(client, f"plain-{codec.name}")
        return measure(attack, broker.port, broker.pid, broker.directory)


if __name__ == "__main__":
    main()
