"""The end of a batch, and the ranges of offsets that its tasks read: plain functions.

Sizes are counted in offsets. A range may have fewer rows, because markers, aborted transactions and
compaction leave offsets without a row.
"""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from barnabas.pipeline.source.offsets import Offsets, spell
from barnabas.protocol.topic_partition import TopicPartition

_LARGEST_OFFSET = 2**63 - 1


class Range(NamedTuple):
    """The offsets of one task: `start` is the first, `end` is behind the last."""

    partition: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        """The number of offsets."""
        return self.end - self.start


class Plan(NamedTuple):
    """The ranges between two offsets, and a line for each loss of data that was found."""

    ranges: list[Range]
    losses: list[str]


def plan(start: Offsets, end: Offsets, earliest: Mapping[TopicPartition, int]) -> Plan:
    """Return one range for each partition that has offsets between `start` and `end`.

    A partition that is missing in `start` is new and begins at its `earliest` offset.
    """
    ranges: list[Range] = []
    losses: list[str] = []
    if gone := start.keys() - end.keys():
        losses.append(f"{spell(gone)}: the partitions are gone")
    for partition in sorted(end):
        first, last = start.get(partition), end[partition]
        if first is None:
            first = earliest.get(partition)
            if first is None:
                losses.append(f"{spell([partition])}: the new partition is gone")
                continue
            if first > 0:
                losses.append(f"{spell([partition])}: the new partition starts at offset {first}")
        if last < first:
            losses.append(f"{spell([partition])}: the end moved back, from {first} to {last}")
        elif last > first:
            ranges.append(Range(partition, first, last))
    return Plan(ranges, losses)


def split(
    ranges: Iterable[Range], min_partitions: int | None, max_records: int | None
) -> list[Range]:
    """Cut large ranges: at most `max_records` offsets each, then about `min_partitions` in all.

    Together the pieces cover the ranges exactly. The number of pieces can differ from
    `min_partitions` by rounding, as with the stock connector.
    """
    found = [each for each in ranges if each.size > 0]
    if max_records is not None:
        found = [
            piece for each in found for piece in _pieces(each, math.ceil(each.size / max_records))
        ]
    if min_partitions is None or len(found) >= min_partitions:
        return found
    total = sum(each.size for each in found)
    whole = [each for each in found if _share(each.size, total, min_partitions) == 1]
    left = max(min_partitions - len(whole), 1)
    rest = total - sum(each.size for each in whole)
    untouched = set(whole)
    return [
        piece
        for each in found
        for piece in _pieces(each, 1 if each in untouched else _share(each.size, rest, left))
    ]


def _share(size: int, total: int, parts: int) -> int:
    return max(math.floor(size / total * parts + 0.5), 1)


def _pieces(whole: Range, count: int) -> list[Range]:
    """Cut a range into pieces whose sizes differ by one at most."""
    count = min(count, whole.size)
    cuts = [whole.start + whole.size * index // count for index in range(count + 1)]
    return [Range(whole.partition, first, last) for first, last in itertools.pairwise(cuts)]


def limit(
    start: Offsets, latest: Offsets, earliest: Mapping[TopicPartition, int], most: int
) -> Offsets:
    """Return an end that takes about `most` offsets, shared by what each partition has left.

    Each partition with something left gets at least one offset, as with the stock connector.
    """
    begin = {**earliest, **start}
    sizes = {
        partition: last - begin[partition]
        for partition, last in latest.items()
        if partition in begin and last > begin[partition]
    }
    total = sum(sizes.values())
    if total <= most:
        return dict(latest)
    end = dict(latest)
    for partition, size in sizes.items():
        share = most * size // total or 1
        end[partition] = min(latest[partition], begin[partition] + share, _LARGEST_OFFSET)
    return end


def available(start: Offsets, latest: Offsets, earliest: Mapping[TopicPartition, int]) -> int:
    """Return the number of offsets between `start` and `latest`."""
    begin = {**earliest, **start}
    return sum(max(last - begin.get(partition, last), 0) for partition, last in latest.items())


def check_partitions(
    name: str, given: Iterable[TopicPartition], found: Iterable[TopicPartition]
) -> None:
    """Raise ValueError unless an option names exactly the partitions that are read."""
    given, found = set(given), set(found)
    if unknown := given - found:
        text = f"{name} names {spell(unknown)}, which the query does not read"
        raise ValueError(f"{text}: remove them, or correct the topics")
    if missing := found - given:
        text = f"{name} lacks {spell(missing)}"
        raise ValueError(f"{text}: add them, -1 stands for the end and -2 for the start")


def clamp(
    name: str, offsets: Offsets, earliest: Offsets, latest: Offsets
) -> tuple[Offsets, Sequence[str]]:
    """Return offsets that the log has, and a line for each that it does not have."""
    found: Offsets = {}
    losses: list[str] = []
    for partition, offset in offsets.items():
        low, high = earliest[partition], latest[partition]
        found[partition] = min(max(offset, low), high)
        if found[partition] != offset:
            text = f"{spell([partition])}: {name} is {offset}, the log has {low} to {high}"
            losses.append(text)
    return found, losses


class Delay:
    """The wait for `minOffsetsPerTrigger`: a trigger with fewer offsets is put off.

    The first trigger of a process runs at once, as with the stock connector; time is in s.
    """

    def __init__(self, longest: float) -> None:
        self._longest = longest
        self._last = -math.inf

    def must_wait(self, count: int, least: int, now: float) -> bool:
        """Return whether the trigger is put off; otherwise the wait for the next one begins."""
        if count < least and now - self._last < self._longest:
            return True
        self._last = now
        return False
