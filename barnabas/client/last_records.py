"""The place of the last records of a log, for readers that begin so many records before its end.

A difference of offsets does not tell how many records lie between them: markers have offsets, so
have aborted records, and compaction leaves gaps. So the batches are read, from the end backwards.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final

from barnabas.client.batches import FetchSettings, fetch_next
from barnabas.client.cluster import Cluster, gather_all
from barnabas.client.offsets import EARLIEST, LATEST, find_offsets
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import BatchHeader, iter_headers
from barnabas.protocol.records.record import iter_records
from barnabas.protocol.topic_partition import TopicPartition

_ATTEMPTS: Final = 5
"""The times that a partition is read whose log start passes the reader."""


async def find_last(
    cluster: Cluster, wanted: Iterable[TopicPartition], count: int, settings: FetchSettings
) -> dict[TopicPartition, int]:
    """Return the offset of the first of the last `count` records that a consumer is given now.

    It is the start of the log if there are fewer, and the end if `count` is 0. Raises KafkaError.
    """
    partitions = list(wanted)
    found = await gather_all(_find(cluster, each, count, settings) for each in partitions)
    return dict(zip(partitions, found, strict=True))


async def _find(
    cluster: Cluster, partition: TopicPartition, count: int, settings: FetchSettings
) -> int:
    attempts = _ATTEMPTS
    while True:
        first = await find_offsets(cluster, {partition: EARLIEST})
        last = await find_offsets(
            cluster, {partition: LATEST}, read_committed=settings.read_committed
        )
        reader = _Reader(cluster, partition, settings)
        try:
            return await reader.find(first[partition].offset, last[partition].offset, count)
        except KafkaError as error:
            attempts -= 1
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE or not attempts:
                raise


class _Reader:
    """The batches of one partition, as consumers with these settings are given them."""

    def __init__(self, cluster: Cluster, partition: TopicPartition, settings: FetchSettings):
        self._cluster = cluster
        self._partition = partition
        self._settings = settings

    async def find(self, first: int, last: int, count: int) -> int:
        """Return the offset of the first of the last `count` records in [first, last)."""
        stop = last
        span = missing = count
        while missing and stop > first:
            tail, start = await self._tail(max(stop - span, first), stop, missing)
            left = sum(each.record_count for each in tail) - missing
            if left >= 0:
                return max(await self._offset(tail[0], left), first)
            missing = -left
            # Each piece is longer than the one behind it: a log may end with very many markers.
            stop, span = start, max(missing, 2 * span)
        return max(stop, first)

    async def _tail(self, start: int, stop: int, count: int) -> tuple[deque[BatchHeader], int]:
        """Return the last batches in [start, stop) that have `count` records, and their start.

        The first batch may begin before `start`, and is whole.
        """
        tail: deque[BatchHeader] = deque()
        spare, position, begin = -count, start, start
        while position < stop:
            fetched = await fetch_next(self._cluster, self._partition, position, self._settings)
            if position == start:
                begin = min(start, next(iter_headers(fetched.data))[1].base_offset)
            for _, header in fetched.visible:
                if header.base_offset < stop and header.record_count:
                    tail.append(header)
                    spare += header.record_count
                    while spare >= tail[0].record_count:
                        spare -= tail.popleft().record_count
            position = fetched.next_offset
        return tail, begin

    async def _offset(self, header: BatchHeader, number: int) -> int:
        """Return the offset of a record by its number in a batch."""
        if header.record_count == header.last_offset_delta + 1:
            return header.base_offset + number
        fetched = await fetch_next(
            self._cluster, self._partition, header.base_offset, self._settings
        )
        at, again = next(iter_headers(fetched.data))
        offsets = [each.offset for each in iter_records(fetched.data, at, again)]
        # Compaction may have removed more of them meanwhile.
        return offsets[number] if number < len(offsets) else header.base_offset
