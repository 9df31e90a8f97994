"""Transactions of Barnabas's own client: the same tests on Barnabas and on Apache Kafka."""

import pytest

from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Consumer, FetchSettings
from barnabas.client.group import GroupMember
from barnabas.client.groups.offsets import fetch_offsets
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
from tests.integration.reading import read, values


async def test_committed_records_are_read_and_aborted_ones_are_not(
    cluster: Cluster, topic: str
) -> None:
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


async def test_transactional_calls_in_the_wrong_order_raise(cluster: Cluster, topic: str) -> None:
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


async def test_fenced_instance_is_told_by_its_produce(cluster: Cluster, topic: str) -> None:
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


async def test_read_committed_end_offset_is_the_last_stable_offset(
    cluster: Cluster, topic: str
) -> None:
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
        gone = GroupMetadata(group, 3, "absent")
        with pytest.raises(AbortableError) as caught:
            await producer.send_offsets_to_transaction({place: 9}, gone)
        assert caught.value.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
        await producer.abort_transaction()
        assert await fetch_offsets(cluster, group, [place], require_stable=True) == {place: 5}


async def test_only_partitions_registered_in_advance_can_be_written(
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
        # A partition that was registered but not written gets no marker: the next offset is a
        # record's.
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
    """Every instance crashes in its third transaction, after it has sent records and offsets."""
    source, total, step = f"{topic}-in", 120, 10
    await Admin(cluster).create_topic(source, partitions=2)
    async with Producer(cluster) as plain:
        for n in range(total):
            await plain.send(source, b"%03d" % n, partition=n % 2)

    async def instance(life: int) -> bool:
        """Return True when no record is left to copy."""
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
