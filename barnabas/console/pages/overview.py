"""The first page: the cluster and its health."""

from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from barnabas.console.console import Console, Page, soon
from barnabas.console.reads import SOON_S, begin_health, now_ms, rates
from barnabas.protocol.errors import KafkaError


class Overview(NamedTuple):
    """The size of a cluster; internal topics do not count."""

    cluster_id: str | None
    controller: int | None
    brokers: int
    topics: int
    partitions: int


async def show(console: Console, request: Request) -> Response:
    cluster = console.cluster
    await cluster.refresh()
    topics = [topic for topic in cluster.topics.values() if not topic.is_internal]
    controller = cluster.controller_id if cluster.controller_id in cluster.nodes else None
    overview = Overview(
        cluster.cluster_id,
        controller,
        len(cluster.nodes),
        len(topics),
        sum(len(topic.leaders) for topic in topics),
    )
    seen = unseen = None
    try:
        seen = await soon(begin_health(console), SOON_S)
    except KafkaError as error:
        # The user of a login may lack the rights.
        unseen = str(error)
    found = await rates(console)
    problems = [] if seen is None else seen.rows
    return console.page(
        request,
        "overview.html",
        overview=overview,
        seen=seen,
        unseen=unseen,
        shown=problems[:_MOST_SHOWN],
        held_back=any(each.check == "transactions" for each in problems),
        rate=found.of_cluster(),
        uncounted=found.problems,
        now_ms=now_ms(),
    )


_MOST_SHOWN = 100
PAGES = (Page("/", show, "Overview"),)
