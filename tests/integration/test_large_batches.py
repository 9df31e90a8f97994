"""Batches of many records on a topic that has them validated, beside other requests."""

import asyncio
import socket
import struct
import time
from pathlib import Path

import pytest

from barnabas.client.connection import BrokerUnreachable, Connection
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import produce
from barnabas.protocol.records.compression import Compression
from barnabas.protocol.records.record import Record, build_batch
from tests.support.data_path import NOW_MS, batch, connected, running
from tests.support.machine import bound
from tests.support.waiting import eventually

MANY = 200_000
LONGEST_GAP = 0.1
"""CPU seconds of the loop's thread, on any machine: 0.4 without steps, 0.002 with them."""


def many_records(compression: Compression = Compression.ZSTD) -> bytes:
    one = Record(0, NOW_MS, b"k", b"", ())
    records = [one._replace(offset=number) for number in range(MANY)]
    return build_batch(records, compression=compression)


class Gaps:
    """The longest work between two iterations of the event loop."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._last = time.thread_time()
        self._task = asyncio.ensure_future(self._watch())

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            self.longest, self._last = max(self.longest, now - self._last), now

    def stop(self) -> None:
        self._task.cancel()


async def test_event_loop_is_not_blocked_while_many_records_are_validated(tmp_path: Path) -> None:
    data = many_records()
    async with running(tmp_path) as broker, connected(broker) as client, connected(broker) as other:
        await client.create(cleanup_policy="compact")
        await other.create("elsewhere")
        gaps = Gaps()
        large = asyncio.ensure_future(client.produce(data))
        served = 0
        while not large.done():
            assert (await other.produce(batch(b"x"), topic="elsewhere")).error_code == 0
            served += 1
        gaps.stop()
        assert (await large).base_offset == 0
        assert served > 10
        assert gaps.longest < bound(LONGEST_GAP)
        assert (await client.list_offset(-1)).offset == MANY


async def test_batches_after_a_large_batch_are_appended_after_it(tmp_path: Path) -> None:
    data = many_records()
    small = build_batch([Record(0, NOW_MS, b"k", b"", ())])
    async with running(tmp_path) as broker, connected(broker) as client, connected(broker) as other:
        await client.create(cleanup_policy="compact")
        large = asyncio.ensure_future(client.produce(data))
        waiting = broker._replication.replicas.partition("t", 0).appends
        await eventually(lambda: waiting)
        mine = asyncio.ensure_future(client.produce(small))
        theirs = await other.produce(small)
        assert (await large).base_offset == 0
        assert sorted([theirs.base_offset, (await mine).base_offset]) == [MANY, MANY + 1]


async def test_a_large_batch_without_acks_that_is_refused_closes_the_connection(
    tmp_path: Path,
) -> None:
    records = [Record(number, NOW_MS, None, b"", ()) for number in range(1000)]
    async with running(tmp_path) as broker, connected(broker) as client, connected(broker) as other:
        await client.create(cleanup_policy="compact")
        data = produce.PartitionProduceData(index=0, records=build_batch(records))
        topic = produce.TopicProduceData(name="t", partition_data=[data])
        client.connection.broker_versions[produce.API.key] = range(3, 13)
        await client.connection.send_only(
            produce.API, produce.ProduceRequest(acks=0, timeout_ms=1000, topic_data=[topic])
        )
        with pytest.raises(BrokerUnreachable):
            await client.list_offset(-1)
        assert (await other.produce(build_batch(records))).error_code == ErrorCode.INVALID_RECORD


def reset(connection: Connection) -> None:
    """Reset the connection: one that is closed in order still gets its outstanding responses."""
    transport = connection._transport
    assert transport is not None
    linger = struct.pack("ii", 1, 0)
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    transport.abort()


async def test_large_batch_of_a_closed_connection_is_dropped(tmp_path: Path) -> None:
    data = many_records()
    async with running(tmp_path) as broker, connected(broker) as client, connected(broker) as other:
        await client.create(cleanup_policy="compact")
        large = asyncio.ensure_future(client.produce(data))
        waiting = broker._replication.replicas.partition("t", 0).appends
        await eventually(lambda: waiting)
        reset(client.connection)
        with pytest.raises(BrokerUnreachable):
            await large
        await eventually(lambda: not waiting)
        assert (await other.list_offset(-1)).offset == 0
