"""Fetch: what one answer holds, and when a parked one is given."""

import asyncio
from typing import Any

from barnabas.broker.handlers.fetch import FetchHandler
from barnabas.broker.replication.fetch_lookup import FetchLookup
from barnabas.broker.replication.fetch_session import FetchSessionCache
from barnabas.broker.replication.follower_read import FollowerServices
from barnabas.broker.replication.replica_selector import ReplicaSelector
from barnabas.broker.server.context import RequestContext
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import (
    API,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
)
from barnabas.protocol.records.control import ControlType, Marker, build_marker
from barnabas.protocol.records.record import Record, build_batch
from barnabas.storage.validator import Origin
from barnabas.storage.verification import UNVERIFIED
from tests.unit.broker.replication.replicas import Replicas


class Reading:
    """A partition that this broker leads, and a consumer of it."""

    def __init__(self, replicas: Replicas, handler: FetchHandler) -> None:
        self.replicas = replicas
        self.partition = replicas.manager.partition("t", 0)
        self._handler = handler

    def fetch(self, offset: int, size: int = 1 << 20, **fields: Any) -> Any:
        """The response, or its future where it waits."""
        wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=size)
        request = FetchRequest(
            **{"max_wait_ms": 0, "min_bytes": 1} | fields,
            topics=[FetchTopic(topic="t", partitions=[wanted])],
        )
        context = RequestContext(API.key, 12, 1, "c", "User:ANONYMOUS", "PLAINTEXT", "h", 1, 0)
        return self._handler.handle(request, context)

    def append(self, **producer: Any) -> None:
        batch = build_batch([Record(0, 1, b"k", b"v", ())], **producer)
        self.partition.append_as_leader(bytearray(batch), now_ms=1, guard=UNVERIFIED)

    def damage(self) -> None:
        """The second batch says that it is of another format."""
        segment = self.partition.log.segments.active
        file = segment.file()
        content = bytearray(file.read(10_000, 0))
        content[len(content) // 3 + 16] = 9
        file.truncate(0)
        file.append(content)

    def aborted(self, producer_id: int) -> None:
        """A transaction of one record, and its marker."""
        self.append(producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)
        marker = build_marker(
            Marker(ControlType.ABORT, 0),
            offset=0,
            timestamp=1,
            producer_id=producer_id,
            producer_epoch=0,
        )
        self.partition.append_as_leader(marker, now_ms=1, origin=Origin.COORDINATOR)


async def reading() -> Reading:
    replicas = Replicas()
    await replicas.lead()
    sessions = FetchSessionCache(10, lambda: 1)
    lookup = FetchLookup(replicas.manager, replicas.cache)
    handler = FetchHandler(
        replicas.cache,
        sessions,
        replicas.clock,
        lookup=lookup,
        selector=ReplicaSelector(0, replicas.cache, lambda: None),
        followers=FollowerServices(lookup, replicas.quotas.leader, replicas.metrics.replication),
        max_bytes=lambda: 1 << 20,
    )
    return Reading(replicas, handler)


def data(response: Any) -> PartitionData:
    found: PartitionData = response.responses[0].partitions[0]
    return found


async def test_a_reader_is_told_of_aborted_transactions_that_its_bytes_hold_and_no_others() -> None:
    consumer = await reading()
    for producer_id in range(20):
        consumer.aborted(producer_id)
    everything = data(consumer.fetch(0, isolation_level=1))
    assert everything.aborted_transactions is not None
    assert [txn.producer_id for txn in everything.aborted_transactions] == list(range(20))
    one = data(consumer.fetch(10, 1, isolation_level=1))
    assert one.aborted_transactions is not None
    assert [txn.first_offset for txn in one.aborted_transactions] == [10]


async def test_a_parked_fetch_is_answered_when_enough_has_come() -> None:
    consumer = await reading()
    consumer.append()
    size = len(data(consumer.fetch(0)).records or b"")
    waiting = consumer.fetch(1, max_wait_ms=20_000, min_bytes=2 * size)
    consumer.append()
    await asyncio.sleep(0)
    assert not waiting.done()
    consumer.append()
    answer = await asyncio.wait_for(waiting, 5)
    assert len(data(answer).records or b"") == 2 * size
    assert not consumer.partition.readers


async def test_a_damaged_log_is_counted_and_a_wrong_offset_is_not() -> None:
    consumer = await reading()
    failed = consumer.replicas.topics.failed_fetch_requests.cell("t")
    for _ in range(3):
        consumer.append()
    assert data(consumer.fetch(9)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert failed.value == 0
    consumer.damage()
    assert data(consumer.fetch(1, 10)).error_code == ErrorCode.CORRUPT_MESSAGE
    assert failed.value == 1


async def test_a_limit_below_min_bytes_is_enough() -> None:
    consumer = await reading()
    consumer.append()
    answer = consumer.fetch(0, max_wait_ms=20_000, min_bytes=1 << 30, max_bytes=1)
    assert data(answer).records
