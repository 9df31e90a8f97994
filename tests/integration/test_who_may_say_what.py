"""What only brokers may say is neither announced nor served where clients are, in any version."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.app import Broker
from barnabas.broker.replication import fetch_session
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.header import encode_request_header
from barnabas.protocol.messages import (
    allocate_producer_ids,
    alter_partition,
    controlled_shutdown,
    fetch,
    leader_and_isr,
    stop_replica,
    update_metadata,
)
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from barnabas.protocol.schema import Api
from tests.integration.data_path import batch
from tests.integration.in_cluster import BROKERS, CLIENTS, connected_to, member, shared_metadata

ONLY_BROKERS = (
    leader_and_isr.API,
    stop_replica.API,
    update_metadata.API,
    controlled_shutdown.API,
    alter_partition.API,
    allocate_producer_ids.API,
)
STATES_SINCE = 15
"""Fetch: by its broker epoch too a follower is known from then on (KIP-903)."""


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with (
        shared_metadata(tmp_path / "metadata") as store,
        member(store, tmp_path, default_replication_factor=1) as broker,
    ):
        yield broker


async def is_cut(port: int, api: Api, version: int) -> bool:
    """Whether a frame that begins as a request of that kind ends the connection, unanswered."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = encode_request_header(api.key, version, 1, "c") + bytes(64)
    writer.write(len(body).to_bytes(4, "big") + body)
    answer = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    return not answer


@pytest.mark.parametrize("api", ONLY_BROKERS, ids=lambda api: api.name)
async def test_what_only_brokers_may_say_ends_a_clients_connection(
    broker: Broker, api: Api
) -> None:
    for version in range(api.versions[-1] + 2):
        assert await is_cut(broker.port, api, version)
    async with connected_to(broker, CLIENTS) as client, connected_to(broker, BROKERS) as between:
        assert api.key not in client.connection.broker_versions
        assert api.key in between.connection.broker_versions


async def test_a_client_that_claims_to_be_a_follower_is_refused(
    broker: Broker,
) -> None:
    async with connected_to(broker, CLIENTS) as client:
        topic_id = await client.create()
        await client.produce(batch(b"a"))
        for version in range(4, fetch.API.versions[-1] + 1):
            answer = await client.connection.request(
                fetch.API, as_follower(topic_id, version), version=version
            )
            codes = {each.error_code for topic in answer.responses for each in topic.partitions}
            assert (codes or {answer.error_code}) == {ErrorCode.NOT_LEADER_OR_FOLLOWER}


def as_follower(topic_id: bytes, version: int) -> FetchRequest:
    """Of broker 7, which has everything up to offset 9."""
    partitions = [FetchPartition(partition=0, fetch_offset=9, partition_max_bytes=1)]
    by_id = version >= fetch_session.TOPIC_IDS_SINCE
    topic = (
        FetchTopic(topic_id=topic_id, partitions=partitions)
        if by_id
        else FetchTopic(topic="t", partitions=partitions)
    )
    who: dict[str, Any] = (
        {"replica_state": ReplicaState(replica_id=7, replica_epoch=1)}
        if version >= STATES_SINCE
        else {"replica_id": 7}
    )
    return FetchRequest(**who, max_wait_ms=0, min_bytes=1, topics=[topic])
