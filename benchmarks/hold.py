"""The longest time for which one request holds a broker's event loop.

The time is CPU time of the loop's thread in the longest iteration
(`tests/support/brokers/loop_hold`).
"""

from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from barnabas.broker.routes import API_TABLE, ApiRow
from barnabas.protocol.messages.produce import ProduceRequest
from benchmarks import raw
from benchmarks.measures import Figures
from tests.support.brokers.loop_hold import held_since_last
from tests.support.brokers.memory import resident_mb
from tests.support.brokers.process import BrokerProcess
from tests.support.brokers.timed_member import EPOCHS
from tests.support.large_messages import around, arrays, large_message
from tests.support.ports import free_port

BETWEEN = {"Fetch", "WriteTxnMarkers", "OffsetForLeaderEpoch"}
"""APIs that brokers send to each other and clients too."""


def measure(options: Namespace, directory: Path) -> Iterator[Figures]:
    """Send a request for each API and each array of its newest version, which has as many elements
    as a broker accepts, all of them equal, and then all of them distinct.

    With `--listener brokers` those of brokers go to the inter-broker listener, with the epochs of
    the controller and of the broker.
    """
    between = options.listener == "brokers"
    made, port = _made(directory / "broker", between)
    with made as broker:
        for row in API_TABLE:
            versions = _versions(row, between)
            if versions and options.only in ("", row.api.name):
                for path in arrays(row.api.request, versions[-1]):
                    for distinct in (False, True):
                        yield _held(broker, port, row, versions[-1], path, distinct=distinct)
        yield {"memory of the broker, MB": resident_mb(broker.pid)}


def _made(directory: Path, between: bool) -> tuple[BrokerProcess, int]:
    """Return a broker, and the port that gets the requests."""
    if not between:
        broker = BrokerProcess(directory, program="tests.support.brokers.timed")
        return broker, broker.port
    port, clients = free_port(), free_port()
    listeners = f"CLIENTS://127.0.0.1:{clients},BROKERS://127.0.0.1:{port}"
    program = "tests.support.brokers.timed_member"
    return BrokerProcess(directory, program=program, listeners=listeners), port


def _versions(row: ApiRow, between: bool) -> range:
    """Return the versions to be measured: those that only the listener has."""
    if not between:
        return row.clients
    return row.versions if row.versions != row.clients or row.api.name in BETWEEN else range(0)


def _filled(request: Any, epochs: Path) -> Any:
    """Set the fields of a request that the smallest values would have refused."""
    if isinstance(request, ProduceRequest):
        request.acks = 1
    if epochs.exists():
        names = ("controller_epoch", "broker_epoch")
        for name, value in zip(names, epochs.read_text().split(), strict=True):
            if hasattr(request, name):
                setattr(request, name, int(value))
    return request


def _held(
    broker: BrokerProcess, port: int, row: ApiRow, version: int, path: Any, *, distinct: bool
) -> Figures:
    count = row.api.max_elements - around(path)
    request = large_message(row.api.request, version, path, count, distinct=distinct)
    frame = raw.frame(row.api, version, _filled(request, broker.directory / EPOCHS))
    name = f"{row.api.name} v{version} {'.'.join(field.name for field in path)}"
    with raw.Client(port) as client:
        held_since_last(broker.pid, broker.directory)
        try:
            client.exchange(frame)
            answer = "answered"
        except ConnectionError:
            answer = "closed"
        held = held_since_last(broker.pid, broker.directory)
    return {f"{name}, {'distinct' if distinct else 'equal'}, {answer}: ms": held.longest_work}
