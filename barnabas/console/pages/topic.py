"""A topic: its partitions as strips, and the groups and open transactions in them."""

from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from barnabas.client.transaction_admin import OpenTransaction
from barnabas.console.console import Console, Page, paged, parameter, soon
from barnabas.console.pages.favourites import favourites
from barnabas.console.pages.records import MOST_TAILED
from barnabas.console.reads import (
    SOON_S,
    LogEnds,
    begin_committed,
    disks,
    log_ends,
    now_ms,
    open_transactions,
    rates,
    topic_named,
)
from barnabas.console.spans import KINDS, MOST_OFFSETS, Span, Spans, first_of, read_spans
from barnabas.protocol.messages.metadata import MetadataResponsePartition
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.protocol.types import uuid_text

_ON_A_PAGE = 50
_WIDTH = 1000
"""The width of a strip in its own units."""


class Mark(NamedTuple):
    """A line in a strip: a committed offset or the start of an open transaction."""

    at: float
    text: str


class Strip(NamedTuple):
    """A partition from its log start, or from one of its last offsets, to its high watermark.

    Data that read_committed consumers may read, and data that an open transaction holds back, and
    the aborted data and markers among the former as paths of SVG, by the class that draws them.
    """

    data: float
    held: float
    paths: dict[str, str]
    groups: list[Mark]
    transactions: list[Mark]


class Partition(NamedTuple):
    """A partition of the page."""

    row: MetadataResponsePartition
    is_live: bool
    bytes: int | None
    ends: LogEnds | None
    groups: dict[str, int]
    transactions: list[OpenTransaction]
    spans: Spans | None
    strip: Strip | None


async def show(console: Console, request: Request) -> Response:
    name, is_end = parameter(request, "name"), "end" in request.query_params
    topic = await topic_named(console, name)
    rows = sorted(topic.description.partitions, key=lambda row: row.partition_index)
    paging = paged(request, rows, _ON_A_PAGE)
    places = [TopicPartition(name, row.partition_index) for row in paging.rows]
    ends = await log_ends(console, places)
    held = [each for each, found in ends.items() if found.stable < found.end]
    opened = await open_transactions(console, held)
    spans = await read_spans(console, ends) if is_end else {}
    committed = await soon(begin_committed(console), SOON_S)
    replicas = (await disks(console)).replicas
    partitions = []
    for place, row in zip(places, paging.rows, strict=True):
        groups = {} if committed is None else dict(committed.by_partition.get(place, {}))
        found, transactions = ends.get(place), opened.get(place, [])
        drawn = (
            None if found is None else found._replace(start=first_of(found)) if is_end else found
        )
        leader = replicas.get(place, {}).get(row.leader_id)
        partitions.append(
            Partition(
                row,
                row.leader_id in console.cluster.nodes,
                None if leader is None else leader.bytes,
                found,
                groups,
                transactions,
                spans.get(place),
                None if drawn is None else _strip(drawn, spans.get(place), groups, transactions),
            )
        )
    return console.page(
        request,
        "topic.html",
        topic=topic,
        id=uuid_text(topic.topic_id),
        is_favourite=name in favourites(console, request),
        can_tail=len(rows) <= MOST_TAILED,
        is_end=is_end,
        most=MOST_OFFSETS,
        paging=paging,
        partitions=partitions,
        committed=committed,
        rate=(await rates(console)).of_topic(name),
        now_ms=now_ms(),
        width=_WIDTH,
    )


def _strip(
    ends: LogEnds,
    spans: Spans | None,
    groups: dict[str, int],
    transactions: list[OpenTransaction],
) -> Strip:
    def path(rows: list[Span]) -> str:
        widths = ((place(each.first), place(each.next)) for each in rows)
        return "".join(f"M{left} 8V32H{right}V8Z" for left, right in widths)

    def place(offset: int) -> float:
        length = max(ends.end - ends.start, 1)
        return round(min(max((offset - ends.start) / length, 0), 1) * _WIDTH, 2)

    data = place(ends.stable)
    return Strip(
        data,
        round(place(ends.end) - data, 2),
        {} if spans is None else {kind: path(getattr(spans, kind)) for kind in KINDS},
        [Mark(place(offset), f"group {group} at {offset}") for group, offset in groups.items()],
        [
            Mark(
                place(each.start_offset),
                f"open transaction of producer {each.producer_id} from {each.start_offset}",
            )
            for each in transactions
        ],
    )


PAGES = (Page("/topic", show),)
