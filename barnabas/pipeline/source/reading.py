"""Fetch the record batches of one range of offsets; detect data that the log has lost."""

import asyncio
import logging
from typing import NamedTuple

from barnabas.client.batches import (
    FetchedBatches,
    FetchSettings,
    fetch_batches,
    fetch_rows,
    read_batches,
    whole_batches,
)
from barnabas.client.cluster import Cluster, check
from barnabas.client.offsets import EARLIEST, LATEST, find_offsets
from barnabas.pipeline.errors import OneLineError
from barnabas.pipeline.source.offsets import spell
from barnabas.pipeline.source.options import Fetching
from barnabas.pipeline.source.planning import Range
from barnabas.pipeline.source.positions import LAGGING_LEADER_PATIENCE, NO_ID
from barnabas.protocol.backoff import Backoff
from barnabas.protocol.errors import ErrorCode, KafkaError, ProtocolError
from barnabas.protocol.messages import fetch
from barnabas.protocol.records.batch import crc_matches, iter_headers

_LOG = logging.getLogger("barnabas.pipeline")
_LARGEST_FETCH = 64 * 1024 * 1024


class DataLoss(OneLineError):
    """Records that a query has to read are lost; one line that says what to do."""


class Losses:
    """The decision of `failOnDataLoss`: a loss ends the query, or is logged."""

    def __init__(self, *, fail: bool) -> None:
        self._fail = fail

    def report(self, text: str) -> None:
        """Raise DataLoss, or log the loss as a warning."""
        if self._fail:
            advice = "set failOnDataLoss to false to go on with the records that are left"
            raise DataLoss(f"{text}; {advice}")
        _LOG.warning("data loss: %s", text)


def fetch_settings(fetching: Fetching) -> FetchSettings:
    """Return the settings of the Fetch requests of one partition."""
    return FetchSettings(
        min_bytes=fetching.min_bytes,
        max_bytes=fetching.max_bytes,
        partition_max_bytes=min(fetching.partition_max_bytes, fetching.max_bytes),
        max_wait=fetching.max_wait,
        read_committed=fetching.read_committed,
        offset_reset=None,
    )


class Chunk(NamedTuple):
    """Fetched batches, and the offset of the first record that counts in them."""

    start: int
    fetched: FetchedBatches


class RangeReader:
    """The batches of one range; the next request runs while the caller decodes a response.

    All methods belong to the event loop of the cluster.
    """

    def __init__(
        self,
        cluster: Cluster,
        wanted: Range,
        settings: FetchSettings,
        losses: Losses,
        *,
        topic_id: bytes = NO_ID,
    ) -> None:
        self._cluster = cluster
        self._partition = wanted.partition
        self._position = wanted.start
        self._end = wanted.end
        self._settings = settings
        self._losses = losses
        self._topic_id = topic_id
        self._next: asyncio.Task[FetchedBatches] | None = None

    @property
    def is_at_end(self) -> bool:
        """Whether `take` has returned all batches; no request runs then."""
        return self._position >= self._end

    async def take(self) -> Chunk | None:
        """Return the next batches, None at the end of the range.

        They may begin before the chunk's start and end behind the range. Raises DataLoss.
        """
        if self.is_at_end:
            return None
        if self._next is None:
            await self._check_topic()
            self._next = asyncio.ensure_future(self._fetch())
        fetched = await self._next
        self._next = None
        chunk = Chunk(self._position, fetched)
        self._position = max(self._position, fetched.next_offset)
        if not self.is_at_end:
            self._next = asyncio.ensure_future(self._fetch())
        return chunk

    async def close(self) -> None:
        """Cancel the request that runs."""
        if self._next is not None:
            self._next.cancel()
            await asyncio.gather(self._next, return_exceptions=True)
            self._next = None

    async def _fetch(self) -> FetchedBatches:
        """Return batches from the position on, at least one, or none and an offset behind it."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        deadline = began + self._cluster.timeout
        while True:
            try:
                fetched = await fetch_batches(
                    self._cluster, self._partition, self._position, self._settings
                )
            except ProtocolError as error:
                return await self._after_damage(str(error))
            except KafkaError as error:
                if error.code is ErrorCode.CORRUPT_MESSAGE:
                    return await self._after_damage(error.message or error.code.name)
                lost = await self._lost(error, waited=loop.time() - began)
                if lost is not None:
                    return lost
                await asyncio.sleep(Backoff().wait)
                continue
            await self._check_topic()
            if fetched.next_offset > self._position:
                return fetched
            stable = self._settings.read_committed
            end = fetched.last_stable_offset if stable else fetched.high_watermark
            if end >= self._end and not fetched.data:
                # Compaction has removed the rest.
                return fetched._replace(next_offset=self._end)
            if loop.time() > deadline:
                text = f"no batch is left from offset {self._position} on, the end was {self._end}"
                return self._skip(self._end, text)

    async def _lost(self, error: KafkaError, *, waited: float) -> FetchedBatches | None:
        """Continue behind lost records; None if another response may come.

        A deposed leader, and one that has just started, may know less than there is: what they do
        not have counts as lost after a while. Raises errors that are about no lost data.
        """
        patient = waited < min(self._cluster.timeout, LAGGING_LEADER_PATIENCE)
        topic, index = self._partition
        await self._cluster.retrying(lambda: self._cluster.refresh([topic]))
        known = self._cluster.topics.get(topic)
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            if known is None or index not in known.leaders:
                return self._skip(self._end, "the partition was deleted")
            if patient:
                return None
        if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
            raise error
        first = await self._offset(EARLIEST)
        last = await self._offset(LATEST)
        text = f"offset {self._position} is out of range, the log has {first} to {last}"
        if self._position < first:
            return self._skip(min(first, self._end), text)
        return None if patient else self._skip(self._end, text)

    async def _after_damage(self, reason: str) -> FetchedBatches:
        """Return the intact batches before a damaged one, or skip the damaged one."""
        size = self._settings.partition_max_bytes
        while True:
            settings = self._settings._replace(partition_max_bytes=size, max_bytes=size)
            row = await self._fetch_row(settings)
            records = row.records if isinstance(row.records, bytes | memoryview) else b""
            data = whole_batches(records)
            starts: list[tuple[int, int]] = []
            damaged: int | None = None
            try:
                for pos, header in iter_headers(data):
                    if damaged is None and not crc_matches(data, pos, header):
                        damaged = len(starts)
                    starts.append((pos, header.base_offset))
            except ProtocolError:
                damaged = len(starts) if damaged is None else damaged
            if damaged is None:
                return read_batches(
                    row, self._position, read_committed=self._settings.read_committed
                )
            if damaged:
                row.records = data[: starts[damaged][0]] if damaged < len(starts) else data
                return read_batches(
                    row, self._position, read_committed=self._settings.read_committed
                )
            if len(starts) > 1 and starts[1][1] > self._position:
                return self._skip(min(starts[1][1], self._end), reason)
            if size >= _LARGEST_FETCH:
                return self._skip(self._end, reason)
            size *= 4

    async def _fetch_row(self, settings: FetchSettings) -> fetch.PartitionData:
        """Return the response of the partition, with damaged batches."""

        async def attempt() -> fetch.PartitionData:
            leader = await self._cluster.leader(*self._partition)
            rows = await fetch_rows(
                self._cluster, leader, {self._partition: self._position}, settings
            )
            check(rows[0][1].error_code, spell([self._partition]))
            return rows[0][1]

        return await self._cluster.retrying(attempt)

    def _skip(self, to: int, reason: str) -> FetchedBatches:
        partition = spell([self._partition])
        self._losses.report(f"{partition}: offsets {self._position} to {to - 1} are lost, {reason}")
        return FetchedBatches(memoryview(b""), [], to, to, to, 0)

    async def _check_topic(self) -> None:
        """Report a loss if the topic is another one than that of the plan."""
        if self._topic_id == NO_ID:
            return
        topic = self._partition.topic
        known = self._cluster.topics.get(topic)
        if known is None or known.topic_id != self._topic_id:
            await self._cluster.retrying(lambda: self._cluster.refresh([topic]))
            known = self._cluster.topics.get(topic)
        if known is not None and known.topic_id not in (self._topic_id, NO_ID):
            self._topic_id = known.topic_id
            self._losses.report(f"topic {topic} was deleted and created again")

    async def _offset(self, which: int) -> int:
        found = await find_offsets(
            self._cluster,
            {self._partition: which},
            read_committed=self._settings.read_committed,
        )
        return found[self._partition].offset
