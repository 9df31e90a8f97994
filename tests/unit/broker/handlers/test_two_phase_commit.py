"""Two-phase commit (KIP-939) over a real broker, request by request."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.protocol.messages import (
    add_offsets_to_txn,
    api_versions,
    find_coordinator,
    init_producer_id,
    txn_offset_commit,
)
from tests.support.data_path import Client, connected, running
from tests.support.waiting import eventually
from tests.unit.broker.transactions.transactor import ONE_PARTITION, Transactor, name

NO_TIMEOUT_MS = 2**31 - 1
ENABLED = {**ONE_PARTITION, "transaction_two_phase_commit_enable": "true"}


@pytest.fixture
async def producer(tmp_path: Path) -> AsyncIterator[Transactor]:
    """A producer on a broker with two-phase commit."""
    async with running(tmp_path, **ENABLED) as broker, connected(broker) as client:
        await client.create(partitions=2)
        yield await Transactor(client).init()


async def init(
    x: Transactor, *, two_phase: bool = False, keep: bool = False, **fields: Any
) -> tuple[str, tuple[int, int], tuple[int, int]]:
    """Return the error, the producer and the ongoing producer of InitProducerId v6."""
    request = init_producer_id.InitProducerIdRequest(
        **{"transactional_id": x.id, "transaction_timeout_ms": 60_000, **fields},
        enable_two_phase_commit=two_phase,
        keep_prepared_txn=keep,
    )
    answer = await x.ask(init_producer_id, request, 6)
    return (
        name(answer.error_code),
        (answer.producer_id, answer.producer_epoch),
        (answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch),
    )


def client_of(x: Transactor, epoch: int) -> Transactor:
    """Return the process to which a kept transaction belongs now."""
    other = Transactor(x.client, x.id)
    other.producer_id, other.epoch = x.producer_id, epoch
    return other


async def announced(client: Client) -> int:
    """Return the highest announced version of InitProducerId."""
    request = api_versions.ApiVersionsRequest(
        client_software_name="test", client_software_version="1"
    )
    answer = await client.connection.request(api_versions.API, request)
    (versions,) = (each for each in answer.api_keys if each.api_key == init_producer_id.API.key)
    return int(versions.max_version)


async def test_another_process_commits_a_kept_transaction(producer: Transactor) -> None:
    assert await producer.produce() == "NONE"
    ongoing = (producer.producer_id, producer.epoch)
    told = await init(producer, keep=True, two_phase=True)
    assert told == ("NONE", (ongoing[0], ongoing[1] + 1), ongoing)
    assert await producer.end() == "PRODUCER_FENCED"
    client = client_of(producer, ongoing[1] + 1)
    assert await client.end() == "NONE"
    assert (client.producer_id, client.epoch) == (ongoing[0], ongoing[1] + 2)
    assert await client.settled() == "CompleteCommit"
    data = await client.client.fetch_one(0, isolation_level=1)
    assert (data.last_stable_offset, data.aborted_transactions) == (2, [])
    assert await client.produce() == "NONE"
    assert await client.end() == "NONE"


async def test_describe_shows_both_producers_and_the_missing_timeout(producer: Transactor) -> None:
    await producer.produce()
    before = await producer.state()
    assert (before.is_kept, before.client_producer_id, before.client_producer_epoch) == (
        False,
        -1,
        -1,
    )
    await init(producer, keep=True)
    state = await producer.state()
    assert (state.producer_id, state.producer_epoch) == (producer.producer_id, producer.epoch)
    assert (state.client_producer_id, state.client_producer_epoch) == (
        producer.producer_id,
        producer.epoch + 1,
    )
    assert (state.is_kept, state.transaction_timeout_ms) == (True, 60_000)
    await init(producer, keep=True, two_phase=True)
    state = await producer.state()
    assert (state.client_producer_epoch, state.transaction_timeout_ms) == (
        producer.epoch + 2,
        NO_TIMEOUT_MS,
    )
    client = client_of(producer, producer.epoch + 2)
    await client.end(committed=False)
    await client.settled()
    assert not (await client.state()).is_kept


async def test_keep_of_nothing_names_no_transaction(producer: Transactor) -> None:
    producer_id = producer.producer_id
    told = await init(producer, keep=True)
    assert told == ("NONE", (producer_id, producer.epoch + 1), (-1, -1))


async def test_disabled_two_phase_commit_is_not_announced_and_refused(tmp_path: Path) -> None:
    """Before every other error, as Apache Kafka does."""
    async with running(tmp_path, **ONE_PARTITION) as broker, connected(broker) as client:
        assert await announced(client) == 5
        x = Transactor(client)
        nothing = (-1, -1)
        for flags in ({"two_phase": True}, {"keep": True}, {"two_phase": True, "keep": True}):
            for fields in ({}, {"transactional_id": ""}, {"transaction_timeout_ms": -1}):
                told = await init(x, **flags, **fields)
                assert told == ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", nothing, nothing)
        await x.init()
        assert (await init(x))[0] == "NONE"


async def test_enabled_two_phase_commit_is_announced(producer: Transactor) -> None:
    assert await announced(producer.client) == 6
    assert (await init(producer, keep=True, transactional_id=""))[0] == "INVALID_REQUEST"
    assert (await init(producer, keep=True, transaction_timeout_ms=-1))[0] == (
        "INVALID_TRANSACTION_TIMEOUT"
    )
    assert (await init(producer, two_phase=True, transaction_timeout_ms=-1))[0] == "NONE"


async def test_metrics_show_kept_transactions(tmp_path: Path) -> None:
    async with running(tmp_path, **ENABLED) as broker, connected(broker) as client:

        def sample(name: str) -> float:
            (found,) = [each for each in broker.registry.snapshot() if each.name == name]
            return dict(found.samples)[()]

        await client.create()
        producer = await Transactor(client).init()
        await producer.produce()
        assert sample("barnabas_transactions_kept") == 0
        await init(producer, keep=True)
        assert sample("barnabas_transactions_kept") == 1
        assert 0 < sample("barnabas_transactions_kept_oldest_age_seconds") < 60


async def add_offsets(x: Transactor, version: int) -> str:
    request = add_offsets_to_txn.AddOffsetsToTxnRequest(
        transactional_id=x.id,
        producer_id=x.producer_id,
        producer_epoch=x.epoch,
        group_id="g",
    )
    return name((await x.ask(add_offsets_to_txn, request, version)).error_code)


async def commit_offset(x: Transactor, version: int) -> str:
    asked = txn_offset_commit.TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata=None
    )
    request = txn_offset_commit.TxnOffsetCommitRequest(
        transactional_id=x.id,
        group_id="g",
        producer_id=x.producer_id,
        producer_epoch=x.epoch,
        topics=[txn_offset_commit.TxnOffsetCommitRequestTopic(name="t", partitions=[asked])],
    )
    answer = await x.ask(txn_offset_commit, request, version)
    return name(answer.topics[0].partitions[0].error_code)


FENCED, STALE, KEPT = "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_TXN_STATE"


@pytest.mark.parametrize("pins", [False, True])
async def test_kept_transaction_takes_no_partition(producer: Transactor, pins: bool) -> None:
    """The coordinator fences the writer by name; leaders have an older code for it."""
    await find_group(producer)
    assert await producer.produce() == "NONE"
    await init(producer, keep=True, two_phase=pins)
    client = client_of(producer, producer.epoch + 1)
    for x, by_coordinator, by_leader in ((producer, FENCED, STALE), (client, KEPT, KEPT)):
        assert await x.add(("t", 1)) == [by_coordinator]
        assert await x.add(("t", 0)) == [by_coordinator]
        assert await add_offsets(x, 4) == by_coordinator
        for version in (3, 5):
            assert await commit_offset(x, version) == by_leader
        for version in (11, 12):
            records = x.batch(b"v", index=1, base_sequence=0)
            assert await x.produce(records, index=1, version=version) == by_leader
    # A client that begins anew in a partition where the transaction is open is asked about.
    assert await client.produce(client.batch(b"v", base_sequence=0)) == KEPT
    assert await client.end() == "NONE"
    assert await client.settled() == "CompleteCommit"


async def find_group(x: Transactor) -> None:
    """Return when the group's coordinator answers."""
    request = find_coordinator.FindCoordinatorRequest(coordinator_keys=["g"], key_type=0)

    async def found() -> bool:
        answer = await x.ask(find_coordinator, request)
        if answer.coordinators[0].error_code:
            return False
        return await commit_offset(x, 5) not in ("COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR")

    await eventually(found)
    assert await x.end() == "NONE"
    await x.settled()


async def test_leader_takes_further_records_where_kept_transaction_is_open(
    producer: Transactor,
) -> None:
    """As Apache Kafka: nothing is asked once a transaction is open in a partition."""
    await producer.produce()
    await init(producer, keep=True)
    assert await producer.produce() == "NONE"
    client = client_of(producer, producer.epoch + 1)
    assert await client.end() == "NONE"
    await client.settled()
    assert await producer.produce() == STALE
    data = await client.client.fetch_one(0, isolation_level=1)
    assert data.last_stable_offset == 3


@pytest.mark.parametrize(
    ("version", "told"), [(0, STALE), (1, STALE), (2, FENCED), (4, FENCED), (5, FENCED)]
)
async def test_ongoing_producer_cannot_end(producer: Transactor, version: int, told: str) -> None:
    await producer.produce()
    await init(producer, keep=True)
    for committed in (True, False):
        assert await producer.end(committed=committed, version=version) == told


async def test_kept_transaction_outlives_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path, **ENABLED) as broker, connected(broker) as client:
        await client.create()
        before = await Transactor(client, timeout_ms=1000).init()
        await before.produce()
        ongoing = (before.producer_id, before.epoch)
        await init(before, keep=True, two_phase=True)
    # The key does not matter to what is kept already.
    async with running(tmp_path, **ONE_PARTITION) as broker, connected(broker) as client:
        x = Transactor(client)
        x.producer_id, x.epoch = ongoing

        async def loaded() -> bool:
            return int((await x.state()).error_code) == 0

        await eventually(loaded)
        state = await x.state()
        assert (state.is_kept, state.client_producer_epoch) == (True, ongoing[1] + 1)
        assert state.transaction_timeout_ms == NO_TIMEOUT_MS
        assert await x.end() == FENCED
        heir = client_of(x, ongoing[1] + 1)
        assert await heir.end() == "NONE"
        assert await heir.settled() == "CompleteCommit"
        assert (await client.fetch_one(0, isolation_level=1)).last_stable_offset == 2
