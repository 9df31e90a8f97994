"""A transaction belongs to its transactional id and to its principal: another one that may write to
the same topics, and even under the same transactional id, cannot write in its place."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.app import Broker
from barnabas.client.connection import Connection
from barnabas.client.security import connect_with
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    end_txn,
    find_coordinator,
    init_producer_id,
    txn_offset_commit,
)
from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas.security.acl.rules import new_rule
from tests.support.data_path import Client, batch, running
from tests.support.waiting import eventually

JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'user_alice="alice" user_mallory="mallory";'
)
MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING
OLDER, NEWER = 11, 12
"""Versions of Produce: leaders verify that partitions were added, or add them."""
Producer = tuple[int, int]


@asynccontextmanager
async def opened(directory: Path) -> AsyncIterator[Broker]:
    keys = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.jaas.config": JAAS,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:root",
        "transaction.state.log.num.partitions": "1",
        "offsets.topic.num.partitions": "1",
    }
    async with running(directory, properties=keys) as running_broker:
        core = running_broker._core
        assert core.acls is not None
        await core.acls.create(
            [
                *(new_rule(kind, "*", 3, "User:*", "*", 3, 3) for kind in (2, 3)),
                *(new_rule(kind, "*", 3, "User:*", "*", 4, 3) for kind in (2, 5)),
                new_rule(4, "kafka-cluster", 3, "User:*", "*", 5, 3),
            ]
        )
        yield running_broker


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with opened(tmp_path) as running_broker:
        yield running_broker


class User:
    """A client with its own principal, and the same rights as any other."""

    def __init__(self, connection: Connection) -> None:
        self.client = Client(connection)
        self._ask = connection.request

    async def find_coordinators(self, id: str = "x") -> None:
        """Wait for the coordinators of a transactional id and of the group."""

        async def ready() -> bool:
            for key, kind in ((id, 1), ("g", 0)):
                asked = FindCoordinatorRequest(key=key, key_type=kind)
                answer = await self._ask(find_coordinator.API, asked, version=3)
                if answer.error_code:
                    return False
            return True

        await eventually(ready)

    async def begin(self, id: str = "x") -> Producer:
        async def given() -> Any:
            request = InitProducerIdRequest(transactional_id=id, transaction_timeout_ms=60_000)
            answer = await self._ask(init_producer_id.API, request, version=4)
            return None if answer.error_code else answer

        await self.find_coordinators(id)
        answer = await eventually(given)
        return answer.producer_id, answer.producer_epoch

    async def add(self, producer: Producer, id: str = "x", topic: str = "t") -> int:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=id,
            v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])],
        )
        answer = await self._ask(add_partitions_to_txn.API, request, version=3)
        (found,) = answer.results_by_topic_v3_and_below
        return int(found.results_by_partition[0].partition_error_code)

    async def produce(
        self, producer: Producer, version: int, id: str | None = "x", **more: Any
    ) -> int:
        options = {"base_sequence": 0, "transactional": id is not None, "topic": "t"} | more
        topic = options.pop("topic")
        records = batch(b"v", producer_id=producer[0], producer_epoch=producer[1], **options)
        answer = await self.client.produce(
            records, topic=topic, version=version, transactional_id=id
        )
        return int(answer.error_code)

    async def add_offsets(self, producer: Producer, id: str = "x") -> int:
        request = AddOffsetsToTxnRequest(
            transactional_id=id, producer_id=producer[0], producer_epoch=producer[1], group_id="g"
        )
        return int((await self._ask(add_offsets_to_txn.API, request, version=3)).error_code)

    async def commit_offsets(self, producer: Producer, version: int, id: str = "x") -> int:
        offset = TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=7, committed_metadata=""
        )
        request = TxnOffsetCommitRequest(
            transactional_id=id,
            producer_id=producer[0],
            producer_epoch=producer[1],
            group_id="g",
            topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[offset])],
        )
        answer = await self._ask(txn_offset_commit.API, request, version=version)
        return int(answer.topics[0].partitions[0].error_code)

    async def end(self, producer: Producer, version: int, id: str = "x") -> int:
        request = EndTxnRequest(
            transactional_id=id, producer_id=producer[0], producer_epoch=producer[1], committed=True
        )
        return int((await self._ask(end_txn.API, request, version=version)).error_code)


@asynccontextmanager
async def users_of(broker: Broker) -> AsyncIterator[tuple[User, User]]:
    async with AsyncExitStack() as stack:
        found = []
        for name in ("alice", "mallory"):
            keys = {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": name,
                "sasl.password": name,
            }
            connection = await Connection.open(
                "127.0.0.1", broker.port, connect=connect_with(keys), timeout=5
            )
            stack.push_async_callback(connection.close)
            found.append(User(connection))
        alice, mallory = found
        yield alice, mallory


@pytest.fixture
async def users(broker: Broker) -> AsyncIterator[tuple[User, User]]:
    async with users_of(broker) as found:
        for topic in ("t", "u"):
            await found[0].client.create(topic)
        yield found


@pytest.mark.parametrize("id", ["x", "mallorys"])
async def test_older_protocol(users: tuple[User, User], id: str) -> None:
    alice, mallory = users
    producer = await alice.begin()
    await mallory.begin("mallorys")
    assert await mallory.add(producer, id) == MAPPING
    assert await alice.add(producer) == 0
    assert await mallory.produce(producer, OLDER, id) == MAPPING
    assert await alice.produce(producer, OLDER) == 0
    # Its transaction is open here.
    assert await mallory.produce(producer, OLDER, id, base_sequence=1) == MAPPING
    assert await mallory.produce(producer, OLDER, None, base_sequence=1) != 0
    assert await mallory.add(producer, id, "u") == MAPPING
    assert await mallory.add_offsets(producer, id) == MAPPING
    assert await alice.add_offsets(producer) == 0
    assert await mallory.commit_offsets(producer, 3, id) == MAPPING
    assert await alice.commit_offsets(producer, 3) == 0
    assert await mallory.commit_offsets(producer, 3, id) == MAPPING
    assert await mallory.end(producer, 4, id) == MAPPING
    assert await alice.produce(producer, OLDER, base_sequence=1) == 0
    assert await alice.end(producer, 4) == 0


async def test_owner_is_known_after_a_restart(tmp_path: Path) -> None:
    async with opened(tmp_path) as broker, users_of(broker) as (alice, _):
        for topic in ("t", "u"):
            await alice.client.create(topic)
        producer = await alice.begin()
        assert await alice.produce(producer, NEWER) == 0
    async with opened(tmp_path) as broker, users_of(broker) as (alice, mallory):
        await alice.find_coordinators()
        assert await mallory.produce(producer, NEWER, topic="u") == MAPPING
        assert await mallory.end(producer, 5) == MAPPING
        assert await alice.end(producer, 5) == 0


@pytest.mark.parametrize("id", ["x", "mallorys"])
async def test_newer_protocol(users: tuple[User, User], id: str) -> None:
    alice, mallory = users
    producer = await alice.begin()
    await mallory.begin("mallorys")
    assert await mallory.produce(producer, NEWER, id) == MAPPING
    assert await alice.produce(producer, NEWER) == 0
    assert await mallory.produce(producer, NEWER, id, base_sequence=1) == MAPPING
    assert await mallory.produce(producer, NEWER, id, topic="u") == MAPPING
    assert await mallory.commit_offsets(producer, 5, id) == MAPPING
    assert await alice.commit_offsets(producer, 5) == 0
    assert await mallory.commit_offsets(producer, 5, id) == MAPPING
    assert await mallory.end(producer, 5, id) == MAPPING
    assert await alice.produce(producer, NEWER, base_sequence=1) == 0
    assert await alice.end(producer, 5) == 0


async def test_principal_that_takes_the_transactional_id_over_owns_it(
    users: tuple[User, User],
) -> None:
    alice, mallory = users
    before = await alice.begin()
    after = await mallory.begin()
    assert await mallory.add(after) == 0
    assert await alice.add(before) != 0
    assert await alice.add(after) == MAPPING
