"""Completions that are not in the transaction log yet when the broker ends."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from barnabas.broker.cluster.topic_names import TRANSACTION_STATE
from barnabas.client.connection import Connection
from barnabas.coordinator import postponed
from barnabas.coordinator.transaction.records import decode_record
from barnabas.protocol.records.batch import iter_headers
from barnabas.protocol.records.control import read_marker
from barnabas.protocol.records.record import iter_records
from tests.support.brokers.process import BrokerProcess
from tests.support.data_path import Client, connected, running
from tests.support.waiting import eventually
from tests.unit.broker.transactions.transactor import ONE_PARTITION, Transactor

OLDER_PRODUCE, OLDER_END = 11, 3
ROUNDS = 12
"""The kills, of which some hit the milliseconds before the completion is written."""


def content(log: Path) -> bytes:
    return b"".join(segment.read_bytes() for segment in sorted(log.glob("*.log")))


def written(directory: Path) -> list[str]:
    """Return the states of transactions in the transaction log, in their order."""
    data = content(directory / f"{TRANSACTION_STATE}-0")
    found = []
    for position, header in iter_headers(data):
        for each in iter_records(data, position, header):
            record = decode_record(each.key or b"", each.value)
            assert record is not None
            assert record.value is not None
            found.append(record.value.state.value)
    return found


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


async def complete(producer: Transactor, value: bytes, *, commits: bool) -> None:
    """Write a transaction, and return when its coordinator shows it as complete."""

    async def added() -> bool:
        return await producer.add(("t", 0)) == ["NONE"]

    await eventually(added)
    assert await producer.produce(producer.batch(value), version=OLDER_PRODUCE) == "NONE"
    assert await producer.end(committed=commits, version=OLDER_END) == "NONE"
    assert await producer.settled() == ("CompleteCommit" if commits else "CompleteAbort")


@asynccontextmanager
async def client_of(broker: BrokerProcess) -> AsyncIterator[Client]:
    connection = await Connection.open("127.0.0.1", broker.port, timeout=5)
    try:
        yield Client(connection)
    finally:
        await connection.close()


async def test_killed_broker_sends_markers_again_and_ends_no_later_transaction(
    tmp_path: Path,
) -> None:
    directory, asked, unwritten = tmp_path / "data", {}, 0
    sequence = None
    with BrokerProcess(directory, transaction_state_log_num_partitions="1") as broker:
        for number in range(ROUNDS):
            async with client_of(broker) as client:
                producer = Transactor(client)
                if sequence is None:
                    await client.create("t")
                    await producer.init()
                else:
                    producer.producer_id, producer.epoch, producer.sequences = sequence
                for each in range(3):
                    value, commits = b"%d-%d" % (number, each), (number + each) % 2 == 0
                    asked[value] = commits
                    await complete(producer, value, commits=commits)
                sequence = producer.producer_id, producer.epoch, producer.sequences
                broker.kill()
            unwritten += written(directory)[-1].startswith("Prepare")
            broker.start()
        async with client_of(broker) as client:
            producer.client = client
            await complete(producer, b"last", commits=True)
    assert unwritten > 0
    assert outcomes(directory) == {**asked, b"last": True}


async def test_stopped_broker_has_written_every_completion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postponed, "DELAY_MS", 60_000)
    async with running(tmp_path, **ONE_PARTITION) as broker, connected(broker) as client:
        await client.create("t")
        producer = await Transactor(client).init()
        await complete(producer, b"v", commits=True)
        assert written(tmp_path) == ["Empty", "Ongoing", "PrepareCommit"]
    assert written(tmp_path)[-2:] == ["PrepareCommit", "CompleteCommit"]


async def test_completion_is_written_before_the_leader_epoch_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postponed, "DELAY_MS", 60_000)
    async with running(tmp_path, **ONE_PARTITION) as broker, connected(broker) as client:
        await client.create("t")
        producer = await Transactor(client).init()
        await complete(producer, b"v", commits=True)
        replicas = broker._replication.replicas
        partition = replicas.partition(TRANSACTION_STATE, 0)
        replicas._resign_coordinators(partition)
        assert written(tmp_path)[-1] == "CompleteCommit"
        assert partition.is_leader


async def test_without_fast_paths_completions_are_written_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postponed, "DELAY_MS", 60_000)
    keys = {**ONE_PARTITION, "fast_paths_enable": "false"}
    async with running(tmp_path, **keys) as broker, connected(broker) as client:
        await client.create("t")
        producer = await Transactor(client).init()
        await complete(producer, b"v", commits=True)
        assert written(tmp_path)[-1] == "CompleteCommit"
