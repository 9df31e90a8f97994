"""The reads of records for a page: bounded, and with an account of what was not read."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Final, NamedTuple

from barnabas.client.batches import FetchSettings
from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Consumer, Message
from barnabas.client.offsets import find_offsets
from barnabas.console.masks import HIDDEN, is_hidden, json_text, masked
from barnabas.console.reads import LogEnds
from barnabas.operations.internal_records import DECODERS, decoded
from barnabas.protocol.topic_partition import TopicPartition

MOST_SHOWN: Final = 50
MOST_READ: Final = 20_000
"""The records that one page reads for a search."""
_READ_S: Final = 3.0
_SETTINGS: Final = FetchSettings(
    max_bytes=1 << 20, partition_max_bytes=1 << 18, max_wait=0.1, offset_reset=None
)


class Wanted(NamedTuple):
    """The records that a page asks for."""

    partitions: Mapping[TopicPartition, LogEnds]
    offset: int | None
    """The first offset; None for the log start, or for the time."""
    at_ms: int | None
    matches: Callable[[Message], bool]
    """Whether a record is one of those that are looked for."""
    committed: bool
    """Whether to leave out aborted records, and those of open transactions."""
    most: int
    """The records that are enough."""

    @property
    def ends(self) -> dict[TopicPartition, int]:
        """The offsets at which reading ends."""
        return {
            each: ends.stable if self.committed else ends.end
            for each, ends in self.partitions.items()
        }


class Range(NamedTuple):
    """The offsets of a partition that were read: from `first` on and below `next`."""

    at: TopicPartition
    first: int
    next: int
    end: int
    """The offset at which reading would have ended: more may have been appended since."""


class Reading(NamedTuple):
    """The records of a page, and what was read for it."""

    messages: list[Message]
    ranges: list[Range]
    read: int
    """Records that were looked at."""

    @property
    def is_whole(self) -> bool:
        return all(each.next >= each.end for each in self.ranges)


async def read(cluster: Cluster, wanted: Wanted) -> Reading:
    """Read records until enough are found, or so many read, or the time is over."""
    return await _read_from(cluster, wanted, await _starts(cluster, wanted))


async def _read_from(
    cluster: Cluster, wanted: Wanted, starts: Mapping[TopicPartition, int]
) -> Reading:
    ends = wanted.ends
    consumer = Consumer(cluster, _SETTINGS._replace(read_committed=wanted.committed))
    consumer.assign({each: start for each, start in starts.items() if start < ends[each]})
    nexts = dict(starts)
    found: list[Message] = []
    looked_at = 0
    until = asyncio.get_running_loop().time() + _READ_S
    while consumer.positions and looked_at < MOST_READ:
        if asyncio.get_running_loop().time() > until:
            break
        # No partition fills the page alone, unless the others have too little.
        share = -(-(wanted.most - len(found)) // len(consumer.positions))
        taken: Counter[TopicPartition] = Counter()
        for each in await consumer.poll():
            at = TopicPartition(each.topic, each.partition)
            if at not in consumer.positions or taken[at] > share:
                continue
            if len(found) >= wanted.most or each.offset >= ends[at]:
                # The first record that is left out: the next page begins with it.
                nexts[at] = min(each.offset, ends[at])
                del consumer.positions[at]
                continue
            is_wanted = wanted.matches(each)
            taken[at] += is_wanted
            if taken[at] > share:
                # The next poll goes on with it.
                consumer.positions[at] = each.offset
                continue
            looked_at += 1
            if is_wanted:
                found.append(each)
        for at, position in list(consumer.positions.items()):
            nexts[at] = min(position, ends[at])
            if position >= ends[at]:
                del consumer.positions[at]
        if len(found) >= wanted.most:
            break
    found.sort(key=lambda each: (each.partition, each.offset))
    ranges = [
        Range(each, starts[each], nexts[each], max(ends[each], starts[each]))
        for each in sorted(starts)
    ]
    return Reading(found, ranges, looked_at)


class Tail(NamedTuple):
    """The newest records, and where the next update goes on."""

    messages: list[Message]
    skipped: int
    """The offsets since the update before that are not shown."""
    nexts: Mapping[TopicPartition, int]


async def tail(cluster: Cluster, wanted: Wanted, since: Mapping[TopicPartition, int]) -> Tail:
    """Read the last offsets of each partition; `since` has the `nexts` of the update before."""
    ends = wanted.ends
    starts = {
        each: max(found.start, ends[each] - wanted.most)
        for each, found in wanted.partitions.items()
    }
    enough = wanted._replace(most=wanted.most * max(len(starts), 1))
    reading = await _read_from(cluster, enough, starts)
    newest = sorted(
        reading.messages, key=lambda each: (each.timestamp, each.partition, each.offset)
    )
    left_out = newest[: -wanted.most]
    nexts = {each.at: each.next for each in reading.ranges}
    skipped = sum(max(starts[at] - before, 0) for at, before in since.items() if at in starts)
    skipped += sum(
        each.offset >= since[at]
        for each in left_out
        if (at := TopicPartition(each.topic, each.partition)) in since
    )
    return Tail(newest[-wanted.most :], skipped, nexts)


async def _starts(cluster: Cluster, wanted: Wanted) -> dict[TopicPartition, int]:
    if wanted.at_ms is not None:
        rows = await find_offsets(cluster, dict.fromkeys(wanted.partitions, wanted.at_ms))
        # -1: no record is that late.
        return {
            each: rows[each].offset if rows[each].offset >= 0 else ends.end
            for each, ends in wanted.partitions.items()
        }
    first = wanted.offset or 0
    return {each: max(first, ends.start) for each, ends in wanted.partitions.items()}


class Shown(NamedTuple):
    """A record as a page shows it."""

    at: TopicPartition
    offset: int
    timestamp_ms: int
    key: str | None
    value: str | None
    headers: Sequence[tuple[str, str | None]]
    bytes: int


def shown(message: Message, masks: Sequence[str]) -> Shown:
    """Return a record as text: internal ones decoded, and the masked fields hidden."""
    at = TopicPartition(message.topic, message.partition)
    size = len(message.key or b"") + len(message.value or b"")
    hidden = {each.lower() for each in masks}
    headers = [
        (name, HIDDEN if is_hidden(name, hidden) else masked(data, hidden, is_short=True))
        for name, data in message.headers
    ]
    if message.topic in DECODERS:
        place = message.topic, message.partition, message.offset, message.timestamp
        found = asdict(decoded(place, message.key, message.value))
        kind = {name: found[name] for name in ("kind", "error") if name in found}
        named = {name: each for name, each in found.get("key", {}).items() if each is not None}
        key, value = {**kind, **named}, found.get("value")
        texts = json_text(key, hidden), None if value is None else json_text(value, hidden)
        return Shown(at, message.offset, message.timestamp, *texts, headers, size)
    key_text = masked(message.key, hidden, is_short=True)
    value_text = masked(message.value, hidden, is_short=False)
    return Shown(at, message.offset, message.timestamp, key_text, value_text, headers, size)
