"""The list of topics, favourites first, with sizes and with the groups that read them."""

from collections.abc import Sequence
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from barnabas.client.cluster import TopicInfo
from barnabas.console.console import Console, Page, paged, search_of, soon
from barnabas.console.pages.favourites import favourites
from barnabas.console.rates import Rate
from barnabas.console.reads import (
    SOON_S,
    Committed,
    begin_committed,
    disks,
    high_watermarks,
    partitions_of,
    rates,
)
from barnabas.protocol.records.group_lag import offset_lag
from barnabas.protocol.topic_partition import TopicPartition

_ON_A_PAGE = 25


class GroupOfTopic(NamedTuple):
    """A group that has offsets in a topic; the lag is in offsets, None if a leader is silent."""

    group: str
    lag: int | None


class TopicRow(NamedTuple):
    """A topic in the list."""

    name: str
    partitions: int
    replicas: int
    without_leader: int
    out_of_sync: int
    bytes: int
    groups: list[GroupOfTopic]
    rate: Rate


async def show(console: Console, request: Request) -> Response:
    search, internal = search_of(request), "internal" in request.query_params
    troubled = "troubled" in request.query_params
    first = set(favourites(console, request))
    await console.cluster.refresh()
    found = sorted(
        (
            topic
            for topic in console.cluster.topics.values()
            if search.lower() in topic.name.lower()
            and (internal or not topic.is_internal)
            and (not troubled or any(_troubles(console, topic)))
        ),
        key=lambda topic: (topic.name not in first, topic.name),
    )
    paging = paged(request, found, _ON_A_PAGE)
    reading = begin_committed(console)
    sizes = await disks(console)
    committed = await soon(reading, SOON_S)
    counted = await rates(console)
    wanted = _read(paging.rows, committed) if counted.are_counted else _every(paging.rows)
    ends = await high_watermarks(console, tuple(wanted))
    if not counted.are_counted:
        _note(console, paging.rows, ends)
    rows = [_row(console, topic, sizes.size(topic), committed, ends) for topic in paging.rows]
    return console.page(
        request,
        "topics.html",
        paging=paging,
        topics=rows,
        favourites=first,
        committed=committed,
        search=search,
        internal=internal,
        are_counted=counted.are_counted,
        troubled=troubled,
    )


def _troubles(console: Console, topic: TopicInfo) -> tuple[int, int]:
    """Return the numbers of partitions without a leader, and of those that lack replicas."""
    rows = topic.description.partitions
    return (
        sum(row.leader_id not in console.cluster.nodes for row in rows),
        sum(len(row.isr_nodes) < len(row.replica_nodes) for row in rows),
    )


def _read(topics: Sequence[TopicInfo], committed: Committed | None) -> list[TopicPartition]:
    """Return the partitions of topics that a group reads."""
    known = {} if committed is None else committed.by_partition
    return [each for each in _every(topics) if each in known]


def _every(topics: Sequence[TopicInfo]) -> list[TopicPartition]:
    return [each for topic in topics for each in partitions_of(topic)]


def _note(console: Console, topics: Sequence[TopicInfo], ends: dict[TopicPartition, int]) -> None:
    """Take the end offsets of topics as samples of their rates, of those whose leaders answer."""
    for topic in topics:
        places = partitions_of(topic)
        if all(each in ends for each in places):
            console.rates.note_offsets(topic.name, sum(ends[each] for each in places))


def _row(
    console: Console,
    topic: TopicInfo,
    size: int,
    committed: Committed | None,
    ends: dict[TopicPartition, int],
) -> TopicRow:
    rows = topic.description.partitions
    readers = [] if committed is None else committed.readers(topic.name, topic.leaders)
    return TopicRow(
        topic.name,
        len(rows),
        max((len(row.replica_nodes) for row in rows), default=0),
        *_troubles(console, topic),
        size,
        [GroupOfTopic(each, _lag(topic, each, committed, ends)) for each in readers],
        console.rates.of_topic(topic.name),
    )


def _lag(
    topic: TopicInfo,
    group: str,
    committed: Committed | None,
    ends: dict[TopicPartition, int],
) -> int | None:
    assert committed is not None
    lag = 0
    for each in partitions_of(topic):
        offset = committed.by_partition.get(each, {}).get(group)
        if offset is None:
            continue
        if each not in ends:
            return None
        lag += offset_lag(offset, ends[each])
    return lag


PAGES = (Page("/topics", show, "Topics"),)
