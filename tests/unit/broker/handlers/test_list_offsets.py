"""ListOffsets with several replicas: the end for each kind of client, and when it is refused."""

import asyncio
import itertools

import pytest

from barnabas.broker.handlers.list_offsets import (
    API,
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    handle,
)
from barnabas.broker.loop.slices import SLICE_S, Slicer
from barnabas.broker.server.context import RequestContext
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas.protocol.records.compression import Compression
from barnabas.protocol.records.record import Record, build_batch
from barnabas.security.principal import ANONYMOUS
from barnabas.storage.log.record_steps import RECORDS_PER_STEP
from tests.support.planted import NOW, crowd
from tests.unit.broker.replication.replicas import Replicas

BATCH = build_batch([Record(0, 1, b"k", b"v", ())])
CONSUMER, DEBUGGER, FOLLOWER = -1, -2, 1
PAIR = {"isr": (0, 1), "replicas": (0, 1)}


class Asking:
    def __init__(self, replicas: Replicas) -> None:
        self.replicas = replicas
        self.parts = replicas.manager, lambda: self.counted_batches
        self.counted_batches = 1000
        self.partition = replicas.manager.partition("t", 0)

    def append(self) -> None:
        self.partition.append(BATCH, now_ms=1)

    def ask(self, replica_id: int, timestamp: int = LATEST, version: int = 7) -> tuple[int, int]:
        """Return error and offset."""
        work = self.begin(replica_id, timestamp, version, Slicer(lambda: 0.0))
        return found(work.result())

    def counts(
        self, count_from: int, replica_id: int = CONSUMER, isolation_level: int = 0
    ) -> tuple[int, ...]:
        """Return the end, both counts, the end of the counts, and the last stable offset."""
        asked = ListOffsetsPartition(partition_index=0, timestamp=LATEST, count_from=count_from)
        (answer,) = self.answers([asked], replica_id, isolation_level)
        return (
            answer.offset,
            answer.to_read,
            answer.held_back,
            answer.counted_to,
            answer.last_stable_offset,
        )

    def answers(
        self, asked: list[ListOffsetsPartition], replica_id: int, isolation_level: int
    ) -> list[ListOffsetsPartitionResponse]:
        request = ListOffsetsRequest(
            replica_id=replica_id,
            isolation_level=isolation_level,
            topics=[ListOffsetsTopic(name="t", partitions=asked)],
        )
        context = RequestContext(API.key, 7, 1, "c", ANONYMOUS, "L", "h", 1, 0)
        slicer = Slicer(lambda: 0.0)
        response = slicer.run(handle(*self.parts, request, context)).result()
        rows: list[ListOffsetsPartitionResponse] = response.topics[0].partitions
        return rows

    def begin(
        self, replica_id: int, timestamp: int, version: int, slicer: Slicer
    ) -> "asyncio.Future[ListOffsetsResponse]":
        asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        request = ListOffsetsRequest(
            replica_id=replica_id, topics=[ListOffsetsTopic(name="t", partitions=[asked])]
        )
        context = RequestContext(API.key, version, 1, "c", ANONYMOUS, "L", "h", 1, 0)
        return slicer.run(handle(*self.parts, request, context))


def found(response: ListOffsetsResponse) -> tuple[int, int]:
    """Return error and offset."""
    answer = response.topics[0].partitions[0]
    return answer.error_code, answer.offset


def slow_slicer() -> Slicer:
    """Return a slicer for whose clock every step takes half a slice: one to count the partitions,
    and one in which the search begins."""
    ticks = itertools.count()
    return Slicer(lambda: next(ticks) * SLICE_S / 2)


async def asking() -> Asking:
    replicas = Replicas()
    await replicas.lead(**PAIR)
    return Asking(replicas)


async def test_consumers_get_high_watermark_and_followers_log_end() -> None:
    there = await asking()
    there.append()
    there.append()
    there.replicas.fetched(1, 1)
    assert there.ask(CONSUMER) == (ErrorCode.NONE, 1)
    assert there.ask(FOLLOWER) == (ErrorCode.NONE, 2)
    assert there.ask(CONSUMER, 1) == (ErrorCode.NONE, 0)


async def test_new_leader_refuses_end_before_it_has_committed() -> None:
    """KIP-207: an earlier leader may have returned a higher end."""
    there = await asking()
    there.append()
    await there.replicas.lead(**PAIR, epoch=1)
    assert there.ask(CONSUMER) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
    assert there.ask(CONSUMER, version=4) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert there.ask(CONSUMER, 1) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
    assert there.ask(CONSUMER, EARLIEST) == (ErrorCode.NONE, 0)
    assert there.ask(FOLLOWER) == (ErrorCode.NONE, 1)
    there.replicas.fetched(1, 1)
    assert there.ask(CONSUMER) == (ErrorCode.NONE, 1)


async def test_follower_answers_only_replica_id_minus_2() -> None:
    there = await asking()
    there.append()
    await there.replicas.lead(**PAIR, leader=1, epoch=1)
    for asker in (CONSUMER, FOLLOWER):
        assert there.ask(asker) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert there.ask(DEBUGGER) == (ErrorCode.NONE, 1)
    await there.replicas.fetchers.stop()


async def test_records_are_counted_only_if_a_consumer_asks_for_them() -> None:
    there = await asking()
    for _ in range(3):
        there.append()
    there.replicas.fetched(1, 2)
    assert there.counts(0) == (2, 2, 0, 2, 2)
    assert there.counts(1) == (2, 1, 0, 2, 2)
    unknown = (-1, -1, -1, -1)
    assert there.counts(-1) == (2, *unknown)
    assert there.counts(0, replica_id=FOLLOWER) == (3, *unknown)
    assert there.counts(0, isolation_level=1) == (2, *unknown)


async def test_one_request_counts_a_bounded_number_of_batches() -> None:
    """100,000 partitions in a request would be 100,000 bounds."""
    replicas = Replicas()
    for index in (0, 1):
        await replicas.lead(index=index)
        for _ in range(4):
            replicas.manager.partition("t", index).append(BATCH, now_ms=1)
    there = Asking(replicas)
    there.counted_batches = 5
    rows = [
        ListOffsetsPartition(partition_index=index, timestamp=LATEST, count_from=0)
        for index in (0, 1)
    ]
    answers = there.answers(rows, CONSUMER, 0)
    assert [(each.to_read, each.counted_to) for each in answers] == [(4, 4), (1, 1)]
    there.counted_batches = 4
    answers = there.answers(rows, CONSUMER, 0)
    assert [(each.to_read, each.counted_to) for each in answers] == [(4, 4), (0, 0)]
    there.counted_batches = 0
    answers = there.answers(rows, CONSUMER, 0)
    assert [(each.to_read, each.counted_to) for each in answers] == [(-1, -1), (-1, -1)]


COUNT = 20_000


@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize("timestamp", [NOW + 1, MAX_TIMESTAMP])
async def test_search_over_planted_batch_leaves_the_loop_to_others(
    codec: Compression, timestamp: int
) -> None:
    """60 bytes that ask for a time held the event loop for 41 s."""
    there = await asking()
    there.partition.append(crowd(codec, COUNT), now_ms=NOW)
    search = there.begin(CONSUMER, timestamp, 7, slow_slicer())
    turns = 0
    while not search.done():
        await asyncio.sleep(0)
        turns += 1
    # A turn has five steps of a millisecond.
    assert turns >= COUNT // RECORDS_PER_STEP // 5
    # No record has the time that the header names.
    code = ErrorCode.CORRUPT_MESSAGE if timestamp == MAX_TIMESTAMP else ErrorCode.NONE
    assert found(search.result()) == (code, -1)


async def test_search_ends_with_the_leadership_in_which_it_began() -> None:
    there = await asking()
    there.partition.append(crowd(Compression.GZIP, COUNT), now_ms=NOW)
    search = there.begin(CONSUMER, NOW + 1, 7, slow_slicer())
    assert not search.done()
    await there.replicas.lead(**PAIR, epoch=1)
    assert found(await search) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
