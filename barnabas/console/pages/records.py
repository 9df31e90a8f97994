"""The records of a topic: from an offset or a time on, or those with a key."""

from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from barnabas.client.cluster import TopicInfo
from barnabas.console import records
from barnabas.console.console import Console, Page, parameter, whole_number
from barnabas.console.reads import log_ends, partitions_of, topic_named
from barnabas.operations.quantities import parse_time
from barnabas.protocol.topic_partition import TopicPartition


async def show(console: Console, request: Request) -> Response:
    if not console.settings.show_records:
        raise HTTPException(403, "This console shows no records: it was started with --no-records.")
    topic = await topic_named(console, parameter(request, "topic"))
    given = request.query_params
    key = given.get("key", "")
    partitions = _partitions(request, topic)
    ends = await log_ends(console, partitions)
    wanted = records.Wanted(
        ends,
        _offset(request),
        _time(request),
        key.encode("utf-8", "surrogatepass") if "key" in given and key else None,
        given.get("isolation", "committed") != "uncommitted",
    )
    reading = await records.read(console.cluster, wanted)
    rows = [records.shown(each, console.settings.masks) for each in reading.messages]
    return console.page(
        request,
        "records.html",
        topic=topic,
        given=given,
        committed=wanted.committed,
        reading=reading,
        silent=[each.partition for each in partitions if each not in ends],
        records=rows,
        masks=console.settings.masks,
        next=_next(reading, given),
        most=records.MOST_SHOWN,
    )


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


def _time(request: Request) -> int | None:
    text = request.query_params.get("time", "").strip()
    if not text or request.query_params.get("offset", "").strip():
        return None
    try:
        at_ms = parse_time(text)
    except (ValueError, OverflowError) as error:
        raise HTTPException(400, f"Time: {error}.") from None
    if at_ms >= 2**63:
        raise HTTPException(400, "Time: it is too late.")
    return at_ms


def _next(reading: records.Reading, given: Any) -> dict[str, Any] | None:
    """Return the parameters of the next page, if a single partition was read."""
    if reading.is_whole or len(reading.ranges) != 1:
        return None
    (one,) = reading.ranges
    kept = {name: given[name] for name in ("topic", "key", "isolation") if given.get(name)}
    return {**kept, "partition": one.at.partition, "offset": one.next}


PAGES = (Page("/records", show),)
