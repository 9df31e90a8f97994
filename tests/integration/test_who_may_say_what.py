"""Requests of brokers are neither announced nor served on a client listener, in any version."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.app import Broker
from barnabas.broker.replication.leader import fetch_session
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.header import encode_request_header
from barnabas.protocol.messages import (
    allocate_producer_ids,
    alter_partition,
    controlled_shutdown,
    envelope,
    expect_producers,
    fetch,
    leader_and_isr,
    stop_replica,
    update_metadata,
)
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from barnabas.protocol.schema import Api
from tests.support.data_path import batch
from tests.support.in_cluster import BROKERS, CLIENTS, connected_to, member, shared_metadata

ONLY_BROKERS = (
    leader_and_isr.API,
    stop_replica.API,
    update_metadata.API,
    controlled_shutdown.API,
    alter_partition.API,
    allocate_producer_ids.API,
    envelope.API,
    expect_producers.API,
)
STATES_SINCE = 15
"""The first Fetch version in which the broker epoch too identifies a follower (KIP-903)."""


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with (
        shared_metadata(tmp_path / "metadata") as store,
        member(store, tmp_path, default_replication_factor=1) as broker,
    ):
        yield broker


async def is_cut(port: int, api: Api, version: int) -> bool:
    """Return whether the start of a request closes the connection without a response."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = encode_request_header(api.key, version, 1, "c") + bytes(64)
    writer.write(len(body).to_bytes(4, "big") + body)
    answer = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    return not answer


@pytest.mark.parametrize("api", ONLY_BROKERS, ids=lambda api: api.name)
async def test_inter_broker_request_of_a_client_closes_its_connection(
    broker: Broker, api: Api
) -> None:
    for version in range(api.versions[-1] + 2):
        assert await is_cut(broker.port, api, version)
    async with connected_to(broker, CLIENTS) as client, connected_to(broker, BROKERS) as between:
        assert api.key not in client.connection.broker_versions
        assert api.key in between.connection.broker_versions


async def test_follower_fetch_of_a_client_is_refused(
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
    """Return a Fetch of broker 7 as a follower that has all records up to offset 9."""
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
