"""Two-phase commit of our client (KIP-939), on a broker that serves it."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from barnabas.client.admin import SAFE_DOWNGRADE, UPGRADE, Admin, finalized_features, update_feature
from barnabas.client.cluster import Cluster
from barnabas.client.producer import EncodedBatch
from barnabas.client.producing.partition_queue import ProducerIdAndEpoch
from barnabas.client.transaction_admin import TransactionAdmin, client_of, is_two_phase
from barnabas.client.transactional_producer import (
    AbortableError,
    FatalError,
    PreparedTransaction,
    State,
    TransactionalProducer,
    TransactionStateError,
)
from barnabas.client.transactions import requests as transaction_calls
from barnabas.client.two_phase import InitialisedProducer, end_transaction, init_producer_id
from barnabas.protocol import backoff
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import end_txn
from barnabas.protocol.messages import init_producer_id as init_message
from barnabas.protocol.records.record import Record, build_batch
from barnabas.testing import Broker
from tests.integration.reading import values
from tests.support.lost_answers import lose_answers
from tests.support.topic_names import topic_name

ENABLED = {"transaction.two.phase.commit.enable": "true"}
LEVEL = "transaction.version"
DEADLINE = 30.0


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker(ENABLED) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
async def cluster(servers: str) -> AsyncIterator[Cluster]:
    async with Cluster(servers) as cluster, asyncio.timeout(DEADLINE):
        yield cluster


@pytest.fixture
async def topic(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    name = topic_name(request)
    await Admin(cluster).create_topic(name, partitions=2)
    return name


async def set_level(cluster: Cluster, level: int) -> None:
    change = UPGRADE if level == 2 else SAFE_DOWNGRADE
    await update_feature(cluster, LEVEL, level, change=change)
    while (await finalized_features(cluster)).get(LEVEL, 0) != level:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def prepared(cluster: Cluster, topic: str, *written: bytes) -> PreparedTransaction:
    """Prepare a transaction with one record in each partition, in a producer that then crashes."""
    producer = TransactionalProducer(cluster, topic, two_phase=True)
    await producer.init_transactions()
    await producer.begin_transaction()
    for partition, value in enumerate(written):
        await producer.send(topic, value, partition=partition)
    decided = await producer.prepare_transaction()
    await producer.abandon()
    return decided


async def opened(cluster: Cluster, topic: str, value: bytes) -> ProducerIdAndEpoch:
    """Begin an ordinary transaction in a producer that then crashes; return its producer."""
    producer = TransactionalProducer(cluster, topic)
    await producer.init_transactions()
    await producer.begin_transaction()
    await (await producer.send(topic, value, partition=0))
    row = await TransactionAdmin(cluster).describe(topic)
    await producer.abandon()
    return ProducerIdAndEpoch(row.producer_id, row.producer_epoch)


@pytest.mark.parametrize("commits", [True, False])
async def test_prepared_transaction_is_completed_as_decided(
    cluster: Cluster, topic: str, commits: bool
) -> None:
    async with TransactionalProducer(cluster, topic, two_phase=True) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        sent = [await producer.send(topic, b"a", partition=n) for n in range(2)]
        decided = await producer.prepare_transaction()
        assert all(each.done() for each in sent)
        assert producer.state is State.PREPARED
        await producer.complete_transaction(
            decided if commits else decided._replace(epoch=decided.epoch + 1)
        )
        assert producer.state is State.READY
        with pytest.raises(TransactionStateError, match="no transaction is prepared"):
            await producer.complete_transaction(decided)
        async with producer.transaction():
            await producer.send(topic, b"b", partition=0)
    assert (
        await values(cluster, topic, 3 if commits else 1)
        == [b"a", b"a", b"b"][-3 if commits else -1 :]
    )


@pytest.mark.parametrize("commits", [True, False])
async def test_next_instance_completes_the_transaction_of_one_that_crashed(
    cluster: Cluster, topic: str, commits: bool
) -> None:
    text = str(await prepared(cluster, topic, b"a", b"b"))
    decided = PreparedTransaction.parse(text if commits else "7:7")
    async with TransactionalProducer(cluster, topic, two_phase=True) as crashed:
        await crashed.init_transactions(keep_prepared=True)
        assert crashed.state is State.PREPARED
    async with TransactionalProducer(cluster, topic, two_phase=True) as producer:
        await producer.init_transactions(keep_prepared=True)
        await producer.complete_transaction(decided)
        async with producer.transaction():
            await producer.send(topic, b"c", partition=1)
    expected = [b"a", b"b", b"c"] if commits else [b"c"]
    assert await values(cluster, topic, len(expected)) == expected


async def test_prepared_transaction_can_only_be_ended(cluster: Cluster, topic: str) -> None:
    await prepared(cluster, topic, b"a")
    async with TransactionalProducer(cluster, topic, two_phase=True) as producer:
        await producer.init_transactions(keep_prepared=True)
        for call in (
            lambda: producer.send(topic, b"never", partition=0),
            producer.begin_transaction,
            producer.prepare_transaction,
            producer.init_transactions,
            lambda: producer.send_offsets_to_transaction({(topic, 0): 1}, "group"),
        ):
            with pytest.raises(TransactionStateError):
                await call()
        await producer.commit_transaction()
        assert producer.state is State.READY
    assert await values(cluster, topic, 1) == [b"a"]


async def test_keeping_nothing_gives_a_ready_producer(cluster: Cluster, topic: str) -> None:
    async with TransactionalProducer(cluster, topic, two_phase=True) as producer:
        await producer.init_transactions(keep_prepared=True)
        assert producer.state is State.READY
        with pytest.raises(TransactionStateError, match="no transaction is prepared"):
            await producer.complete_transaction(PreparedTransaction(1, 1))
        async with producer.transaction():
            await producer.send(topic, b"a")
    assert await values(cluster, topic, 1) == [b"a"]


async def test_prepared_transaction_without_records_is_completed(
    cluster: Cluster, topic: str
) -> None:
    async with TransactionalProducer(cluster, topic, two_phase=True) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.complete_transaction(await producer.prepare_transaction())
        assert producer.state is State.READY


async def test_refused_record_fails_the_preparation(cluster: Cluster) -> None:
    topic = "tiny"
    await Admin(cluster).create_topic(topic, partitions=2, configs={"max.message.bytes": "500"})
    async with TransactionalProducer(cluster, topic, two_phase=True) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send(topic, bytes(1000), partition=0)
        with pytest.raises(AbortableError) as caught:
            await producer.prepare_transaction()
        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send(topic, b"a", partition=0)
    assert await values(cluster, topic, 1) == [b"a"]


async def test_preparing_needs_a_two_phase_producer(cluster: Cluster, topic: str) -> None:
    async with TransactionalProducer(cluster, topic) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        with pytest.raises(TransactionStateError, match="two_phase=True"):
            await producer.prepare_transaction()


@pytest.mark.parametrize("keep", [False, True])
async def test_missing_two_phase_commit_is_named(cluster: Cluster, topic: str, keep: bool) -> None:
    key = r"set transaction\.two\.phase\.commit\.enable=true on every broker"
    async with Broker() as other:
        async with Cluster(other.bootstrap_servers) as without:
            producer = TransactionalProducer(without, topic, two_phase=not keep)
            with pytest.raises(FatalError, match=key) as caught:
                await producer.init_transactions(keep_prepared=keep)
            assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
            with pytest.raises(KafkaError, match=key):
                await init_producer_id(without, topic, 1000, two_phase=not keep, keep_prepared=keep)
    await set_level(cluster, 1)
    try:
        with pytest.raises(KafkaError, match=r"transaction\.version 2") as refused:
            await init_producer_id(cluster, topic, 1000, two_phase=not keep, keep_prepared=keep)
        assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
    finally:
        await set_level(cluster, 2)


async def test_only_the_client_that_kept_a_transaction_last_ends_it(
    cluster: Cluster, topic: str
) -> None:
    ongoing = await opened(cluster, topic, b"a")

    async def keep(**options: Any) -> InitialisedProducer:
        return await init_producer_id(cluster, topic, 60_000, keep_prepared=True, **options)

    async def code(producer: ProducerIdAndEpoch, *, committed: bool = True) -> ErrorCode:
        with pytest.raises(KafkaError) as caught:
            await end_transaction(cluster, topic, producer, committed=committed)
        assert type(caught.value) is KafkaError
        return caught.value.code

    first, last = await keep(), await keep(two_phase=True)
    assert first.ongoing == last.ongoing == ongoing
    assert first.client.epoch < last.client.epoch
    for other in (ongoing, first.client):
        assert await code(other) is ErrorCode.PRODUCER_FENCED
    assert (await code(ProducerIdAndEpoch(ongoing.producer_id + 50, 0))) is (
        ErrorCode.INVALID_PRODUCER_ID_MAPPING
    )
    following = await end_transaction(cluster, topic, last.client, committed=True)
    assert following.epoch > last.client.epoch
    assert await end_transaction(cluster, topic, last.client, committed=True) == following
    assert await code(last.client, committed=False) is ErrorCode.INVALID_TXN_STATE
    assert await values(cluster, topic, 1) == [b"a"]
    assert (await keep()).ongoing is None


async def test_init_without_keep_aborts_and_waits_for_the_markers(
    cluster: Cluster, topic: str
) -> None:
    await prepared(cluster, topic, b"never")
    given = await init_producer_id(cluster, topic, 60_000)
    assert given.ongoing is None
    row = await TransactionAdmin(cluster).describe(topic)
    assert (row.transaction_state, row.producer_epoch) == ("Empty", given.client.epoch)


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("commits", [True, False])
async def test_ordinary_transaction_is_ended_in_either_protocol(
    cluster: Cluster, topic: str, level: int, commits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_calls, "FEATURES_AGE", 0.0)
    if level == 1:
        await set_level(cluster, level)
    try:
        producer = await opened(cluster, topic, b"a")
        following = await end_transaction(cluster, topic, producer, committed=commits)
        assert (following == producer) is (level == 1)
        async with TransactionalProducer(cluster, topic) as other:
            await other.init_transactions()
            async with other.transaction():
                await other.send(topic, b"b", partition=0)
    finally:
        if level == 1:
            await set_level(cluster, 2)
    expected = [b"a", b"b"] if commits else [b"b"]
    assert await values(cluster, topic, len(expected)) == expected


async def test_whole_batches_are_sent_in_the_older_protocol(cluster: Cluster, topic: str) -> None:
    data = bytearray(build_batch([Record(0, 1, None, b"a"), Record(1, 1, None, b"b")]))
    await set_level(cluster, 1)
    try:
        async with TransactionalProducer(cluster, topic) as producer:
            await producer.init_transactions()
            async with producer.transaction():
                assert not producer.speaks_newer_protocol
                sent = await producer.send_batch(topic, 1, EncodedBatch(data, 2))
            assert sent.result().offset == 0
    finally:
        await set_level(cluster, 2)
    assert await values(cluster, topic, 2) == [b"a", b"b"]


async def test_lost_responses_of_two_phase_requests_change_nothing(
    cluster: Cluster, servers: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backoff, "FIRST", 0.001)
    lost = lose_answers(monkeypatch, (init_message.API, end_txn.API), 5)
    async with Cluster(servers) as own:
        for n in range(15):
            decided = await prepared(own, topic, b"%02d" % n)
            async with TransactionalProducer(own, topic, two_phase=True) as producer:
                await producer.init_transactions(keep_prepared=True)
                await producer.complete_transaction(
                    PreparedTransaction(0, 0) if n % 3 == 1 else decided
                )
    assert {*lost} == {"InitProducerId", "EndTxn"}
    committed = [b"%02d" % n for n in range(15) if n % 3 != 1]
    assert await values(cluster, topic, len(committed)) == committed


@pytest.mark.xdist_group("client-on-kafka")
async def test_apache_kafka_prepares_and_does_not_keep(kafka_for_clients: str) -> None:
    async with Cluster(kafka_for_clients) as cluster, asyncio.timeout(DEADLINE):
        topic = "prepared-on-kafka"
        await Admin(cluster).create_topic(topic, partitions=2)
        async with TransactionalProducer(cluster, topic, two_phase=True) as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            await producer.send(topic, b"a", partition=0)
            decided = await producer.prepare_transaction()
            (row,) = await TransactionAdmin(cluster).open_under(topic)
            assert (is_two_phase(row), client_of(row)) == (True, decided)
            text = "Apache Kafka 4.4 cannot keep a prepared transaction"
            with pytest.raises(KafkaError, match=text) as caught:
                await init_producer_id(cluster, topic, 60_000, keep_prepared=True)
            assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
            await producer.complete_transaction(decided)
        assert await values(cluster, topic, 1) == [b"a"]


@pytest.mark.parametrize("text", ["", "7", "7:", ":7", "7:x", "-1:-1", "1:2:3"])
def test_text_that_is_no_prepared_transaction_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="give PRODUCER_ID:EPOCH"):
        PreparedTransaction.parse(text)
