"""The transaction protocol that our client uses, on both brokers, and lost responses."""

import asyncio

import pytest

from barnabas.client.admin import SAFE_DOWNGRADE, UPGRADE, Admin, finalized_features, update_feature
from barnabas.client.cluster import Cluster
from barnabas.client.groups.offsets import fetch_offsets
from barnabas.client.transactional_producer import AbortableError, TransactionalProducer
from barnabas.client.transactions import requests as transaction_calls
from barnabas.protocol import backoff
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    end_txn,
    init_producer_id,
    produce,
    txn_offset_commit,
)
from tests.integration.reading import values
from tests.support.lost_answers import lose_answers

TRANSACTION_MESSAGES = (
    produce,
    init_producer_id,
    add_partitions_to_txn,
    add_offsets_to_txn,
    txn_offset_commit,
    end_txn,
)
LEVEL = "transaction.version"


async def set_level(cluster: Cluster, level: int) -> None:
    before = (await finalized_features(cluster)).get(LEVEL, 0)
    if level == before:
        return
    change = SAFE_DOWNGRADE if level < before else UPGRADE
    await update_feature(cluster, LEVEL, level, change=change)
    while (await finalized_features(cluster)).get(LEVEL, 0) != level:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def test_producer_uses_the_transaction_protocol_of_the_finalized_level(
    cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_calls, "FEATURES_AGE", 0.0)

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
            # Raised while a transaction is open: it ends in the protocol in which it began.
            await set_level(cluster, 1)
            await producer.begin_transaction()
            await producer.send(topic, b"5", partition=0)
            await set_level(cluster, 2)
            await producer.commit_transaction()
            # Lowered while a transaction is open: it has to be aborted and begun again.
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
    """Its sequences are unknown then, and the older protocol keeps sequences across
    transactions."""
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
async def test_lost_responses_of_transaction_requests_change_nothing(
    cluster: Cluster, servers: str, level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction's request may have been carried out although its response was lost."""
    topic = f"lossy-{level}"
    monkeypatch.setattr(backoff, "FIRST", 0.01)
    await Admin(cluster).create_topic(topic, partitions=2)
    await set_level(cluster, level)
    try:
        async with Cluster(servers) as own, TransactionalProducer(own, topic) as producer:
            apis = [each.API for each in TRANSACTION_MESSAGES]
            lost = lose_answers(monkeypatch, apis, level)
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
