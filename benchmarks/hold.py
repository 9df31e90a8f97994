"""The longest time for which one request holds a broker's event loop: `python -m benchmarks.hold`.

For each API and each array of its newest version, the request has as many elements as a broker
accepts, all of them equal, and then all of them distinct. The time is CPU time of the loop's thread
in the longest iteration (`tests/support/brokers/loop_hold`).

`--between-brokers` sends the requests of brokers to the inter-broker listener, with the epochs of
the controller and of the broker.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

from barnabas.broker.routes import API_TABLE, ApiRow
from barnabas.protocol.codec import encode
from barnabas.protocol.messages.produce import ProduceRequest
from barnabas.protocol.schema import Api
from tests.support import raw
from tests.support.brokers.loop_hold import held_since_last
from tests.support.brokers.memory import resident_mb
from tests.support.brokers.process import BrokerProcess
from tests.support.brokers.timed_member import EPOCHS
from tests.support.large_messages import Path as ArrayPath
from tests.support.large_messages import around, arrays, large_message
from tests.support.ports import free_port

TIMEOUT_S = 60
BETWEEN = {"Fetch", "WriteTxnMarkers", "OffsetForLeaderEpoch"}
"""APIs that brokers send to each other and clients too."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("apis", nargs="*", help="names of APIs, such as OffsetCommit")
    parser.add_argument("--between-brokers", action="store_true")
    options = parser.parse_args()
    print(f"{'API and array':64}{'equal ms':>10}{'distinct ms':>13}  answer")
    with tempfile.TemporaryDirectory() as directory:
        made, port = _made(Path(directory) / "broker", options.between_brokers)
        with made as broker:
            for row in API_TABLE:
                versions = _versions(row, options.between_brokers)
                if versions and (not options.apis or row.api.name in options.apis):
                    for path in arrays(row.api.request, versions[-1]):
                        _report(broker, port, row.api, versions[-1], path)
            print(f"memory of the broker: {resident_mb(broker.pid):.0f} MB")


def _made(directory: Path, between_brokers: bool) -> tuple[BrokerProcess, int]:
    """Return a broker, and the port that gets the requests."""
    if not between_brokers:
        broker = BrokerProcess(directory, program="tests.support.brokers.timed")
        return broker, broker.port
    port, clients = free_port(), free_port()
    listeners = f"CLIENTS://127.0.0.1:{clients},BROKERS://127.0.0.1:{port}"
    program = "tests.support.brokers.timed_member"
    return BrokerProcess(directory, program=program, listeners=listeners), port


def _versions(row: ApiRow, between_brokers: bool) -> range:
    """Return the versions to be measured: those that only the listener has."""
    if not between_brokers:
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


def _report(broker: BrokerProcess, port: int, api: Api, version: int, path: ArrayPath) -> None:
    held, answers = [], set()
    for distinct in (False, True):
        count = api.max_elements - around(path)
        request = large_message(api.request, version, path, count, distinct=distinct)
        body = encode(_filled(request, broker.directory / EPOCHS), version)
        with raw.Connection("127.0.0.1", port, "hold", TIMEOUT_S) as connection:
            held_since_last(broker.pid, broker.directory)
            connection.post_bytes(api, version, body)
            try:
                connection.take()
                answers.add("answered")
            except raw.Closed:
                answers.add("closed")
            held.append(held_since_last(broker.pid, broker.directory).longest_work)
    name = f"{api.name} v{version} {'.'.join(field.name for field in path)}"
    print(f"{name:64}{held[0]:10.1f}{held[1]:13.1f}  {', '.join(sorted(answers))}", flush=True)


if __name__ == "__main__":
    main()
