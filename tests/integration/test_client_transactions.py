"""Transactions of Barnabas's own client, on Barnabas and on Apache Kafka: the same tests."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from barnabas.client import transaction_calls, transaction_manager
from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.connection import BrokerUnreachable, Connection
from barnabas.client.consumer import Consumer, FetchSettings, Message
from barnabas.client.features import SAFE_DOWNGRADE, UPGRADE, finalized_features, update_feature
from barnabas.client.group import GroupMember
from barnabas.client.group_offsets import fetch_offsets
from barnabas.client.offsets import EARLIEST, LATEST
from barnabas.client.producer import Producer, ProducerSettings
from barnabas.client.transactional_producer import (
    AbortableError,
    FatalError,
    GroupMetadata,
    State,
    TransactionalProducer,
    TransactionStateError,
)
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    end_txn,
    init_producer_id,
    produce,
    txn_offset_commit,
)
from barnabas.protocol.schema import Api
from barnabas.testing import Broker

DEADLINE = 30.0
TRANSACTION_MESSAGES = (
    produce,
    init_producer_id,
    add_partitions_to_txn,
    add_offsets_to_txn,
    txn_offset_commit,
    end_txn,
)
LEVEL = "transaction.version"


@pytest.fixture(
    scope="module",
    params=["barnabas", pytest.param("kafka", marks=pytest.mark.xdist_group("client-on-kafka"))],
)
def servers(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "barnabas":
        with Broker() as broker:
            yield broker.bootstrap_servers
    else:
        yield request.getfixturevalue("kafka_for_clients")


@pytest.fixture
async def cluster(servers: str) -> AsyncIterator[Cluster]:
    async with Cluster(servers) as cluster, asyncio.timeout(DEADLINE):
        yield cluster


@pytest.fixture
async def topic(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    name = request.function.__name__
    await Admin(cluster).create_topic(name, partitions=2)
    return str(name)


async def read(
    cluster: Cluster, topic: str, count: int, *, committed: bool = True
) -> list[Message]:
    """The first `count` messages of both partitions."""
    consumer = Consumer(cluster, FetchSettings(max_wait=0.1, read_committed=committed))
    consumer.assign({(topic, 0): EARLIEST, (topic, 1): EARLIEST})
    messages: list[Message] = []
    while len(messages) < count:
        messages += await consumer.poll()
    return messages


async def values(
    cluster: Cluster, topic: str, count: int, *, committed: bool = True
) -> list[bytes]:
    messages = await read(cluster, topic, count, committed=committed)
    return sorted(message.value or b"" for message in messages)


async def set_level(cluster: Cluster, level: int) -> None:
    before = (await finalized_features(cluster)).get(LEVEL, 0)
    if level == before:
        return
    change = SAFE_DOWNGRADE if level < before else UPGRADE
    await update_feature(cluster, LEVEL, level, change=change)
    while (await finalized_features(cluster)).get(LEVEL, 0) != level:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def test_what_commits_is_read_and_what_aborts_is_not(cluster: Cluster, topic: str) -> None:
    async with TransactionalProducer(cluster, topic) as producer:
        await producer.init_transactions()
        async with producer.transaction():
            first = [await producer.send(topic, b"a%d" % n, partition=n % 2) for n in range(6)]
        await producer.begin_transaction()
        await (await producer.send(topic, b"never", partition=0))
        lost = await producer.send(topic, b"never", partition=1)
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send(topic, b"b", partition=0)
    assert [each.result().offset for each in first] == [0, 0, 1, 1, 2, 2]
    with pytest.raises(AbortableError):
        lost.result()
    expected = [b"a0", b"a1", b"a2", b"a3", b"a4", b"a5", b"b"]
    assert await values(cluster, topic, 7) == expected
    assert await values(cluster, topic, 8, committed=False) == [*expected, b"never"]


async def test_a_block_that_raises_aborts(cluster: Cluster, topic: str) -> None:
    async with TransactionalProducer(cluster, topic) as producer:
        await producer.init_transactions()

        async def divide() -> None:
            async with producer.transaction():
                await (await producer.send(topic, b"never"))
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await divide()
        assert producer.state is State.READY
        async with producer.transaction():
            await producer.send(topic, b"next")
    assert await values(cluster, topic, 1) == [b"next"]


async def test_calls_in_the_wrong_order_are_told(cluster: Cluster, topic: str) -> None:
    async with TransactionalProducer(cluster, topic) as producer:
        for call in (
            producer.begin_transaction,
            producer.commit_transaction,
            producer.abort_transaction,
        ):
            with pytest.raises(TransactionStateError):
                await call()
        await producer.init_transactions()
        with pytest.raises(TransactionStateError):
            await producer.init_transactions()
        with pytest.raises(TransactionStateError):
            await producer.send(topic, b"outside")
        with pytest.raises(TransactionStateError):
            await producer.send_offsets_to_transaction({(topic, 0): 1}, "group")
        async with producer.transaction():
            with pytest.raises(TransactionStateError):
                await producer.begin_transaction()


async def test_an_empty_transaction_ends_without_a_trace(cluster: Cluster, topic: str) -> None:
    async with TransactionalProducer(cluster, topic) as producer:
        await producer.init_transactions()
        for _ in range(2):
            async with producer.transaction():
                pass
            await producer.begin_transaction()
            await producer.abort_transaction()
        assert producer.state is State.READY


async def test_a_second_instance_fences_the_first(cluster: Cluster, topic: str) -> None:
    async with (
        TransactionalProducer(cluster, topic) as older,
        TransactionalProducer(cluster, topic) as newer,
    ):
        await older.init_transactions()
        await older.begin_transaction()
        await (await older.send(topic, b"zombie"))
        await newer.init_transactions()
        with pytest.raises(FatalError) as caught:
            await older.commit_transaction()
        assert caught.value.code is ErrorCode.PRODUCER_FENCED
        assert older.state is State.FATAL_ERROR
        with pytest.raises(FatalError):
            await older.begin_transaction()
        async with newer.transaction():
            await newer.send(topic, b"alive")
    assert await values(cluster, topic, 1) == [b"alive"]


async def test_a_fenced_instance_learns_of_it_from_its_records(
    cluster: Cluster, topic: str
) -> None:
    async with (
        TransactionalProducer(cluster, topic) as older,
        TransactionalProducer(cluster, topic) as newer,
    ):
        await older.init_transactions()
        await older.begin_transaction()
        await (await older.send(topic, b"zombie", partition=0))
        await newer.init_transactions()
        with pytest.raises(AbortableError) as caught:
            await (await older.send(topic, b"zombie", partition=0))
        assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
        with pytest.raises(FatalError):
            await older.abort_transaction()


async def test_a_record_that_is_refused_fails_the_commit_and_not_the_next_transaction(
    cluster: Cluster,
) -> None:
    topic = "tiny"
    await Admin(cluster).create_topic(topic, partitions=2, configs={"max.message.bytes": "500"})
    async with TransactionalProducer(cluster, topic) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send(topic, b"never", partition=1)
        await producer.send(topic, bytes(1000), partition=0)
        with pytest.raises(AbortableError) as caught:
            await producer.commit_transaction()
        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
        assert producer.state is State.ABORTABLE_ERROR
        await producer.abort_transaction()
        for n in range(3):
            async with producer.transaction():
                await producer.send(topic, b"%d" % n, partition=0)
    assert await values(cluster, topic, 3) == [b"0", b"1", b"2"]


async def test_the_end_is_the_last_stable_offset(cluster: Cluster, topic: str) -> None:
    async with Producer(cluster) as plain, TransactionalProducer(cluster, topic) as producer:
        await producer.init_transactions()
        await (await plain.send(topic, b"before", partition=0))
        await producer.begin_transaction()
        await (await producer.send(topic, b"open", partition=0))
        await (await plain.send(topic, b"behind", partition=0))
        consumer = Consumer(cluster, FetchSettings(max_wait=0.1))
        consumer.assign({(topic, 0): EARLIEST})
        assert [message.value for message in await consumer.poll()] == [b"before"]
        consumer.seek((topic, 0), LATEST)
        assert await consumer.poll() == []
        assert consumer.positions == {(topic, 0): 1}
        await producer.commit_transaction()
        seen: list[bytes | None] = []
        while len(seen) < 2:
            seen += [message.value for message in await consumer.poll()]
        assert seen == [b"open", b"behind"]


async def test_offsets_commit_and_abort_with_the_transaction(cluster: Cluster, topic: str) -> None:
    group, place = f"group-{topic}", (topic, 0)
    async with TransactionalProducer(cluster, topic) as producer:
        await producer.init_transactions()
        async with producer.transaction():
            await producer.send_offsets_to_transaction({place: 5}, group)
        await producer.begin_transaction()
        await producer.send_offsets_to_transaction({place: 9}, group)
        await producer.abort_transaction()
        assert await fetch_offsets(cluster, group, [place], require_stable=True) == {place: 5}
        await producer.begin_transaction()
        gone = GroupMetadata(group, 3, "nobody")
        with pytest.raises(AbortableError) as caught:
            await producer.send_offsets_to_transaction({place: 9}, gone)
        assert caught.value.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
        await producer.abort_transaction()
        assert await fetch_offsets(cluster, group, [place], require_stable=True) == {place: 5}


async def test_the_protocol_follows_the_level_of_the_cluster(
    cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_manager, "FEATURES_AGE", 0.0)

    spoken = []
    try:
        async with TransactionalProducer(cluster, topic) as producer:
            await producer.init_transactions()
            for number, level in enumerate((2, 1, 1, 2, 2)):
                await set_level(cluster, level)
                async with producer.transaction():
                    spoken.append(producer.speaks_newer_protocol)
                    await producer.send(topic, b"%d" % number, partition=0)
                    await producer.send_offsets_to_transaction({(topic, 0): number}, topic)
            # Raised while a transaction is open: it ends as it began.
            await set_level(cluster, 1)
            await producer.begin_transaction()
            await producer.send(topic, b"5", partition=0)
            await set_level(cluster, 2)
            await producer.commit_transaction()
            # Lowered while one is open: it has to start again.
            await producer.begin_transaction()
            await producer.send(topic, b"never", partition=0)
            await set_level(cluster, 1)
            with pytest.raises(AbortableError) as caught:
                await producer.commit_transaction()
            assert caught.value.code is ErrorCode.TRANSACTION_ABORTABLE
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send(topic, b"6", partition=0)
    finally:
        await set_level(cluster, 2)
    assert spoken == [True, False, False, True, True]
    assert await values(cluster, topic, 7) == [b"%d" % n for n in range(7)]
    offsets = await fetch_offsets(cluster, topic, require_stable=True)
    assert offsets == {(topic, 0): 4}


async def test_an_older_producer_takes_an_epoch_after_an_error(
    cluster: Cluster, servers: str
) -> None:
    """Its sequences are unknown then, and the older protocol keeps them beyond a transaction."""
    topic = "older"
    await Admin(cluster).create_topic(topic, partitions=2, configs={"max.message.bytes": "500"})
    await set_level(cluster, 1)
    try:
        async with Cluster(servers) as own, TransactionalProducer(own, topic) as producer:
            await producer.init_transactions()
            for n in range(3):
                async with producer.transaction():
                    assert not producer.speaks_newer_protocol
                    await (await producer.send(topic, b"%d" % n, partition=0))
                await producer.begin_transaction()
                await producer.send(topic, b"never", partition=0)
                await producer.send(topic, bytes(1000), partition=n % 2)
                with pytest.raises(AbortableError):
                    await producer.commit_transaction()
                await producer.abort_transaction()
                await producer.begin_transaction()
                await producer.send(topic, b"never", partition=0)
                await producer.abort_transaction()
    finally:
        await set_level(cluster, 2)
    assert await values(cluster, topic, 3) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("level", [1, 2])
async def test_answers_that_are_lost_change_nothing(
    cluster: Cluster, servers: str, level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every request of a transaction may have been done although its answer never came."""
    topic, chance = f"lossy-{level}", random.Random(level)
    lossy = {each.API for each in TRANSACTION_MESSAGES}
    lost: list[str] = []
    monkeypatch.setattr(transaction_calls, "FIRST_BACKOFF", 0.01)
    whole = Connection.request

    async def request(self: Connection, api: Api, *arguments: Any, **options: Any) -> Any:
        answer = await whole(self, api, *arguments, **options)
        if api in lossy and chance.random() < 0.3:
            lost.append(api.name)
            raise BrokerUnreachable("the answer is lost")
        return answer

    await Admin(cluster).create_topic(topic, partitions=2)
    await set_level(cluster, level)
    try:
        async with Cluster(servers) as own, TransactionalProducer(own, topic) as producer:
            monkeypatch.setattr(Connection, "request", request)
            await producer.init_transactions()
            for n in range(20):
                await producer.begin_transaction()
                for partition in (0, 1, 0):
                    await producer.send(topic, b"%02d" % n, partition=partition)
                await producer.send_offsets_to_transaction({(topic, 0): n}, topic)
                await (
                    producer.abort_transaction() if n % 3 == 1 else producer.commit_transaction()
                )
    finally:
        monkeypatch.undo()
        await set_level(cluster, 2)
    assert {"Produce", "EndTxn", "TxnOffsetCommit"} <= set(lost)
    committed = [b"%02d" % n for n in range(20) if n % 3 != 1 for _ in range(3)]
    assert await values(cluster, topic, len(committed)) == committed
    assert await fetch_offsets(cluster, topic, require_stable=True) == {(topic, 0): 18}


async def test_what_is_registered_in_advance_is_all_that_is_written(
    cluster: Cluster, servers: str, topic: str, request: pytest.FixtureRequest
) -> None:
    del servers
    async with TransactionalProducer(cluster, topic) as producer:
        await producer.init_transactions()
        if "kafka" in request.node.callspec.id:
            with pytest.raises(KafkaError) as caught:
                await producer.begin_transaction({(topic, 0)}, "group")
            assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
            assert producer.state is State.READY
            return
        async with producer.transaction({(topic, 1)}, "registered"):
            with pytest.raises(KafkaError) as caught:
                await producer.send(topic, b"never", partition=0)
            assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            with pytest.raises(KafkaError) as caught:
                await producer.send_offsets_to_transaction({(topic, 0): 1}, "another")
            assert caught.value.code is ErrorCode.INVALID_GROUP_ID
            for n in range(4):
                await producer.send(topic, b"%d" % n)
            await producer.send_offsets_to_transaction({(topic, 0): 7}, "registered")
        # What was registered for nothing gets no marker: the next offset is that of a record.
        async with producer.transaction({(topic, 0), (topic, 1)}, "registered"):
            await producer.send(topic, b"4", partition=1)
        async with producer.transaction({(topic, 0)}):
            untouched = await producer.send(topic, b"5", partition=0)
    assert untouched.result().offset == 0
    messages = await read(cluster, topic, 6)
    assert sorted(message.value or b"" for message in messages) == [b"%d" % n for n in range(6)]
    stable = await fetch_offsets(cluster, "registered", require_stable=True)
    assert stable == {(topic, 0): 7}


async def test_consume_transform_produce_with_crashes_does_each_record_once(
    cluster: Cluster, servers: str, topic: str
) -> None:
    """Every instance dies in its third transaction, with records and offsets already sent."""
    source, total, step = f"{topic}-in", 120, 10
    await Admin(cluster).create_topic(source, partitions=2)
    async with Producer(cluster) as plain:
        for n in range(total):
            await plain.send(source, b"%03d" % n, partition=n % 2)

    async def instance(life: int) -> bool:
        """True when there is nothing left to do."""
        async with Cluster(servers) as own:
            settings = FetchSettings(max_wait=0.1, offset_reset=EARLIEST, partition_max_bytes=400)
            consumer = Consumer(own, settings)
            producer = TransactionalProducer(own, topic, ProducerSettings(batch_size=100))
            await producer.init_transactions()
            async with GroupMember(own, consumer, topic, [source]) as member:
                if life == 1:
                    await member.ensure_joined()
                    await consumer.poll()
                    await producer.begin_transaction()
                    await producer.send(topic, b"never")
                    await producer.abort_transaction()
                    await member.rewind()
                for round_ in range(3):
                    await member.ensure_joined()
                    messages = (await consumer.poll())[:step]
                    if not messages and round_ == 0 and life > 0:
                        return True
                    await producer.begin_transaction()
                    for message in messages:
                        await producer.send(topic, message.value, partition=message.partition)
                    places = {(m.topic, m.partition): m.offset + 1 for m in messages}
                    consumer.assign({**consumer.positions, **places})
                    await producer.send_offsets_to_transaction(places, member.metadata)
                    if round_ == 2:
                        await producer.flush()
                        await producer.abandon()
                        return False
                    await producer.commit_transaction()
        return False

    life = 0
    while not await instance(life):
        life += 1
    assert await values(cluster, topic, total) == [b"%03d" % n for n in range(total)]
