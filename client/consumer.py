"""Consuming: positions by partition, one Fetch to each leader a poll."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from barnabas.client.admin import EARLIEST, LATEST, Admin, TopicPartition
from barnabas.client.cluster import Cluster
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import fetch
from barnabas.protocol.records.batch import iter_headers, read_header
from barnabas.protocol.records.control import ControlType, read_marker
from barnabas.protocol.records.record import Headers, iter_records

_PARTIAL_BATCH = 61


class Message(NamedTuple):
    """A record with the partition it came from."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class FetchSettings(NamedTuple):
    """How to fetch; sizes in bytes, `max_wait` in s."""

    min_bytes: int = 1
    max_bytes: int = 50 * 1024 * 1024
    partition_max_bytes: int = 1024 * 1024
    max_wait: float = 0.5
    read_committed: bool = True
    offset_reset: int | None = LATEST
    """Where to go on when a position is not in the log: EARLIEST, LATEST, or an error if None."""


class Consumer:
    """Reads assigned partitions; `GroupMember` assigns them where a group does."""

    def __init__(self, cluster: Cluster, settings: FetchSettings | None = None) -> None:
        self._cluster = cluster
        self._admin = Admin(cluster)
        self.settings = settings or FetchSettings()
        self.positions: dict[TopicPartition, int] = {}
        """Offset of the next record by partition; EARLIEST or LATEST until looked up."""
        self.high_watermarks: dict[TopicPartition, int] = {}

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Reads exactly these partitions from these offsets (or EARLIEST, LATEST) on."""
        self.positions = dict(positions)

    async def seek_to_timestamp(self, wanted: Mapping[TopicPartition, int]) -> None:
        """Moves partitions to their first record at or after a time in ms; the end if none is."""
        found = await self._admin.find_offsets(wanted)
        for partition, row in found.items():
            self.positions[partition] = row.offset if row.offset >= 0 else LATEST

    async def seek_back(self, wanted: Iterable[TopicPartition], count: int) -> None:
        """Moves partitions to `count` records before their end, or to their start."""
        partitions = list(wanted)
        first = await self._admin.find_offsets(dict.fromkeys(partitions, EARLIEST))
        last = await self._admin.find_offsets(dict.fromkeys(partitions, LATEST))
        for partition in partitions:
            back = last[partition].offset - count
            self.positions[partition] = max(back, first[partition].offset)

    async def poll(self) -> list[Message]:
        """What arrives within the settings' `max_wait`, in order within each partition."""
        await self._cluster.retrying(self._look_up)
        if not self.positions:
            await asyncio.sleep(self.settings.max_wait)
            return []
        return await self._cluster.retrying(self._fetch_all)

    def at_end(self, partition: TopicPartition) -> bool:
        """Whether the last poll reached the end of a partition as it then was."""
        known = self.high_watermarks.get(partition)
        return known is not None and self.positions[partition] >= known

    async def _look_up(self) -> None:
        wanted = {tp: offset for tp, offset in self.positions.items() if offset < 0}
        if not wanted:
            return
        found = await self._admin.find_offsets(wanted, read_committed=self.settings.read_committed)
        for partition, row in found.items():
            self.positions[partition] = row.offset

    async def _fetch_all(self) -> list[Message]:
        by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
        for topic, partition in self.positions:
            by_leader[await self._cluster.leader(topic, partition)].append((topic, partition))
        answers = await asyncio.gather(
            *(self._fetch(leader, partitions) for leader, partitions in by_leader.items())
        )
        return [message for answer in answers for message in answer]

    async def _fetch(self, leader: int, partitions: Iterable[TopicPartition]) -> list[Message]:
        connection = await self._cluster.connection_to(leader)
        version = connection.version_for(fetch.API)
        names: dict[bytes, str] = {}
        topics: dict[str, fetch.FetchTopic] = {}
        for topic, partition in partitions:
            topic_id = self._cluster.topics[topic].topic_id
            names[topic_id] = topic
            row = topics.setdefault(
                topic,
                fetch.FetchTopic(
                    **{"topic_id": topic_id} if version >= 13 else {"topic": topic}, partitions=[]
                ),
            )
            row.partitions.append(
                fetch.FetchPartition(
                    partition=partition,
                    fetch_offset=self.positions[topic, partition],
                    partition_max_bytes=self.settings.partition_max_bytes,
                )
            )
        request = fetch.FetchRequest(
            max_wait_ms=int(self.settings.max_wait * 1000),
            min_bytes=self.settings.min_bytes,
            max_bytes=self.settings.max_bytes,
            isolation_level=int(self.settings.read_committed),
            topics=list(topics.values()),
        )
        timeout = self._cluster.timeout + self.settings.max_wait
        response = await connection.request(fetch.API, request, version=version, timeout=timeout)
        if response.error_code:
            raise KafkaError(ErrorCode.of(response.error_code))
        return [
            message
            for topic_row in response.responses
            for row in topic_row.partitions
            for message in self._read(
                (names[topic_row.topic_id] if version >= 13 else topic_row.topic), row
            )
        ]

    def _read(self, topic: str, row: fetch.PartitionData) -> list[Message]:
        key = (topic, row.partition_index)
        if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and self.settings.offset_reset:
            self.positions[key] = self.settings.offset_reset
            return []
        if row.error_code:
            raise KafkaError(ErrorCode.of(row.error_code), f"{topic}-{row.partition_index}")
        committed = self.settings.read_committed
        self.high_watermarks[key] = row.last_stable_offset if committed else row.high_watermark
        if not isinstance(row.records, bytes | memoryview):
            return []
        return list(self._visible(topic, row, whole_batches(row.records)))

    def _visible(self, topic: str, row: fetch.PartitionData, data: memoryview) -> Iterator[Message]:
        key = (topic, row.partition_index)
        aborted = sorted((t.first_offset, t.producer_id) for t in row.aborted_transactions or ())
        ignored: set[int] = set()
        for pos, header in iter_headers(data):
            while aborted and aborted[0][0] <= header.last_offset:
                ignored.add(aborted.pop(0)[1])
            if header.is_control:
                marker = read_marker(data, pos, header)
                if marker is not None and marker.type is ControlType.ABORT:
                    ignored.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in ignored):
                for record in iter_records(data, pos, header):
                    if record.offset >= self.positions[key]:
                        yield Message(
                            topic,
                            row.partition_index,
                            record.offset,
                            record.timestamp,
                            header.timestamp_type,
                            record.key,
                            record.value,
                            record.headers,
                        )
            self.positions[key] = max(self.positions[key], header.next_offset)


def whole_batches(data: bytes | memoryview) -> memoryview:
    """`data` without the batch that a size limit cut off at its end."""
    view = memoryview(data)
    pos = 0
    while len(view) - pos >= _PARTIAL_BATCH:
        size = 12 + int.from_bytes(view[pos + 8 : pos + 12], "big")
        if size > len(view) - pos:
            break
        read_header(view, pos)
        pos += size
    return view[:pos]


__all__ = ["EARLIEST", "LATEST", "Consumer", "FetchSettings", "Message", "whole_batches"]
