"""Committed batches of topics, and the decisions of a sink, read through the client."""

from collections.abc import AsyncIterator
from typing import Final, NamedTuple

from barnabas.client.batches import FetchedBatches, FetchSettings, fetch_batches
from barnabas.client.cluster import Cluster
from barnabas.client.offsets import EARLIEST, LATEST, find_offsets
from barnabas.operations.sinks.decisions import (
    DecisionError,
    SinkDecision,
    decisions_topic,
    decode,
)
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import iter_headers
from barnabas.protocol.records.record import iter_records
from barnabas.protocol.topic_partition import TopicPartition

_SETTINGS: Final = FetchSettings(max_bytes=8 << 20, partition_max_bytes=4 << 20, max_wait=0.1)


class Bounds(NamedTuple):
    """The first offset of a partition, and its last stable offset."""

    start: int
    end: int


class CommittedDecision(NamedTuple):
    """A committed decision, with the offset and the time of its record."""

    offset: int
    decision: SinkDecision
    at_ms: int


async def bounds_of(cluster: Cluster, topic: str) -> dict[TopicPartition, Bounds]:
    """Return the bounds of each partition of a topic."""
    info = await cluster.topic(topic)
    partitions = [TopicPartition(topic, number) for number in sorted(info.leaders)]
    starts = await find_offsets(cluster, dict.fromkeys(partitions, EARLIEST))
    ends = await find_offsets(cluster, dict.fromkeys(partitions, LATEST), read_committed=True)
    return {each: Bounds(starts[each].offset, ends[each].offset) for each in partitions}


async def read_range(
    cluster: Cluster, partition: TopicPartition, start: int, end: int
) -> AsyncIterator[FetchedBatches]:
    """Yield the committed batches from `start` to `end`, which is at most the last stable offset.

    Batches may reach over both ends.
    """
    while start < end:
        fetched = await fetch_batches(cluster, partition, start, _SETTINGS)
        yield fetched
        start = fetched.next_offset


class DecisionReader:
    """A position in the decisions of a sink."""

    def __init__(self, cluster: Cluster, sink_id: str, *, tail: int | None = None) -> None:
        """Start at the first decision, or `tail` offsets before the end."""
        self._cluster = cluster
        self._partition = TopicPartition(decisions_topic(sink_id), 0)
        self._tail = tail
        self._next: int | None = None
        self.has_gaps = False
        """Whether compaction or retention has removed records."""
        self.dropped: list[int] = []
        """The offsets of the decisions whose transactions were aborted."""

    @property
    def position(self) -> int:
        """The offset of the next decision; 0 if the topic is not there."""
        return self._next or 0

    async def more(self) -> list[CommittedDecision]:
        """Return the decisions since the last call; none if the topic is not there.

        Raises ValueError for a record that is no decision.
        """
        try:
            bounds = (await bounds_of(self._cluster, self._partition.topic))[self._partition]
        except KafkaError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return []
            raise
        if self._next is None:
            self._next = bounds.start
            if self._tail is not None:
                self._next = max(bounds.start, bounds.end - self._tail)
            self.has_gaps = bounds.start > 0
        found: list[CommittedDecision] = []
        async for fetched in read_range(self._cluster, self._partition, self._next, bounds.end):
            found += self._decoded(fetched, self._next)
            self._next = fetched.next_offset
        return found

    def _decoded(self, fetched: FetchedBatches, expected: int) -> list[CommittedDecision]:
        shown = {header.base_offset for _, header in fetched.visible}
        for _, header in iter_headers(fetched.data):
            self.has_gaps |= header.base_offset > expected
            expected = header.next_offset
            if not header.is_control and header.base_offset not in shown:
                self.dropped.append(header.base_offset)
        found = []
        for pos, header in fetched.visible:
            for record in iter_records(fetched.data, pos, header):
                try:
                    decision = decode(record.value or b"")
                except DecisionError as error:
                    raise ValueError(
                        f"the record at offset {record.offset} of {self._partition.topic}"
                        f" is no decision: {error}"
                    ) from None
                found.append(CommittedDecision(record.offset, decision, record.timestamp))
        return found
