"""Consuming: positions by partition, one Fetch to each leader a poll."""

import asyncio
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from barnabas.client.cluster import Cluster, check
from barnabas.client.offsets import EARLIEST, LATEST, find_offsets
from barnabas.protocol.errors import ErrorCode, KafkaError, ProtocolError
from barnabas.protocol.messages import fetch
from barnabas.protocol.records.batch import BatchHeader, crc_matches, iter_headers, read_prefix
from barnabas.protocol.records.control import ControlType, read_marker
from barnabas.protocol.records.record import Headers, iter_records
from barnabas.protocol.topic_partition import TopicPartition

_PREFIX_SIZE = 12


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
        self.settings = settings or FetchSettings()
        self.positions: dict[TopicPartition, int] = {}
        """Offset of the next record by partition; EARLIEST or LATEST until looked up."""
        self.high_watermarks: dict[TopicPartition, int] = {}

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Reads exactly these partitions from these offsets (or EARLIEST, LATEST) on."""
        self.positions = dict(positions)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Reads an assigned partition from this offset (or EARLIEST, LATEST) on.

        With read_committed LATEST is the last stable offset: where an open transaction began.
        """
        if partition not in self.positions:
            raise ValueError(f"{partition[0]}-{partition[1]} is not assigned")
        self.positions[partition] = offset

    async def seek_to_timestamp(self, wanted: Mapping[TopicPartition, int]) -> None:
        """Moves partitions to their first record at or after a time in ms; the end if none is."""
        found = await find_offsets(self._cluster, wanted)
        for partition, row in found.items():
            self.positions[partition] = row.offset if row.offset >= 0 else LATEST

    async def seek_back(self, wanted: Iterable[TopicPartition], count: int) -> None:
        """Moves partitions to `count` records before their end, or to their start."""
        partitions = list(wanted)
        first = await find_offsets(self._cluster, dict.fromkeys(partitions, EARLIEST))
        last = await find_offsets(
            self._cluster,
            dict.fromkeys(partitions, LATEST),
            read_committed=self.settings.read_committed,
        )
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
        found = await find_offsets(
            self._cluster, wanted, read_committed=self.settings.read_committed
        )
        for partition, row in found.items():
            if self.positions.get(partition) == wanted[partition]:
                self.positions[partition] = row.offset

    async def _fetch_all(self) -> list[Message]:
        by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
        for topic, partition in self.positions:
            by_leader[await self._cluster.leader(topic, partition)].append((topic, partition))
        answers = await asyncio.gather(
            *(self._fetch(leader, partitions) for leader, partitions in by_leader.items()),
            return_exceptions=True,
        )
        errors: list[BaseException] = []
        messages: list[Message] = []
        for answer in answers:
            if isinstance(answer, BaseException):
                errors.append(answer)
                continue
            for topic, row, offset in answer:
                if self.positions.get((topic, row.partition_index)) != offset:
                    # Moved by a seek or taken away meanwhile: this is of where it was before.
                    continue
                try:
                    messages += self._read(topic, row)
                except (KafkaError, ProtocolError) as error:
                    errors.append(error)
        # What arrived is handed over before what went wrong: the next poll meets the error again.
        if errors and not messages:
            raise errors[0]
        return messages

    async def _fetch(
        self, leader: int, partitions: Iterable[TopicPartition]
    ) -> list[tuple[str, fetch.PartitionData, int]]:
        """Each partition's answer with the offset it was asked for."""
        connection = await self._cluster.connection_to(leader)
        version = connection.version_for(fetch.API)
        by_id = version >= 13
        names: dict[bytes, str] = {}
        asked: dict[TopicPartition, int] = {}
        topics: dict[str, fetch.FetchTopic] = {}
        for topic, partition in partitions:
            topic_id = (await self._cluster.topic(topic)).topic_id
            names[topic_id] = topic
            if topic not in topics:
                name = {"topic_id": topic_id} if by_id else {"topic": topic}
                topics[topic] = fetch.FetchTopic(**name, partitions=[])
            asked[topic, partition] = self.positions.get((topic, partition), -1)
            topics[topic].partitions.append(
                fetch.FetchPartition(
                    partition=partition,
                    fetch_offset=asked[topic, partition],
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
        check(response.error_code)
        rows = [
            (names[topic_row.topic_id] if by_id else topic_row.topic, row)
            for topic_row in response.responses
            for row in topic_row.partitions
        ]
        return [(topic, row, asked[topic, row.partition_index]) for topic, row in rows]

    def _read(self, topic: str, row: fetch.PartitionData) -> list[Message]:
        """The messages of one partition's answer; moves its position behind them."""
        key = (topic, row.partition_index)
        if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and self.settings.offset_reset:
            self.positions[key] = self.settings.offset_reset
            return []
        check(row.error_code, f"{topic}-{row.partition_index}")
        committed = self.settings.read_committed
        self.high_watermarks[key] = row.last_stable_offset if committed else row.high_watermark
        if not isinstance(row.records, bytes | memoryview):
            return []
        data = whole_batches(row.records)
        messages: list[Message] = []
        position = self.positions[key]
        for pos, header in self._visible_batches(row, data):
            messages += (
                Message(
                    topic,
                    row.partition_index,
                    record.offset,
                    record.timestamp,
                    header.timestamp_type,
                    record.key,
                    record.value,
                    record.headers,
                )
                for record in iter_records(data, pos, header)
                if record.offset >= position
            )
        for _, header in iter_headers(data):
            position = max(position, header.next_offset)
        self.positions[key] = position
        return messages

    def _visible_batches(
        self, row: fetch.PartitionData, data: memoryview
    ) -> Iterator[tuple[int, BatchHeader]]:
        """The batches without markers and without those of aborted transactions."""
        aborted = deque(
            sorted((t.first_offset, t.producer_id) for t in row.aborted_transactions or ())
        )
        ignored: set[int] = set()
        for pos, header in iter_headers(data):
            if not crc_matches(data, pos, header):
                text = f"the batch at offset {header.base_offset} does not match its CRC"
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, text)
            while aborted and aborted[0][0] <= header.last_offset:
                ignored.add(aborted.popleft()[1])
            if header.is_control:
                marker = read_marker(data, pos, header)
                if marker is not None and marker.type is ControlType.ABORT:
                    ignored.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in ignored):
                yield pos, header


def whole_batches(data: bytes | memoryview) -> memoryview:
    """`data` without the batch that a size limit cut off at its end."""
    view = memoryview(data)
    pos = 0
    while len(view) - pos >= _PREFIX_SIZE:
        _, size = read_prefix(view, pos)
        if not _PREFIX_SIZE < size <= len(view) - pos:
            break
        pos += size
    return view[:pos]
