"""The lag of a group in records: those that its consumers will still be given.

Leaders of Barnabas count on request, by the headers of their batches. Other leaders do not know the
request's tagged field and return no counts: then the records are read, as a consumer would.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final, NamedTuple

from barnabas.client.batches import FetchedBatches, FetchSettings, fetch_next
from barnabas.client.cluster import Cluster, check, gather_all
from barnabas.client.offsets import EARLIEST, LATEST, find_offsets
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.list_offsets import (
    API,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.records.batch import BatchHeader, iter_headers
from barnabas.protocol.records.control import read_marker
from barnabas.protocol.records.group_lag import offset_lag, records_from
from barnabas.protocol.records.record import iter_records
from barnabas.protocol.topic_partition import TopicPartition, by_topic

_READERS: Final = 4
"""The partitions that are read at the same time."""
_ATTEMPTS: Final = 5
"""The times that a partition is read whose log start passes the reader."""
_NOT_READABLE: Final = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)


class Bound(NamedTuple):
    """The work for the counts of one partition; beyond it they are lower bounds."""

    answers: int = 10
    """Answers of a leader of Barnabas, each after 20,000 batches (`group.lag.counted.batches`)."""
    read_bytes: int = 16 << 20
    """Bytes that are read from another leader, below the last stable offset and again above it."""


UNBOUNDED: Final = Bound(1 << 62, 1 << 62)


class GroupLag(NamedTuple):
    """The lag of a group in one partition."""

    end: int
    """The high watermark."""
    lag: int
    """Kafka's lag: the high watermark less the committed offset, at least 0."""
    to_read: int | None
    """Records that a read_committed consumer will still be given; None if not readable."""
    held_back: int | None
    """Records that wait for open transactions, behind the last stable offset."""
    is_exact: bool
    """Whether everything was counted; otherwise there may be more records."""
    held_back_by: int | None
    """The producer id of the oldest open transaction, if it holds records back."""


def no_lag(end: int) -> GroupLag:
    """Return the lag of a group whose committed offset is not below the high watermark."""
    return GroupLag(end, lag=0, to_read=0, held_back=0, is_exact=True, held_back_by=None)


async def find_lags(
    cluster: Cluster, committed: Mapping[TopicPartition, int], bound: Bound | None = None
) -> dict[TopicPartition, GroupLag]:
    """Return the lag of a group behind its committed offsets.

    A committed offset below the start of a log counts from there. Retriable errors are retried
    until the timeout of the cluster.
    """
    bound = bound or Bound()
    counts = {tp: _Count(offset) for tp, offset in committed.items()}
    wanted = set(committed)
    while wanted:
        asked = {tp: counts[tp].next_offset for tp in wanted}
        rows = await cluster.retrying(partial(_ask_leaders, cluster, asked))
        wanted = {tp for tp, row in rows.items() if counts[tp].take(row, bound.answers)}
    unknown = {tp: count for tp, count in counts.items() if count.row.counted_to < 0}
    read = await _read_all(cluster, unknown, bound.read_bytes) if unknown else {}
    return {tp: read[tp] if tp in read else count.result() for tp, count in counts.items()}


class _Count:
    """The count of one partition by its leader, which may take several answers."""

    def __init__(self, committed: int) -> None:
        self.committed = self.next_offset = committed
        self.row = ListOffsetsPartitionResponse(partition_index=-1)
        self._to_read = 0
        self._held_back = 0
        self._is_exact = True
        self._answers = 0

    def take(self, row: ListOffsetsPartitionResponse, max_answers: int) -> bool:
        """Add a response; return whether to ask again, from `next_offset` on."""
        self.row = row
        if row.counted_to < 0:
            return False
        self._to_read += row.to_read
        self._held_back = row.held_back
        if row.counted_to >= row.offset:
            return False
        if row.counted_to == self.next_offset:
            # The leader had counted enough for other partitions, and has not begun with this one.
            return True
        if self.next_offset >= row.last_stable_offset:
            self._is_exact = False
            return False
        self._answers += 1
        if row.counted_to < row.last_stable_offset and self._answers < max_answers:
            self.next_offset = row.counted_to
            return True
        # One answer has all that is held back: a transaction may end between two.
        self._is_exact &= row.counted_to >= row.last_stable_offset
        self.next_offset = row.last_stable_offset
        return True

    def result(self) -> GroupLag:
        end, by = self.row.offset, self.row.held_back_by
        return GroupLag(
            end,
            offset_lag(self.committed, end),
            self._to_read,
            self._held_back,
            self._is_exact,
            by if by >= 0 and self._held_back else None,
        )


async def _ask_leaders(
    cluster: Cluster, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, ListOffsetsPartitionResponse]:
    """Return the responses of all leaders, with the counts from these offsets on."""
    by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
    for partition in sorted(offsets):
        by_leader[await cluster.leader(*partition)].append(partition)
    answers = await gather_all(
        _ask_leader(cluster, leader, partitions, offsets)
        for leader, partitions in by_leader.items()
    )
    return {partition: row for answer in answers for partition, row in answer.items()}


async def _ask_leader(
    cluster: Cluster,
    leader: int,
    partitions: Iterable[TopicPartition],
    offsets: Mapping[TopicPartition, int],
) -> dict[TopicPartition, ListOffsetsPartitionResponse]:
    request = ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(
                name=topic,
                partitions=[
                    ListOffsetsPartition(
                        partition_index=index,
                        timestamp=LATEST,
                        count_from=offsets[TopicPartition(topic, index)],
                    )
                    for index in indexes
                ],
            )
            for topic, indexes in by_topic(partitions).items()
        ],
    )
    response = await cluster.ask(API, request, node=leader)
    found = {}
    for topic in response.topics:
        for row in topic.partitions:
            check(row.error_code, f"{topic.name}-{row.partition_index}")
            found[TopicPartition(topic.name, row.partition_index)] = row
    return found


async def _read_all(
    cluster: Cluster, counts: Mapping[TopicPartition, _Count], max_bytes: int
) -> dict[TopicPartition, GroupLag]:
    """Count by reading: up to the ends in `counts`, and the last stable offsets of now."""
    # After the ends: every transaction below these last stable offsets is decided.
    wanted = dict.fromkeys(counts, LATEST)
    stable = await find_offsets(cluster, wanted, read_committed=True)
    turns = asyncio.Semaphore(_READERS)

    async def read(partition: TopicPartition, count: _Count) -> GroupLag:
        end = count.row.offset
        reader = _Reader(cluster, partition, min(stable[partition].offset, end), end, max_bytes)
        async with turns:
            return await reader.read(count.committed)

    lags = await gather_all(read(partition, count) for partition, count in counts.items())
    return dict(zip(counts, lags, strict=True))


class _Passed(Exception):
    """The log start has passed the reader."""


class _Reader:
    """The records of one partition behind a committed offset, as consumers are given them."""

    def __init__(
        self,
        cluster: Cluster,
        partition: TopicPartition,
        last_stable_offset: int,
        end: int,
        max_bytes: int,
    ) -> None:
        self._cluster = cluster
        self._partition = partition
        self._last_stable_offset = last_stable_offset
        self._end = end
        self._max_bytes = max_bytes
        self._is_exact = True

    async def read(self, committed: int) -> GroupLag:
        """Return the lag; without counts if the client may not read the topic."""
        lag = offset_lag(committed, self._end)
        for _ in range(_ATTEMPTS):
            self._is_exact = True
            found = await find_offsets(self._cluster, {self._partition: EARLIEST})
            start = max(committed, found[self._partition].offset)
            try:
                to_read = await self._to_read(start)
                held_back, by = await self._held_back(start)
            except _Passed:
                continue
            except KafkaError as error:
                if error.code not in _NOT_READABLE:
                    raise
                break
            by = by if held_back else None
            return GroupLag(self._end, lag, to_read, held_back, self._is_exact, by)
        return GroupLag(self._end, lag, None, None, is_exact=False, held_back_by=None)

    async def _to_read(self, start: int) -> int:
        position, left, counted = start, self._max_bytes, 0
        while position < self._last_stable_offset and self._is_within(left):
            fetched = await self._fetch(position, read_committed=True)
            for at, header in fetched.visible:
                if header.last_offset < self._last_stable_offset:
                    counted += _records(fetched, at, header, start)
            position, left = fetched.next_offset, left - len(fetched.data)
        return counted

    async def _held_back(self, start: int) -> tuple[int, int | None]:
        """Return the records held back, and the producer of the oldest open transaction."""
        position, left = self._last_stable_offset, self._max_bytes
        decided, open_ = 0, dict[int, int]()
        while position < self._end and self._is_within(left):
            fetched = await self._fetch(position, read_committed=False)
            visible = dict(fetched.visible)
            for at, header in iter_headers(fetched.data):
                if header.last_offset >= self._end:
                    break
                producer = header.producer_id
                if header.is_control:
                    marker = read_marker(fetched.data, at, header)
                    ended = open_.pop(producer, 0) if marker is not None else 0
                    decided += ended if marker is not None and marker.committed else 0
                elif at in visible:
                    records = _records(fetched, at, header, start)
                    if header.is_transactional:
                        # The order of the keys is that of the beginnings of the transactions.
                        open_[producer] = open_.get(producer, 0) + records
                    else:
                        decided += records
            position, left = fetched.next_offset, left - len(fetched.data)
        return decided + sum(open_.values()), next(iter(open_), None)

    def _is_within(self, left: int) -> bool:
        """Return whether bytes are left to read; otherwise the counts are not exact."""
        self._is_exact &= left > 0
        return left > 0

    async def _fetch(self, position: int, *, read_committed: bool) -> FetchedBatches:
        """Return the next batches, at least one; raise _Passed if the log start is behind it."""
        settings = FetchSettings(read_committed=read_committed)
        try:
            return await fetch_next(self._cluster, self._partition, position, settings)
        except KafkaError as error:
            if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                raise _Passed from None
            raise


def _records(fetched: FetchedBatches, at: int, header: BatchHeader, start: int) -> int:
    """Return how many records of a fetched batch are at `start` or later."""
    counted = records_from(header, start)
    if counted is None:
        return sum(each.offset >= start for each in iter_records(fetched.data, at, header))
    return counted
