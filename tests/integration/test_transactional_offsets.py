"""A group's offsets in transactions, on a real broker and its disk: every version of
TxnOffsetCommit, restarts with open transactions, and the oldest client that commits offsets in
them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiokafka
import pytest

from barnabas.broker.app import Broker
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    add_offsets_to_txn,
    end_txn,
    find_coordinator,
    init_producer_id,
    metadata,
    offset_commit,
    offset_fetch,
    txn_offset_commit,
)
from tests.support.data_path import Client, connected, running
from tests.support.waiting import eventually

GROUP = "g"
BY_ITSELF = 5
"""TxnOffsetCommit adds the group's partition to the transaction from this version on."""


class Transactor:
    """A producer that commits offsets of one partition."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.producer_id = -1
        self.epoch = -1

    async def ask(self, module: Any, request: Any, version: int | None = None) -> Any:
        return await self._client.connection.request(module.API, request, version=version)

    async def init(self) -> None:
        for key_type in (0, 1):
            request = find_coordinator.FindCoordinatorRequest(
                coordinator_keys=[GROUP], key_type=key_type
            )
            await self.ask(find_coordinator, request)

        async def given() -> bool:
            answer = await self.ask(
                init_producer_id,
                init_producer_id.InitProducerIdRequest(
                    transactional_id="x", transaction_timeout_ms=60_000
                ),
                4,
            )
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            return int(answer.error_code) == 0

        await eventually(given)

    async def commit_offset(self, offset: int, version: int = BY_ITSELF) -> str:
        """Commit an offset; this also begins the transaction."""
        if version < BY_ITSELF:
            added = await self.ask(
                add_offsets_to_txn,
                add_offsets_to_txn.AddOffsetsToTxnRequest(
                    transactional_id="x",
                    producer_id=self.producer_id,
                    producer_epoch=self.epoch,
                    group_id=GROUP,
                ),
                3,
            )
            assert added.error_code == 0, added
        partition = txn_offset_commit.TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata="here"
        )
        named = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name="t")])
        (known,) = (await self.ask(metadata, named)).topics
        topic = txn_offset_commit.TxnOffsetCommitRequestTopic(
            name="t", topic_id=known.topic_id, partitions=[partition]
        )
        answer = await self.ask(
            txn_offset_commit,
            txn_offset_commit.TxnOffsetCommitRequest(
                transactional_id="x",
                group_id=GROUP,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                topics=[topic],
            ),
            version,
        )
        return ErrorCode.of(answer.topics[0].partitions[0].error_code).name

    async def end(self, version: int, *, committed: bool = True) -> None:
        async def ended() -> bool:
            answer = await self.ask(
                end_txn,
                end_txn.EndTxnRequest(
                    transactional_id="x",
                    producer_id=self.producer_id,
                    producer_epoch=self.epoch,
                    committed=committed,
                ),
                5 if version >= BY_ITSELF else 3,
            )
            if answer.producer_id >= 0:
                self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            return int(answer.error_code) == 0

        await eventually(ended)

    async def fetch(self, version: int = 9) -> tuple[str, int]:
        """Return the error and the offset; a stable offset if the version can ask for it."""
        if version >= 8:
            topics = [offset_fetch.OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
            asked = offset_fetch.OffsetFetchRequestGroup(group_id=GROUP, topics=topics)
            request = offset_fetch.OffsetFetchRequest(groups=[asked], require_stable=True)
            answer = (await self.ask(offset_fetch, request, version)).groups[0]
            if answer.error_code:
                return ErrorCode.of(answer.error_code).name, -1
        else:
            old = offset_fetch.OffsetFetchRequestTopic(name="t", partition_indexes=[0])
            request = offset_fetch.OffsetFetchRequest(group_id=GROUP, topics=[old])
            answer = await self.ask(offset_fetch, request, version)
        partition = answer.topics[0].partitions[0]
        return ErrorCode.of(partition.error_code).name, partition.committed_offset

    async def fetched(self, offset: int) -> bool:
        """Return whether the offset is the group's; markers are written after the EndTxn
        response."""

        async def seen() -> bool:
            error, _ = await self.fetch()
            return error not in ("UNSTABLE_OFFSET_COMMIT", "COORDINATOR_LOAD_IN_PROGRESS")

        await eventually(seen)
        return await self.fetch() == ("NONE", offset)


@asynccontextmanager
async def transacting(directory: Path, **keys: object) -> AsyncIterator[tuple[Broker, Transactor]]:
    keys = {"offsets_topic_num_partitions": 2, "transaction_state_log_num_partitions": 2, **keys}
    async with running(directory, **keys) as broker, connected(broker) as client:
        yield broker, Transactor(client)


@asynccontextmanager
async def begun(directory: Path, **keys: object) -> AsyncIterator[tuple[Broker, Transactor]]:
    """Start a broker with a topic, a producer id, and 1 as the group's offset."""
    async with transacting(directory, **keys) as (broker, transactor):
        await transactor._client.create()
        await transactor.init()

        async def committed() -> bool:
            partition = offset_commit.OffsetCommitRequestPartition(
                partition_index=0, committed_offset=1, committed_metadata=None
            )
            topic = offset_commit.OffsetCommitRequestTopic(name="t", partitions=[partition])
            request = offset_commit.OffsetCommitRequest(
                group_id=GROUP, member_id="", topics=[topic]
            )
            answer = await transactor.ask(offset_commit, request, 8)
            return int(answer.topics[0].partitions[0].error_code) == 0

        await eventually(committed)
        yield broker, transactor


@pytest.mark.parametrize("version", txn_offset_commit.API.versions)
async def test_offsets_count_with_their_transaction_in_every_version(
    tmp_path: Path, version: int
) -> None:
    async with begun(tmp_path) as (_, x):
        assert await x.commit_offset(5, version) == "NONE"
        assert await x.fetch() == ("UNSTABLE_OFFSET_COMMIT", -1)
        assert await x.fetch(6) == ("COORDINATOR_LOAD_IN_PROGRESS", -1)
        await x.end(version)
        assert await x.fetched(5)
        assert await x.commit_offset(6, version) == "NONE"
        await x.end(version, committed=False)
        assert await x.fetched(5)


async def test_the_rule_for_old_clients_can_be_switched_off(tmp_path: Path) -> None:
    keys = {"group_unstable_offsets_block_old_clients": "false"}
    async with begun(tmp_path, **keys) as (_, x):
        assert await x.commit_offset(5) == "NONE"
        assert await x.fetch(6) == ("NONE", 1)
        assert await x.fetch() == ("UNSTABLE_OFFSET_COMMIT", -1)


async def test_open_transaction_survives_a_restart(tmp_path: Path) -> None:
    async with begun(tmp_path) as (_, x):
        assert await x.commit_offset(5) == "NONE"
        producer = x.producer_id, x.epoch
    async with transacting(tmp_path) as (_, x):
        x.producer_id, x.epoch = producer

        async def loaded() -> bool:
            return await x.fetch() == ("UNSTABLE_OFFSET_COMMIT", -1)

        await eventually(loaded)
        await x.end(BY_ITSELF)
        assert await x.fetched(5)
    async with transacting(tmp_path) as (_, x):
        assert await x.fetched(5)


async def test_an_older_epoch_commits_nothing(tmp_path: Path) -> None:
    async with begun(tmp_path) as (_, x):
        stale = x.epoch
        await x.init()
        x.epoch = stale
        assert await x.commit_offset(5) == "INVALID_PRODUCER_EPOCH"
        assert await x.fetch() == ("NONE", 1)


async def test_txn_offset_commit_of_older_clients_needs_add_offsets_to_txn(tmp_path: Path) -> None:
    async with begun(tmp_path) as (_, x):
        partition = txn_offset_commit.TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=5, committed_metadata=None
        )
        topic = txn_offset_commit.TxnOffsetCommitRequestTopic(name="t", partitions=[partition])
        request = txn_offset_commit.TxnOffsetCommitRequest(
            transactional_id="x",
            group_id=GROUP,
            producer_id=x.producer_id,
            producer_epoch=x.epoch,
            topics=[topic],
        )
        told = []
        for version in (3, 4):
            answer = await x.ask(txn_offset_commit, request, version)
            told.append(ErrorCode.of(answer.topics[0].partitions[0].error_code).name)
        assert told == ["INVALID_TXN_STATE", "TRANSACTION_ABORTABLE"]
        assert await x.fetch() == ("NONE", 1)


async def test_aiokafka_waits_for_the_transaction_and_continues_at_its_offset(
    tmp_path: Path,
) -> None:
    """aiokafka has no require_stable: without the rule it would get 1 and read on from there."""
    partition = aiokafka.TopicPartition("t", 0)
    async with begun(tmp_path) as (broker, _):
        servers = f"127.0.0.1:{broker.port}"
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=servers, transactional_id="y")
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=servers, group_id=GROUP, enable_auto_commit=False
        )
        consumer.assign([partition])
        await producer.start()
        await consumer.start()
        try:
            await producer.begin_transaction()
            await producer.send_offsets_to_transaction({partition: 5}, GROUP)
            tried = count_tries(consumer)
            committed = asyncio.ensure_future(consumer.committed(partition))
            await eventually(lambda: len(tried) > 1)
            assert not committed.done()
            await producer.commit_transaction()
            assert await asyncio.wait_for(committed, 10) == 5
        finally:
            await consumer.stop()
            await producer.stop()


async def test_aiokafka_member_waits_for_the_open_transaction_of_its_predecessor(
    tmp_path: Path,
) -> None:
    """KIP-447 for an older client: the previous member has left its transaction open."""
    async with begun(tmp_path, group_initial_rebalance_delay_ms=0) as (broker, _):
        servers = f"127.0.0.1:{broker.port}"
        options = {"bootstrap_servers": servers, "group_id": GROUP, "enable_auto_commit": False}
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=servers, transactional_id="y")
        first = aiokafka.AIOKafkaConsumer("t", auto_offset_reset="earliest", **options)
        second = aiokafka.AIOKafkaConsumer("t", auto_offset_reset="earliest", **options)
        await producer.start()
        try:
            async with producer.transaction():
                for number in range(3):
                    await producer.send_and_wait("t", str(number).encode())
            await first.start()
            message = await asyncio.wait_for(first.getone(), 10)
            assert message.offset == 1
            await producer.begin_transaction()
            partition = aiokafka.TopicPartition("t", 0)
            await producer.send_offsets_to_transaction({partition: message.offset + 1}, GROUP)
            await first.stop()
            await second.start()
            tried = count_tries(second)
            reading = asyncio.ensure_future(second.getone())
            await eventually(lambda: len(tried) > 1)
            assert not reading.done()
            await producer.commit_transaction()
            assert (await asyncio.wait_for(reading, 10)).offset == 2
        finally:
            await first.stop()
            await second.stop()
            await producer.stop()


def count_tries(consumer: aiokafka.AIOKafkaConsumer) -> list[None]:
    """Return a list that grows by one entry each time the consumer asks for its offsets."""
    tried: list[None] = []
    coordinator = consumer._coordinator
    fetch = coordinator._do_fetch_commit_offsets

    async def counted(partitions: Any) -> Any:
        tried.append(None)
        return await fetch(partitions)

    coordinator._do_fetch_commit_offsets = counted
    return tried
