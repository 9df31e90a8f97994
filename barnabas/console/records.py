"""The reads of records for a page: bounded, and with an account of what was not read."""

import asyncio
import base64
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Final, NamedTuple

from barnabas.client.batches import FetchSettings
from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Consumer, Message
from barnabas.client.offsets import find_offsets
from barnabas.console.reads import LogEnds
from barnabas.operations.internal_records import DECODERS, decoded
from barnabas.protocol.topic_partition import TopicPartition

MOST_SHOWN: Final = 50
MOST_READ: Final = 20_000
"""The records that one page reads for a search."""
_READ_S: Final = 3.0
_MOST_TEXT: Final = 4096
"""The characters of a key or value that are shown."""
_HIDDEN: Final = "(hidden)"
_SETTINGS: Final = FetchSettings(
    max_bytes=1 << 20, partition_max_bytes=1 << 18, max_wait=0.1, offset_reset=None
)


class Wanted(NamedTuple):
    """The records that a page asks for."""

    partitions: Mapping[TopicPartition, LogEnds]
    offset: int | None
    """The first offset; None for the log start, or for the time."""
    at_ms: int | None
    key: bytes | None
    """The key that a record must have."""
    committed: bool
    """Whether to leave out aborted records, and those of open transactions."""


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
    starts = await _starts(cluster, wanted)
    ends = {
        each: ends.stable if wanted.committed else ends.end
        for each, ends in wanted.partitions.items()
    }
    consumer = Consumer(cluster, _SETTINGS._replace(read_committed=wanted.committed))
    consumer.assign({each: start for each, start in starts.items() if start < ends[each]})
    nexts = dict(starts)
    found: list[Message] = []
    looked_at = 0
    until = asyncio.get_running_loop().time() + _READ_S
    while consumer.positions and looked_at < MOST_READ:
        if asyncio.get_running_loop().time() > until:
            break
        for each in await consumer.poll():
            at = TopicPartition(each.topic, each.partition)
            if at not in consumer.positions:
                continue
            if len(found) >= MOST_SHOWN or each.offset >= ends[at]:
                # The first record that is left out: the next page begins with it.
                nexts[at] = min(each.offset, ends[at])
                del consumer.positions[at]
                continue
            looked_at += 1
            if wanted.key is None or each.key == wanted.key:
                found.append(each)
        for at, position in list(consumer.positions.items()):
            nexts[at] = min(position, ends[at])
            if position >= ends[at]:
                del consumer.positions[at]
        if len(found) >= MOST_SHOWN:
            break
    found.sort(key=lambda each: (each.partition, each.offset))
    ranges = [
        Range(each, starts[each], nexts[each], max(ends[each], starts[each]))
        for each in sorted(starts)
    ]
    return Reading(found, ranges, looked_at)


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
        (name, _HIDDEN if name.lower() in hidden else _masked(data, hidden, is_short=True))
        for name, data in message.headers
    ]
    if message.topic in DECODERS:
        place = message.topic, message.partition, message.offset, message.timestamp
        found = asdict(decoded(place, message.key, message.value))
        kind = {name: found[name] for name in ("kind", "error") if name in found}
        named = {name: each for name, each in found.get("key", {}).items() if each is not None}
        key, value = {**kind, **named}, found.get("value")
        texts = _json(key, hidden), None if value is None else _json(value, hidden)
        return Shown(at, message.offset, message.timestamp, *texts, headers, size)
    key_text = _masked(message.key, hidden, is_short=True)
    value_text = _masked(message.value, hidden, is_short=False)
    return Shown(at, message.offset, message.timestamp, key_text, value_text, headers, size)


def _masked(data: bytes | None, hidden: set[str], *, is_short: bool) -> str | None:
    """Return a key, value or header with its fields masked. One that is not JSON is hidden, because
    its fields are not known; only a key or header that is a plain text is shown."""
    if data is None or not hidden:
        return _text(data)
    with suppress(ValueError, RecursionError):
        value = json.loads(data)
        if isinstance(value, dict | list):
            return _json(value, hidden)
    return _text(data) if is_short and _is_plain(data, hidden) else _HIDDEN


def _is_plain(data: bytes, hidden: set[str]) -> bool:
    """Whether a text has no fields: no sign of JSON, and no name of a masked field."""
    try:
        text = data.decode().lower()
    except UnicodeDecodeError:
        return False
    return not any(each in text for each in ("{", "[", "\\", *hidden))


def _json(value: Any, hidden: set[str]) -> str:
    return _cut(json.dumps(_without(value, hidden), ensure_ascii=False, default=str))


def _without(value: Any, hidden: set[str]) -> Any:
    if isinstance(value, dict):
        return {
            name: _HIDDEN if str(name).lower() in hidden else _without(each, hidden)
            for name, each in value.items()
        }
    if isinstance(value, list):
        return [_without(each, hidden) for each in value]
    return value


def _text(data: bytes | None) -> str | None:
    """Return bytes as text, or in base64 if they are not UTF-8."""
    if data is None:
        return None
    try:
        return _cut(data.decode())
    except UnicodeDecodeError:
        return _cut("base64: " + base64.b64encode(data).decode())


def _cut(text: str) -> str:
    more = len(text) - _MOST_TEXT
    return text if more <= 0 else f"{text[:_MOST_TEXT]}… and {more} more characters"
