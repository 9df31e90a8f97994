"""The records of a topic: from an offset or a time on, or those that are searched, and live."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from barnabas.client.cluster import TopicInfo
from barnabas.client.consumer import Message
from barnabas.console import records
from barnabas.console.console import Console, Page, parameter, time_ms, whole_number
from barnabas.console.reads import log_ends, partitions_of, topic_named
from barnabas.console.search import PARAMETERS, Search
from barnabas.protocol.topic_partition import TopicPartition

MOST_TAILED: Final = 16
"""The partitions of one tail: each is read anew at each update."""
_SINCE: Final = re.compile(r"\d{1,10}:\d{1,19}(,\d{1,10}:\d{1,19})*", re.ASCII)


async def show(console: Console, request: Request) -> Response:
    topic, every, wanted = await _wanted(console, request)
    offset = _offset(request)
    at_ms = time_ms(request, "time", None) if offset is None else None
    wanted = wanted._replace(offset=offset, at_ms=at_ms)
    reading = await records.read(console.cluster, wanted)
    given = request.query_params
    return _page(
        console,
        request,
        "records.html",
        topic,
        wanted,
        reading.messages,
        reading=reading,
        silent=[each.partition for each in every if each not in wanted.partitions],
        can_tail=len(every) <= MOST_TAILED,
        next=_next(reading, given),
    )


async def tail(console: Console, request: Request) -> Response:
    topic, every, wanted = await _wanted(console, request)
    if len(every) > MOST_TAILED:
        raise HTTPException(400, f"Choose a partition: a tail is of at most {MOST_TAILED}.")
    since = _since(request, every)
    found = await records.tail(console.cluster, wanted, since)
    nexts = {**since, **found.nexts}
    given = {**_kept(request.query_params), "partition": request.query_params.get("partition")}
    given["since"] = ",".join(f"{each.partition}:{nexts[each]}" for each in sorted(nexts))
    return _page(
        console,
        request,
        "tail.html",
        topic,
        wanted,
        found.messages[::-1],
        skipped=found.skipped,
        newer=given,
        silent=[each.partition for each in every if each not in wanted.partitions],
    )


async def _wanted(
    console: Console, request: Request
) -> tuple[TopicInfo, list[TopicPartition], records.Wanted]:
    """Return the topic, the partitions and the records that a request asks for, from the log start.

    Partitions whose leader does not answer are not among those of the records.
    """
    if not console.settings.show_records:
        raise HTTPException(403, "This console shows no records: it was started with --no-records.")
    search = _search(console, request)
    topic = await topic_named(console, parameter(request, "topic"))
    every = _partitions(request, topic)
    committed = request.query_params.get("isolation", "committed") != "uncommitted"
    ends = await log_ends(console, every)
    wanted = records.Wanted(ends, None, None, search.matches, committed, records.MOST_SHOWN)
    return topic, every, wanted


def _page(
    console: Console,
    request: Request,
    template: str,
    topic: TopicInfo,
    wanted: records.Wanted,
    messages: Sequence[Message],
    **values: Any,
) -> Response:
    return console.page(
        request,
        template,
        topic=topic,
        given=request.query_params,
        committed=wanted.committed,
        records=[records.shown(each, console.settings.masks) for each in messages],
        masks=console.settings.masks,
        held_back=sum(each.end - each.stable for each in wanted.partitions.values()),
        kept=_kept(request.query_params),
        most=records.MOST_SHOWN,
        **values,
    )


def _since(request: Request, every: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    """Return where the update before has ended, as `partition:offset,partition:offset`."""
    text = request.query_params.get("since", "")
    if text and not _SINCE.fullmatch(text):
        raise HTTPException(400, "The parameter since is not from this page.")
    rows = (each.split(":") for each in text.split(",") if each)
    found = {int(partition): int(offset) for partition, offset in rows}
    return {each: found[each.partition] for each in every if each.partition in found}


def _search(console: Console, request: Request) -> Search:
    try:
        return Search.of(request.query_params, console.settings.masks)
    except ValueError as error:
        raise HTTPException(400, f"{error}.") from None


def _partitions(request: Request, topic: TopicInfo) -> list[TopicPartition]:
    every = partitions_of(topic)
    if not request.query_params.get("partition", "").strip():
        return every
    index = whole_number(request, "partition", 0)
    found = [each for each in every if each.partition == index]
    if not found:
        raise HTTPException(404, f"Topic {topic.name} has no partition {index}.")
    return found


def _offset(request: Request) -> int | None:
    if not request.query_params.get("offset", "").strip():
        return None
    return whole_number(request, "offset", 0)


def _next(reading: records.Reading, given: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the parameters of the next page, if a single partition was read."""
    if reading.is_whole or len(reading.ranges) != 1:
        return None
    (one,) = reading.ranges
    return {**_kept(given), "partition": one.at.partition, "offset": one.next}


def _kept(given: Mapping[str, str]) -> dict[str, str]:
    """Return the parameters that all pages of a search have."""
    return {name: given[name] for name in ("topic", "isolation", *PARAMETERS) if given.get(name)}


PAGES = (Page("/records", show), Page("/tail", tail))
