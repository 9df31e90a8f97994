"""The longest time for which one request holds a broker's event loop: `python -m benchmarks.hold`.

For each API and each array of its newest version, the request has as many elements as a broker
accepts (`--elements` for another number), all of them equal, and then all of them distinct. The
time is CPU time of the loop's thread in the longest iteration (`tests/support/brokers/loop_hold`).

`--between-brokers` sends the requests of brokers to the inter-broker listener, with the epochs of
the controller and of the broker, and with `--forged` with other epochs.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

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

ACCEPTED = 100_000
"""`MAX_REQUEST_ELEMENTS`, written out so that older brokers can be measured too."""
TIMEOUT_S = 60
BETWEEN = {"Fetch", "WriteTxnMarkers", "OffsetForLeaderEpoch"}
"""APIs that brokers send to each other and clients too."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--elements", type=int, default=ACCEPTED)
    parser.add_argument("apis", nargs="*", help="names of APIs, such as OffsetCommit")
    parser.add_argument("--between-brokers", action="store_true")
    parser.add_argument("--forged", action="store_true")
    options = parser.parse_args()
    print(f"{'API and array':64}{'equal ms':>10}{'distinct ms':>13}  answer")
    with tempfile.TemporaryDirectory() as directory:
        target = _target(Path(directory) / "broker", options.between_brokers, options.forged)
        with target.broker as broker:
            for row in API_TABLE:
                if options.apis and row.api.name not in options.apis:
                    continue
                versions = _versions(row, options.between_brokers)
                if not versions:
                    continue
                for path in arrays(row.api.request, versions[-1]):
                    _report(target, row.api, versions[-1], path, options.elements)
            print(f"memory of the broker: {resident_mb(broker.pid):.0f} MB")


class Target(NamedTuple):
    """A broker, the port that gets the requests, and whether their epochs are its own."""

    broker: BrokerProcess
    port: int
    forged: bool

    def fill(self, request: Any) -> None:
        """Set the fields of a request that the smallest values would have refused."""
        if isinstance(request, ProduceRequest):
            request.acks = 1
        epochs = self.broker.directory / EPOCHS
        if epochs.exists() and not self.forged:
            controller_epoch, broker_epoch = map(int, epochs.read_text().split())
            for name, value in {
                "controller_epoch": controller_epoch,
                "broker_epoch": broker_epoch,
            }.items():
                if hasattr(request, name):
                    setattr(request, name, value)


def _target(directory: Path, between_brokers: bool, forged: bool) -> Target:
    if not between_brokers:
        broker = BrokerProcess(directory, program="tests.support.brokers.timed")
        return Target(broker, broker.port, forged)
    port, clients = free_port(), free_port()
    listeners = f"CLIENTS://127.0.0.1:{clients},BROKERS://127.0.0.1:{port}"
    broker = BrokerProcess(
        directory, program="tests.support.brokers.timed_member", listeners=listeners
    )
    return Target(broker, port, forged)


def _versions(row: ApiRow, between_brokers: bool) -> range:
    """Return the versions to be measured: those that only the listener has."""
    if not between_brokers:
        return row.clients
    return row.versions if row.versions != row.clients or row.api.name in BETWEEN else range(0)


def _report(target: Target, api: Api, version: int, path: ArrayPath, elements: int) -> None:
    held, answers, broker = [], [], target.broker
    elements = api.max_elements if elements == ACCEPTED else elements
    for distinct in (False, True):
        count = elements - around(path)
        request = large_message(api.request, version, path, count, distinct=distinct)
        target.fill(request)
        body = encode(request, version)
        with raw.Connection("127.0.0.1", target.port, "hold", TIMEOUT_S) as connection:
            held_since_last(broker.pid, broker.directory)
            connection.post_bytes(api, version, body)
            try:
                connection.take()
                answers.append("answered")
            except raw.Closed:
                answers.append("closed")
            held.append(held_since_last(broker.pid, broker.directory).longest_work)
    name = f"{api.name} v{version} {'.'.join(field.name for field in path)}"
    print(f"{name:64}{held[0]:10.1f}{held[1]:13.1f}  {', '.join(sorted(set(answers)))}", flush=True)


if __name__ == "__main__":
    main()
