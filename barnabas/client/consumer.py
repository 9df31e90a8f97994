"""The consumer: a position by partition, and one Fetch to each leader in a poll."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from barnabas.client.batches import FetchSettings, fetch_rows, read_batches
from barnabas.client.cluster import Cluster, check
from barnabas.client.last_records import find_last
from barnabas.client.offsets import LATEST, find_offsets
from barnabas.protocol.errors import ErrorCode, KafkaError, ProtocolError
from barnabas.protocol.messages import fetch
from barnabas.protocol.records.record import Headers, iter_fields
from barnabas.protocol.topic_partition import TopicPartition

__all__ = ["Consumer", "FetchSettings", "Message"]


class Message(NamedTuple):
    """A record with its topic and partition."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Headers


_as_message = tuple.__new__


class Consumer:
    """A consumer of assigned partitions; in a group, `GroupMember` assigns them."""

    def __init__(self, cluster: Cluster, settings: FetchSettings | None = None) -> None:
        self._cluster = cluster
        self.settings = settings or FetchSettings()
        self.positions: dict[TopicPartition, int] = {}
        """The offset of the next record by partition; EARLIEST or LATEST until it is looked up."""
        self.high_watermarks: dict[TopicPartition, int] = {}
        self.held_back: set[TopicPartition] = set()
        """The partitions whose last response ended at an open transaction, with read_committed."""

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Consume exactly these partitions, from these offsets (or EARLIEST, LATEST) on."""
        self.positions = dict(positions)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Consume an assigned partition from this offset (or EARLIEST, LATEST) on.

        With read_committed LATEST is the last stable offset, i.e. the start of the oldest open
        transaction, if there is one.
        """
        if partition not in self.positions:
            raise ValueError(f"{partition[0]}-{partition[1]} is not assigned")
        self.positions[partition] = offset

    async def seek_to_timestamp(self, wanted: Mapping[TopicPartition, int]) -> None:
        """Seek to the first record at or after a time in ms, or to the end."""
        found = await find_offsets(self._cluster, wanted)
        for partition, row in found.items():
            self.positions[partition] = row.offset if row.offset >= 0 else LATEST

    async def seek_back(self, wanted: Iterable[TopicPartition], count: int) -> None:
        """Seek to the last `count` records of each partition, or to the start if there are fewer.

        Markers do not count, nor do records of aborted transactions with read_committed.
        """
        self.positions |= await find_last(self._cluster, wanted, count, self.settings)

    async def poll(self) -> list[Message]:
        """Return the records that arrive within `max_wait`, in order within each partition."""
        await self._cluster.retrying(self._look_up)
        if not self.positions:
            await asyncio.sleep(self.settings.max_wait)
            return []
        return await self._cluster.retrying(self._fetch_all)

    def at_end(self, partition: TopicPartition) -> bool:
        """Whether the last poll reached the end of a partition at the time of the poll."""
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
        asked = dict(self.positions)
        by_leader: dict[int, dict[TopicPartition, int]] = defaultdict(dict)
        for partition, offset in asked.items():
            by_leader[await self._cluster.leader(*partition)][partition] = offset
        answers = await asyncio.gather(
            *(
                fetch_rows(self._cluster, leader, offsets, self.settings)
                for leader, offsets in by_leader.items()
            ),
            return_exceptions=True,
        )
        errors: list[BaseException] = []
        messages: list[Message] = []
        for answer in answers:
            if isinstance(answer, BaseException):
                errors.append(answer)
                continue
            for partition, row in answer:
                if self.positions.get(partition) != asked.get(partition):
                    # A seek or a new assignment changed the position during the request.
                    continue
                try:
                    messages += self._read(partition, row)
                except (KafkaError, ProtocolError) as error:
                    errors.append(error)
        # Return the received records before an error: the next poll meets the error again.
        if errors and not messages:
            raise errors[0]
        return messages

    def _read(self, place: TopicPartition, row: fetch.PartitionData) -> list[Message]:
        """Return the records in the response of a partition and move its position behind them."""
        if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and self.settings.offset_reset:
            self.positions[place] = self.settings.offset_reset
            return []
        check(row.error_code, f"{place.topic}-{place.partition}")
        committed = self.settings.read_committed
        self.high_watermarks[place] = row.last_stable_offset if committed else row.high_watermark
        if committed and row.last_stable_offset < row.high_watermark:
            self.held_back.add(place)
        else:
            self.held_back.discard(place)
        position = self.positions[place]
        fetched = read_batches(row, position, read_committed=committed)
        topic, partition = place
        messages: list[Message] = []
        for pos, header in fetched.visible:
            kind = header.timestamp_type
            messages += [
                _as_message(Message, (topic, partition, offset, at, kind, key, value, headers))
                for offset, at, key, value, headers in iter_fields(fetched.data, pos, header)
                if offset >= position
            ]
        self.positions[place] = fetched.next_offset
        return messages
