"""Completions that are not in the transaction log yet when the broker's process ends."""

from itertools import count
from pathlib import Path

from barnabas.protocol.records.batch import iter_headers
from barnabas.protocol.records.control import read_marker
from barnabas.protocol.records.record import iter_records
from tests.support.brokers.process import BrokerProcess
from tests.support.transaction_log import content, states
from tests.support.transactor import TV1, Transactor, Wire

ROUNDS = 12
"""The fewest kills; they go on until one hits the milliseconds before the completion is written."""


def outcomes(directory: Path) -> dict[bytes, bool]:
    """Return how the transaction of each record in the partition has ended."""
    data = content(directory / "t-0")
    ended: dict[bytes, bool] = {}
    unfinished: list[bytes] = []
    for position, header in iter_headers(data):
        if not header.is_control:
            unfinished += [each.value or b"" for each in iter_records(data, position, header)]
            continue
        marker = read_marker(data, position, header)
        assert marker is not None
        ended |= dict.fromkeys(unfinished, marker.committed)
        unfinished.clear()
    assert unfinished == []
    return ended


def marked(wire: Wire) -> None:
    """Return as soon as the marker of the latest transaction is written."""
    while wire.end_offset("t", committed=True) != wire.end_offset("t", committed=False):
        pass


def test_killed_broker_sends_markers_again_and_ends_no_later_transaction(tmp_path: Path) -> None:
    directory, unwritten = tmp_path / "data", 0
    asked: dict[bytes, bool] = {}
    producer: Transactor | None = None
    with BrokerProcess(directory, transaction_state_log_num_partitions="1") as broker:
        for number in count():
            if number >= ROUNDS and unwritten:
                break
            wire = Wire(broker.bootstrap_servers)
            if producer is None:
                wire.create("t")
                producer = Transactor(wire, "x", TV1)
                producer.init()
            producer.wire = wire
            for each in range(3):
                value, commits = b"%d-%d" % (number, each), (number + each) % 2 == 0
                producer.transact("t", value, sequence=len(asked), committed=commits)
                asked[value] = commits
            marked(wire)
            broker.kill()
            unwritten += states(directory)[-1].startswith("Prepare")
            broker.start()
        producer.wire = Wire(broker.bootstrap_servers)
        producer.transact("t", b"last", sequence=len(asked))
        marked(producer.wire)
    assert outcomes(directory) == {**asked, b"last": True}


def test_terminated_broker_has_written_every_completion(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    with BrokerProcess(directory, transaction_state_log_num_partitions="1") as broker:
        wire = Wire(broker.bootstrap_servers)
        wire.create("t")
        producer = Transactor(wire, "x", TV1)
        producer.init()
        producer.transact("t", b"v", sequence=0)
        marked(wire)
        assert broker.terminate() == 0
    assert states(directory)[-2:] == ["PrepareCommit", "CompleteCommit"]
