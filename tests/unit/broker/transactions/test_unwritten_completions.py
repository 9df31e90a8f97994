"""Completions that are not in the transaction log yet when a broker stops to lead it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from barnabas.broker.app import Broker
from barnabas.broker.cluster.topic_names import TRANSACTION_STATE
from barnabas.coordinator import postponed
from tests.support.data_path import connected, running
from tests.support.transaction_log import states
from tests.unit.broker.transactions.transactor import ONE_PARTITION, Transactor

WHOLE = ["Ongoing", "PrepareCommit", "CompleteCommit"]
OLDER_PRODUCE, OLDER_END = 11, 3


@pytest.fixture(autouse=True)
def _long_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postponed, "DELAY_MS", 60_000)


@asynccontextmanager
async def completed(directory: Path, **keys: object) -> AsyncIterator[Broker]:
    """Run a broker whose coordinator shows the second of two transactions as complete."""
    async with running(directory, **ONE_PARTITION, **keys) as broker, connected(broker) as client:
        await client.create("t")
        producer = await Transactor(client).init()
        for _ in range(2):
            assert await producer.add(("t", 0)) == ["NONE"]
            assert await producer.produce(version=OLDER_PRODUCE) == "NONE"
            assert await producer.end(version=OLDER_END) == "NONE"
            assert await producer.settled() == "CompleteCommit"
        yield broker


async def test_stopped_broker_has_written_every_completion(tmp_path: Path) -> None:
    async with completed(tmp_path):
        assert states(tmp_path) == ["Empty", *WHOLE, *WHOLE[:-1]]
    assert states(tmp_path) == ["Empty", *WHOLE, *WHOLE]


async def test_leader_that_was_deposed_writes_nothing(tmp_path: Path) -> None:
    async with completed(tmp_path) as broker:
        partition = broker._replication.replicas.partition(TRANSACTION_STATE, 0)
        partition.leader_epoch += 1
        broker._coordination.transactions.resigned(partition)
        assert states(tmp_path)[-1] == "PrepareCommit"
    assert states(tmp_path)[-1] == "PrepareCommit"


async def test_failed_directory_takes_no_completion(tmp_path: Path) -> None:
    async with completed(tmp_path) as broker:
        partition = broker._replication.replicas.partition(TRANSACTION_STATE, 0)
        partition.log.log_dir.take_offline(OSError(5, "Input/output error"))
        broker._replication.replicas.log_dir_failed(partition.log.log_dir.path)
        assert states(tmp_path)[-1] == "PrepareCommit"
