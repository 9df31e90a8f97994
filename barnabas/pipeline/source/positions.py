"""The partitions that a query reads, and their first and last offsets, asked from the cluster."""

import asyncio
import re
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from barnabas.client.cluster import UNKNOWN_TOPIC_PATIENCE, Cluster
from barnabas.client.offsets import find_offsets
from barnabas.pipeline.source.offsets import (
    EARLIEST,
    LATEST,
    AtTime,
    AtTimes,
    Bound,
    ByPartition,
    Everywhere,
    Offsets,
    spell,
)
from barnabas.pipeline.source.options import Assign, Pattern, Selection, Subscribe
from barnabas.pipeline.source.planning import check_partitions, clamp
from barnabas.protocol.backoff import Backoff
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.topic_partition import TopicPartition

NO_ID = bytes(16)
"""The id of each topic on brokers that have no ids of topics."""
LAGGING_LEADER_PATIENCE = 10.0
"""Seconds for which a new leader may know less than the offsets that were read before."""


class SourceError(Exception):
    """A topic or an offset that a query cannot work with; one line that says what to do."""


class Found(NamedTuple):
    """The offsets at which a query begins or ends, and a line for each that the log lacks."""

    offsets: Offsets
    losses: Collection[str] = ()
    at_end: Collection[TopicPartition] = ()
    """The partitions whose offset is the end of the log now; asked again, they give another."""


class Positions:
    """The partitions of a selection of topics, with their offsets, in one cluster."""

    def __init__(self, cluster: Cluster, selection: Selection, *, read_committed: bool) -> None:
        self._cluster = cluster
        self._selection = selection
        self._read_committed = read_committed
        self.topic_ids: dict[str, bytes] = {}
        """The id of each topic that was found last."""

    async def partitions(self, known: Collection[TopicPartition] = ()) -> list[TopicPartition]:
        """Return all partitions, in order.

        A broker that lags behind may not know a topic or a partition yet: while a `known` one is
        missing, ask again for 2 s.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + UNKNOWN_TOPIC_PATIENCE
        backoff = Backoff()
        while True:
            found = await self._cluster.retrying(self._ask)
            if found.issuperset(known) or loop.time() + backoff.wait > deadline:
                return sorted(found)
            await asyncio.sleep(backoff.failed())

    async def all_partitions(self) -> list[TopicPartition]:
        """Return all partitions. Raises SourceError for a topic or partition that is missing."""
        if isinstance(self._selection, Assign):
            wanted: Collection[TopicPartition] = self._selection.partitions
        elif isinstance(self._selection, Subscribe):
            wanted = [TopicPartition(topic, 0) for topic in self._selection.topics]
        else:
            wanted = ()
        found = await self.partitions(wanted)
        if missing := set(wanted).difference(found):
            topics = sorted({topic for topic, _ in missing if topic not in self.topic_ids})
            if topics:
                raise SourceError(
                    f"topic {', '.join(topics)} does not exist: create it or correct the name"
                )
            text = "correct the option assign, or add partitions to the topic"
            raise SourceError(f"partition {spell(missing)} does not exist: {text}")
        return found

    async def _ask(self) -> set[TopicPartition]:
        """Request Metadata once; topics that do not exist are left out."""
        selection = self._selection
        if isinstance(selection, Pattern):
            response = await self._cluster.refresh(None)
        elif isinstance(selection, Subscribe):
            response = await self._cluster.refresh(selection.topics)
        else:
            response = await self._cluster.refresh({topic for topic, _ in selection.partitions})
        found: set[TopicPartition] = set()
        ids: dict[str, bytes] = {}
        for row in response.topics:
            code = ErrorCode.of(row.error_code)
            if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue
            if code is not ErrorCode.NONE:
                raise KafkaError(code, f"topic {row.name}")
            assert row.name is not None
            if isinstance(selection, Pattern) and (
                row.is_internal or not re.fullmatch(selection.regex, row.name)
            ):
                continue
            ids[row.name] = row.topic_id
            found.update(TopicPartition(row.name, each.partition_index) for each in row.partitions)
        self.topic_ids = ids
        if isinstance(selection, Assign):
            found.intersection_update(selection.partitions)
        return found

    async def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Return the first offset of each partition."""
        return await self._find(dict.fromkeys(partitions, EARLIEST))

    async def latest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Return the offset behind the last record that can be read, of each partition."""
        return await self._find(dict.fromkeys(partitions, LATEST))

    async def latest_from(self, start: Mapping[TopicPartition, int]) -> Offsets:
        """Return the last offsets of all partitions, new ones included.

        A new leader may lag behind with its high watermark: while an end is before `start`, ask
        again until the timeout of the cluster. An end that stays there is returned as it is, and
        a partition that is gone is left out.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + min(self._cluster.timeout, LAGGING_LEADER_PATIENCE)
        backoff = Backoff()
        before = self.topic_ids
        while True:
            try:
                found = await self.latest(await self.partitions(start.keys()))
            except KafkaError as error:
                # A topic that was deleted since it was listed.
                if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or loop.time() > deadline:
                    raise
            else:
                behind = any(found.get(each, offset) < offset for each, offset in start.items())
                # A topic that was created again does not mean that its leader lags.
                again = created_again(before, self.topic_ids)
                if not behind or again or loop.time() + backoff.wait > deadline:
                    return found
            await asyncio.sleep(backoff.failed())

    async def start(self, bound: Bound, *, error_without_match: bool) -> Found:
        """Return where a query begins; raises SourceError if the option does not fit."""
        partitions = await self.all_partitions()
        wanted = self._by_partition(bound, partitions, "starting")
        if isinstance(bound, AtTime | AtTimes):
            found = await self._find(wanted)
            late = [partition for partition, offset in found.items() if offset < 0]
            if late and error_without_match:
                text = "give an earlier one, or set startingOffsetsByTimestampStrategy to latest"
                raise SourceError(
                    f"{spell(late)} has no record at or after the starting timestamp: {text}"
                )
            return Found(found | await self.latest(late), at_end=late)
        return await self._resolve("startingOffsets", wanted)

    async def end(self, bound: Bound) -> Found:
        """Return where a batch ends; raises SourceError if the option does not fit."""
        partitions = await self.all_partitions()
        wanted = self._by_partition(bound, partitions, "ending")
        if isinstance(bound, AtTime | AtTimes):
            found = await self._find(wanted)
            late = [partition for partition, offset in found.items() if offset < 0]
            return Found(found | await self.latest(late))
        return await self._resolve("endingOffsets", wanted)

    def _by_partition(
        self, bound: Bound, partitions: Collection[TopicPartition], side: str
    ) -> Offsets:
        if isinstance(bound, Everywhere):
            return dict.fromkeys(partitions, bound.offset)
        if isinstance(bound, AtTime):
            return dict.fromkeys(partitions, bound.timestamp)
        given = bound.offsets if isinstance(bound, ByPartition) else bound.timestamps
        suffix = "" if isinstance(bound, ByPartition) else "ByTimestamp"
        try:
            check_partitions(f"{side}Offsets{suffix}", given, partitions)
        except ValueError as error:
            raise SourceError(str(error)) from None
        return given

    async def _resolve(self, name: str, wanted: Offsets) -> Found:
        """Replace EARLIEST and LATEST, and clamp offsets that the log does not have."""
        given = {partition: offset for partition, offset in wanted.items() if offset >= 0}
        at_end = [partition for partition, offset in wanted.items() if offset == LATEST]
        found = {
            **await self.earliest(each for each, offset in wanted.items() if offset == EARLIEST),
            **await self.latest(at_end),
        }
        if not given:
            return Found(found, at_end=at_end)
        low, high = await self.earliest(given), await self.latest(given)
        clamped, losses = clamp(name, given, low, high)
        return Found(found | clamped, losses, at_end)

    async def _find(self, wanted: Mapping[TopicPartition, int]) -> Offsets:
        if not wanted:
            return {}
        rows = await find_offsets(self._cluster, wanted, read_committed=self._read_committed)
        return {partition: row.offset for partition, row in rows.items()}


def created_again(before: Mapping[str, bytes], now: Mapping[str, bytes]) -> list[str]:
    """Return the topics whose id has changed, in order."""
    return sorted(
        topic for topic, topic_id in now.items() if before.get(topic, topic_id) != topic_id
    )
