"""Producing and consuming by librdkafka at full speed."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from barnabas.protocol.records.batch import read_prefix
from benchmarks import raw
from benchmarks.security import Tls
from benchmarks.systems import System, cpu_seconds

HERE = Path(__file__).parent
RECORD_BYTES = (100, 1024, 10 * 1024)
BATCH_BYTES = (16 * 1024, 1024 * 1024)
MOST_RECORDS = 1_500_000

Figures = dict[str, float]
Round = dict[str, Figures]


def librdkafka(
    system: System,
    record_bytes: int,
    batch_bytes: int,
    megabytes: int,
    tls: Tls | None = None,
) -> Round:
    """Produce and consume one topic."""
    topic = f"load-{record_bytes}-{batch_bytes}-{time.time_ns()}"
    records = min(megabytes * 1_000_000 // record_bytes, MOST_RECORDS)
    with raw.connect(system.port) as client:
        raw.create_topic(client, topic)
        name = f"{record_bytes} B in {batch_bytes // 1024} KB"
        sizes = ["--size", str(record_bytes), "--batch-size", str(batch_bytes)]
        load = ["--topic", topic, "--records", str(records), *sizes]
        port = system.port
        if tls is not None:
            port, name = tls.port, f"TLS: {name}"
            load += ["--authority", tls.authority]
        load += ["--bootstrap", f"localhost:{port}" if tls else f"127.0.0.1:{port}"]
        produced = _driven(system, "produce", load)
        batches = _batches(system.data, topic)
        produced["requests_per_s"] = batches / produced["seconds"]
        produced["cpu_us_per_request"] = produced["cpu_seconds"] / batches * 1e6
        consumed = _driven(system, "consume", load)
        raw.delete_topic(client, topic)
    return {f"produce {name}": produced, f"consume {name}": consumed}


def _driven(system: System, what: str, load: Sequence[str]) -> Figures:
    """Run the librdkafka driver once; its log goes to a temporary file."""
    before = cpu_seconds(system.pid)
    with tempfile.TemporaryFile() as log:
        command = [sys.executable, str(HERE / "librdkafka.py"), what]
        done = subprocess.run([*command, *load], stdout=subprocess.PIPE, stderr=log, check=True)
    told = json.loads(done.stdout)
    cpu = cpu_seconds(system.pid) - before
    return {
        "seconds": told["seconds"],
        "mb_per_s": told["bytes"] / told["seconds"] / 1e6,
        "cpu_seconds": cpu,
        "cpu_s_per_gb": cpu / told["bytes"] * 1e9,
        "client_cpu_seconds": told["client_cpu_seconds"],
        "client_cores": told["client_cores"],
        "client_busiest": told["client_busiest"],
    }


def _batches(data: Path, topic: str) -> int:
    """Return the number of batches, and so of requests, that partition 0 was written in."""
    count = 0
    for segment in data.rglob(f"{topic}-0/*"):
        if segment.suffix not in (".log", ".dat"):
            continue
        with segment.open("rb") as file:
            position = 0
            while len(head := os.pread(file.fileno(), 12, position)) == 12:
                size = read_prefix(head)[1]
                if size <= 12:
                    break
                position += size
                count += 1
    return count


def loads(megabytes: int) -> list[Callable[[System], Round]]:
    """Return the loads of one round."""
    return [
        partial(librdkafka, record_bytes=size, batch_bytes=batch, megabytes=megabytes)
        for batch in BATCH_BYTES
        for size in RECORD_BYTES
    ]
