"""Fetch: the contents of an answer, and the end of a delayed Fetch."""

import asyncio
from typing import Any

import pytest

from barnabas.broker.handlers import fetch
from barnabas.broker.handlers.fetch import handle
from barnabas.broker.server.context import RequestContext
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import (
    API,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
)
from barnabas.protocol.records.control import TxnMarker
from barnabas.protocol.records.record import Record, build_batch
from barnabas.security.principal import ANONYMOUS
from barnabas.storage.origin import Origin
from barnabas.storage.producers.verification import UNVERIFIED
from tests.support.steps import taken
from tests.unit.broker.handlers.leading import collaborators
from tests.unit.broker.replication.replicas import Replicas


class Reading:
    """A partition that this broker leads, and a consumer of it."""

    def __init__(self, replicas: Replicas) -> None:
        self.replicas = replicas
        self.partition = replicas.manager.partition("t", 0)
        self._parts = collaborators(replicas)

    def fetch(self, offset: int, size: int = 1 << 20, others: int = 0, **fields: Any) -> Any:
        """Return the response, or its future if the request waits.

        The request also names partitions that do not exist, as many as `others`.
        """
        wanted = [
            FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=size)
            for index in range(1 + others)
        ]
        request = FetchRequest(
            **{"max_wait_ms": 0, "min_bytes": 1} | fields,
            topics=[FetchTopic(topic="t", partitions=wanted)],
        )
        context = RequestContext(API.key, 12, 1, "c", ANONYMOUS, "PLAINTEXT", "h", 1, 0)
        return handle(*self._parts, request, context)  # type: ignore[call-arg]

    def append(self, **producer: Any) -> None:
        batch = build_batch([Record(0, 1, b"k", b"v", ())], **producer)
        self.partition.append(bytearray(batch), now_ms=1, guard=UNVERIFIED)

    def damage(self) -> None:
        """Change the format version of the second batch."""
        segment = self.partition.log.segments.active
        file = segment.file()
        content = bytearray(file.read(10_000, 0))
        content[len(content) // 3 + 16] = 9
        file.truncate(0)
        file.append(content)

    def aborted(self, producer_id: int) -> None:
        """Append a transaction of one record, and its abort marker."""
        self.append(producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)
        marker = TxnMarker(producer_id, 0, 0, False).packed(1)[0]
        self.partition.append(marker, now_ms=1, origin=Origin.COORDINATOR)


async def reading() -> Reading:
    replicas = Replicas()
    await replicas.lead()
    return Reading(replicas)


def data(response: Any) -> PartitionData:
    found: PartitionData = response.responses[0].partitions[0]
    return found


async def test_aborted_transactions_of_answer_overlap_its_records() -> None:
    consumer = await reading()
    for producer_id in range(20):
        consumer.aborted(producer_id)
    everything = data(consumer.fetch(0, isolation_level=1))
    assert everything.aborted_transactions is not None
    assert [txn.producer_id for txn in everything.aborted_transactions] == list(range(20))
    one = data(consumer.fetch(10, 1, isolation_level=1))
    assert one.aborted_transactions is not None
    assert [txn.first_offset for txn in one.aborted_transactions] == [10]


async def test_delayed_fetch_is_answered_at_min_bytes() -> None:
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
    assert not consumer.partition.delayed_fetches


async def test_corrupt_log_counts_as_failed_fetch_and_wrong_offset_does_not() -> None:
    consumer = await reading()
    failed = consumer.replicas.topics.failed_fetch_requests.cell("t")
    for _ in range(3):
        consumer.append()
    assert data(consumer.fetch(9)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert failed.value == 0
    consumer.damage()
    assert data(consumer.fetch(1, 10)).error_code == ErrorCode.CORRUPT_MESSAGE
    assert failed.value == 1


async def test_fetch_limit_below_min_bytes_is_answered_at_once() -> None:
    consumer = await reading()
    consumer.append()
    answer = consumer.fetch(0, max_wait_ms=20_000, min_bytes=1 << 30, max_bytes=1)
    assert data(answer).records


async def test_many_partitions_are_read_in_steps() -> None:
    there = await reading()
    answer, steps = taken(there.fetch(0, others=2000))
    assert [each.error_code for each in answer.responses[0].partitions[:2]] == [0, 3]
    assert len(answer.responses[0].partitions) == 2001
    # They are read, and compared with what the session was told.
    assert steps >= 2 * 2001


async def test_append_between_two_steps_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "MANY", 1)
    there = await reading()
    steps = there.fetch(0, max_wait_ms=60_000)
    next(steps)
    there.append()
    answer, _ = taken(steps)
    response, _ = taken(await asyncio.wait_for(answer, 10))
    assert len(response.responses[0].partitions[0].records)
