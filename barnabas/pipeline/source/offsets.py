"""Offsets by partition as Spark's stock connector writes them: `{"topic":{"0":23,"1":-2}}`.

Options and checkpoints have the same form. In options -2 is the first offset of a partition, -1 the
last; a checkpoint has real offsets only.
"""

import json
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from barnabas.protocol.topic_partition import TopicPartition

EARLIEST = -2
LATEST = -1
_LARGEST_PARTITION = 2**31 - 1
_LARGEST_OFFSET = 2**63 - 1
_EXAMPLE = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'

Offsets = dict[TopicPartition, int]
OffsetsJson = dict[str, dict[str, int]]


class Everywhere(NamedTuple):
    """EARLIEST or LATEST in each partition."""

    offset: int


class ByPartition(NamedTuple):
    """An offset for each partition; EARLIEST and LATEST are allowed."""

    offsets: Offsets


class AtTime(NamedTuple):
    """The first record at or after one time in ms, in each partition."""

    timestamp: int


class AtTimes(NamedTuple):
    """The first record at or after a time in ms, for each partition."""

    timestamps: Offsets


Bound = Everywhere | ByPartition | AtTime | AtTimes


class OffsetsError(ValueError):
    """A text that does not give offsets or partitions; the error's text shows the form."""


def parse_offsets(text: str) -> Offsets:
    """Read offsets from an option. Raises OffsetsError."""
    return _by_partition(text, EARLIEST, f"give offsets such as {_EXAMPLE}")


def parse_timestamps(text: str) -> Offsets:
    """Read timestamps in ms from an option. Raises OffsetsError."""
    example = '{"topicA":{"0":1700000000000,"1":1700000000000}}'
    return _by_partition(text, 0, f"give timestamps in ms such as {example}")


def parse_partitions(text: str) -> list[TopicPartition]:
    """Read partitions such as `{"topicA":[0,1],"topicB":[2]}`. Raises OffsetsError."""
    advice = 'give partitions such as {"topicA":[0,1],"topicB":[2,4]}'
    found: dict[TopicPartition, None] = {}
    for topic, indexes in _object(text, advice).items():
        if not isinstance(indexes, list) or not indexes:
            raise OffsetsError(f"topic {topic} has no list of partitions: {advice}")
        for index in indexes:
            if not _whole(index, 0, _LARGEST_PARTITION):
                raise OffsetsError(f"topic {topic} has no partition {index!r}: {advice}")
            partition = TopicPartition(topic, index)
            if partition in found:
                raise OffsetsError(f"partition {topic}-{index} stands there twice: {advice}")
            found[partition] = None
    if not found:
        raise OffsetsError(f"there is no partition in it: {advice}")
    return list(found)


def to_json(offsets: Mapping[TopicPartition, int]) -> OffsetsJson:
    """Return offsets as a checkpoint has them, topics and partitions in order.

    Spark compares the texts of two offsets to find out whether there is new data.
    """
    found: OffsetsJson = {}
    for topic, index in sorted(offsets):
        found.setdefault(topic, {})[str(index)] = offsets[TopicPartition(topic, index)]
    return found


def from_json(found: OffsetsJson) -> Offsets:
    """Return the offsets of a checkpoint, written by us or by the stock connector."""
    return {
        TopicPartition(topic, int(index)): offset
        for topic, partitions in found.items()
        for index, offset in partitions.items()
    }


def spell(partitions: Iterable[TopicPartition]) -> str:
    """Return partitions as a text such as `orders-0, orders-1`, cut after ten."""
    names = [f"{topic}-{index}" for topic, index in sorted(partitions)]
    more = len(names) - 10
    return ", ".join(names[:10]) + (f" and {more} more" if more > 0 else "")


def _by_partition(text: str, lowest: int, advice: str) -> Offsets:
    found: Offsets = {}
    for topic, partitions in _object(text, advice).items():
        if not isinstance(partitions, dict) or not partitions:
            raise OffsetsError(f"topic {topic} has no partitions: {advice}")
        for index, value in partitions.items():
            if not (index.isascii() and index.isdigit() and len(index) < 11):
                raise OffsetsError(f"topic {topic} has no partition {index!r}: {advice}")
            if int(index) > _LARGEST_PARTITION:
                raise OffsetsError(f"topic {topic} has no partition {index}: {advice}")
            if not _whole(value, lowest, _LARGEST_OFFSET):
                raise OffsetsError(f"partition {topic}-{index} has {value!r}: {advice}")
            partition = TopicPartition(topic, int(index))
            if partition in found:
                raise OffsetsError(f"partition {topic}-{index} stands there twice: {advice}")
            found[partition] = value
    if not found:
        raise OffsetsError(f"there is no partition in it: {advice}")
    return found


def _object(text: str, advice: str) -> dict[str, object]:
    try:
        found = json.loads(text, object_pairs_hook=_unique)
    except OffsetsError:
        raise
    except (ValueError, RecursionError):
        # ValueError alone: an integer of more than 4,300 digits.
        raise OffsetsError(f"the text is no JSON object: {advice}") from None
    if not isinstance(found, dict):
        raise OffsetsError(f"the text is no JSON object: {advice}")
    return found


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in pairs:
        if name in found:
            raise OffsetsError(f"{name!r} stands there twice: give it once")
        found[name] = value
    return found


def _whole(value: object, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
