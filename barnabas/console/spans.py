"""The aborted data and the markers in the last offsets of partitions, read within bounds."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from barnabas.client.batches import FetchedBatches, FetchSettings, fetch_rows, read_batches
from barnabas.client.cluster import check
from barnabas.console.console import CLUSTER_ERRORS, Console
from barnabas.console.reads import LogEnds, ask_each, led
from barnabas.protocol.records.batch import iter_headers
from barnabas.protocol.records.control import ControlType, read_marker
from barnabas.protocol.topic_partition import TopicPartition

MOST_OFFSETS: Final = 500
MOST_BYTES: Final = 4 << 20
"""The bytes that are read from one leader for a page."""
_READ_S: Final = 1.5
_SETTINGS: Final = FetchSettings(
    max_bytes=MOST_BYTES, partition_max_bytes=1 << 18, max_wait=0.0, offset_reset=None
)


class Span(NamedTuple):
    """Consecutive offsets: from `first` on and below `next`."""

    first: int
    next: int


class Spans(NamedTuple):
    """The offsets of a partition that were read, and those among them that are no data."""

    read: Span
    aborted: list[Span]
    commits: list[Span]
    aborts: list[Span]

    def offsets_of(self, kind: str) -> int:
        """Return the number of offsets of a kind."""
        return sum(each.next - each.first for each in getattr(self, kind))


KINDS: Final = Spans._fields[1:]


def first_of(ends: LogEnds) -> int:
    """Return the first of the last offsets of a partition."""
    return max(ends.start, ends.end - MOST_OFFSETS)


async def read_spans(
    console: Console, partitions: Mapping[TopicPartition, LogEnds]
) -> dict[TopicPartition, Spans]:
    """Read the last offsets of partitions; those whose leader does not answer are left out."""

    async def of_leader(leader: int) -> dict[TopicPartition, Spans]:
        found = {}
        for each in by_leader[leader]:
            first = min(first_of(partitions[each]), partitions[each].stable)
            found[each] = Spans(Span(first, first), [], [], [])
        left, bytes_read = set(found), 0
        until = asyncio.get_running_loop().time() + _READ_S
        while left and bytes_read < MOST_BYTES and asyncio.get_running_loop().time() < until:
            offsets = {
                each: found[each].read.next
                for each in left
                if found[each].read.next < partitions[each].stable
            }
            if not offsets:
                break
            left = set()
            for each, row in await fetch_rows(console.cluster, leader, offsets, _SETTINGS):
                batches = None
                # A partition that cannot be read costs its own row only.
                with suppress(*CLUSTER_ERRORS):
                    check(row.error_code)
                    batches = read_batches(row, offsets[each], read_committed=True)
                if batches is not None and batches.data:
                    found[each] = _with(found[each], batches, partitions[each].stable)
                    left.add(each)
                    bytes_read += len(batches.data)
        return found

    by_leader = await led(console, partitions)
    answers = await ask_each(by_leader, of_leader)
    return {each: spans for rows in answers.answers.values() for each, spans in rows.items()}


def _with(spans: Spans, batches: FetchedBatches, stable: int) -> Spans:
    kinds = {kind: list(getattr(spans, kind)) for kind in KINDS}
    first, end = spans.read.first, min(batches.next_offset, stable)
    for kind, span in _kinds(batches):
        within = Span(max(span.first, first), min(span.next, end))
        if within.first < within.next:
            kinds[kind].append(within)
    return Spans(Span(first, end), *map(_joined, kinds.values()))


def _kinds(batches: FetchedBatches) -> Iterator[tuple[str, Span]]:
    visible = {pos for pos, _ in batches.visible}
    for pos, header in iter_headers(batches.data):
        span = Span(header.base_offset, header.last_offset + 1)
        if header.is_control:
            marker = read_marker(batches.data, pos, header)
            if marker is not None:
                yield "commits" if marker.type is ControlType.COMMIT else "aborts", span
        elif pos not in visible:
            yield "aborted", span


def _joined(spans: list[Span]) -> list[Span]:
    joined: list[Span] = []
    for each in spans:
        if joined and joined[-1].next >= each.first:
            joined[-1] = Span(joined[-1].first, max(joined[-1].next, each.next))
        else:
            joined.append(each)
    return joined
