"""A crowd that never authenticates, against a broker in a process of its own.

    python -m tests.support.strangers 2000

prints the cost of the crowd: memory, the waits of a client that is served meanwhile, and the time
for which the last of the crowd stood; then the same waits while 1,000 connections a second come
and go, and while other clients shake hands as fast as they can. Broker, crowd and client are
processes of their own.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from barnabas.cli.processes.broker import raise_file_limit
from benchmarks.systems import create_topics
from tests.support.brokers.loop_hold import held_since_last
from tests.support.brokers.memory import resident_mb
from tests.support.brokers.process import ROOT, BrokerProcess
from tests.support.certificates import Stores
from tests.support.neighbour import TOPIC, Neighbour
from tests.support.ports import free_port

_OPENED: Final = "kafka_server_socketservermetrics_connection_creation_total"


class Cost(NamedTuple):
    """The cost of a crowd: memory in MB, times in s, and waits of the client in ms.

    They are at the 99th percentile of a second, the median over the time.
    """

    calm_p99_ms: float
    memory_mb: float
    accepted: float
    """The share of the crowd that the broker has accepted: others found its queue full."""
    came_s: float
    """The time in which the whole crowd came."""
    coming_p99_ms: float
    standing_p99_ms: float
    stood_s: float
    """The longest time for which one of them stood."""
    storm_p99_ms: float
    storm_per_s: float
    """The connections that were open within half a second, by the client's count."""
    storm_slowest_s: float
    storm_accepted: float
    """The share of them that the broker has accepted, by its own count."""
    calm_after_p99_ms: float
    handshakes_p99_ms: float
    handshakes_per_s: float
    loop_work_ms: float
    """The longest CPU time of an iteration of the broker's event loop in all of this."""


@contextmanager
def _neighbour(port: int) -> Iterator[Neighbour]:
    create_topics(f"127.0.0.1:{port}", {TOPIC: 1})
    with Neighbour(port) as neighbour:
        yield neighbour
    assert neighbour.errors == []


@contextmanager
def load(name: str, *arguments: object) -> Iterator[Iterator[dict[str, float]]]:
    """Run a load of `stranger_loads`; the result yields its lines."""
    words = [sys.executable, "-m", "tests.support.stranger_loads", name, *map(str, arguments)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        try:
            yield map(json.loads, process.stdout)
        finally:
            process.kill()


def opened(metrics_port: int) -> float:
    """Return the number of connections that a broker has accepted before authentication."""
    with urllib.request.urlopen(f"http://127.0.0.1:{metrics_port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return sum(
        float(line.split()[-1])
        for line in lines
        if line.startswith(_OPENED + "{") and ('"SECURE"' in line or '"LOGIN"' in line)
    )


def cost_of(directory: Path, size: int, seconds: float, **keys: str) -> Cost:
    """Measure what a crowd costs a broker, then a storm and handshakes, of some seconds each."""
    tls_port, sasl_port, metrics_port = free_port(), free_port(), free_port()
    stores = Stores(directory)
    stores.trust()
    broker = BrokerProcess(
        directory / "broker",
        program="tests.support.brokers.timed",
        further=[f"SECURE://localhost:{tls_port}", f"LOGIN://localhost:{sasl_port}"],
        **{
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL,LOGIN:SASL_PLAINTEXT"
            ),
            "inter.broker.listener.name": "PLAINTEXT",
            "metrics.listener": f"127.0.0.1:{metrics_port}",
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.jaas.config": (
                "org.apache.kafka.common.security.plain.PlainLoginModule required user_a='secret';"
            ),
            **stores.identity(),
            **keys,
        },
    )
    with broker, _neighbour(broker.port) as neighbour:
        found: dict[str, Any] = {"calm_p99_ms": neighbour.p99_ms_of_next(seconds)}
        held_since_last(broker.pid, broker.directory)
        found |= _crowd(broker, neighbour, tls_port, sasl_port, size)
        before, begun = opened(metrics_port), time.monotonic()
        found["accepted"] = before / size
        with load("storm", tls_port, seconds) as lines:
            told = next(lines)
        found["storm_p99_ms"] = neighbour.p99_ms(begun, time.monotonic())
        found |= {"storm_per_s": told["per_s"], "storm_slowest_s": told["slowest_s"]}
        found["calm_after_p99_ms"] = neighbour.p99_ms_of_next(seconds)
        found["storm_accepted"] = (opened(metrics_port) - before) / told["count"]
        begun = time.monotonic()
        with load("handshakes", tls_port, seconds, directory / "trust.pem") as lines:
            found["handshakes_per_s"] = next(lines)["per_s"]
        found["handshakes_p99_ms"] = neighbour.p99_ms(begun, time.monotonic())
        found["loop_work_ms"] = held_since_last(broker.pid, broker.directory).longest_work
    return Cost(**found)


def _crowd(
    broker: BrokerProcess, neighbour: Neighbour, tls_port: int, sasl_port: int, size: int
) -> dict[str, float]:
    # The peak of the memory is counted from here on.
    Path(f"/proc/{broker.pid}/clear_refs").write_text("5")
    before, begun = resident_mb(broker.pid), time.monotonic()
    with load("crowd", tls_port, sasl_port, size) as lines:
        coming, came = next(lines), time.monotonic()
        found = coming | {"coming_p99_ms": neighbour.p99_ms(begun, came)}
        found["stood_s"] = next(lines)["stood_s"]
    found["standing_p99_ms"] = neighbour.p99_ms(came, time.monotonic())
    found["memory_mb"] = resident_mb(broker.pid, "VmHWM") - before
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("size", type=int, nargs="?", default=2000)
    size = parser.parse_args().size
    raise_file_limit()
    with tempfile.TemporaryDirectory() as directory:
        cost = cost_of(Path(directory), size, 10)
    print(json.dumps(cost._asdict(), indent=1))


if __name__ == "__main__":
    main()
