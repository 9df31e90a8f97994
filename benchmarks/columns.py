"""Record batches from and to Arrow columns, beside the record-by-record decoder and encoder.

    python -m benchmarks.columns

Prints records per second of CPU time of one core, the best of several alternating rounds. Exits
with code 1 if a decoder of uncompressed batches misses its aim: 1.6 M/s of 100 bytes, 1.0 M/s of
1 KB.
"""

import random
import sys
from collections.abc import Callable
from time import process_time
from typing import NamedTuple

import pyarrow as pa

from barnabas.client.batches import FetchedBatches
from barnabas.pipeline.columns.decode import decode
from barnabas.pipeline.columns.encode import encode
from barnabas.pipeline.columns.partitioner import Partitioner
from barnabas.protocol.records.batch import iter_headers
from barnabas.protocol.records.compression import Compression
from barnabas.protocol.records.record import Record, build_batch, iter_records

AIMS = {100: 1.6, 1000: 1.0}
ROUNDS = 7
FETCHED_BYTES = 1024 * 1024
BATCH_BYTES = 16 * 1024
"""The size of a batch of the Java client, before its compression."""
NOW_MS = 1_700_000_000_000
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class Case(NamedTuple):
    """Records of one size; half of each value can be compressed."""

    size: int
    codec: Compression
    with_headers: bool

    def __str__(self) -> str:
        headers = ", 2 headers" if self.with_headers else ""
        return f"{self.size} B, {self.codec.name.lower()}{headers}"

    def records(self) -> list[Record]:
        draw = random.Random(self.size)
        headers = (("trace", b"12345678"), ("empty", None)) if self.with_headers else ()
        half = self.size // 2
        return [
            Record(i, NOW_MS + i, b"key-%d" % i, draw.randbytes(half) + bytes(half), headers)
            for i in range(FETCHED_BYTES // self.size)
        ]


def fetched_from(case: Case, records: list[Record]) -> FetchedBatches:
    step = max(BATCH_BYTES // case.size, 1)
    batches = [
        build_batch(records[first : first + step], compression=case.codec)
        for first in range(0, len(records), step)
    ]
    data = memoryview(b"".join(batches))
    return FetchedBatches(data, list(iter_headers(data)), len(records), 0, 0, 0)


def decoders(case: Case, records: list[Record]) -> tuple[Callable[[], int], Callable[[], int]]:
    fetched = fetched_from(case, records)

    def by_columns() -> int:
        found = decode(
            [fetched], "topic", 0, 0, len(records), headers=case.with_headers, report=print
        )
        return sum(batch.num_rows for batch in found)

    def one_by_one() -> int:
        return sum(
            1 for at, header in fetched.visible for _ in iter_records(fetched.data, at, header)
        )

    return by_columns, one_by_one


def encoders(case: Case, records: list[Record]) -> tuple[Callable[[], int], Callable[[], int]]:
    keys = pa.array([record.key for record in records], pa.binary())
    values = pa.array([record.value for record in records], pa.binary())
    times = pa.array([record.timestamp for record in records], pa.int64())
    headers = [[{"key": key, "value": value} for key, value in each.headers] for each in records]
    given = pa.array(headers, HEADERS) if case.with_headers else None

    def by_columns() -> int:
        Partitioner(16).choose(keys, values)
        batches = encode(
            keys, values, given, times, compression=case.codec, max_batch_bytes=512 * 1024
        )
        return sum(batch.count for batch in batches)

    def one_by_one() -> int:
        build_batch(records, compression=case.codec)
        return len(records)

    return by_columns, one_by_one


def rates(*functions: Callable[[], int]) -> list[float]:
    """Return the best rate of each function in millions per second; they run in turn."""
    best = [0.0] * len(functions)
    for _ in range(ROUNDS):
        for index, function in enumerate(functions):
            began = process_time()
            count = function()
            best[index] = max(best[index], count / (process_time() - began) / 1e6)
    return best


def main() -> int:
    cases = [Case(size, codec, False) for size in AIMS for codec in Compression]
    cases += [Case(size, Compression.NONE, True) for size in AIMS]
    missed = 0
    for name, make in (("decode", decoders), ("encode", encoders)):
        print(f"{name:28}  by columns  one by one   (M records/s)")
        for case in cases:
            columns, single = rates(*make(case, case.records()))
            print(f"  {case!s:26}{columns:12.2f}{single:12.2f}")
            plain = make is decoders and not case.codec and not case.with_headers
            missed += plain and columns < AIMS[case.size]
    return min(missed, 1)


if __name__ == "__main__":
    sys.exit(main())
