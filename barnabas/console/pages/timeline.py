"""The timeline of the cluster: what all brokers have seen, the latest first."""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from barnabas.console.console import Console, Page, paged, search_of, time_ms
from barnabas.console.pages import levers

_ON_A_PAGE: Final = 100
_FOR_S: Final = 1.0


async def show(console: Console, request: Request) -> Response:
    timeline = await console.results.get("events", console.timeline.read, for_s=_FOR_S)
    given = request.query_params
    search, kind = search_of(request), given.get("kind", "")
    since_ms, until_ms = time_ms(request, "since", 0), time_ms(request, "until", 2**63)
    found = timeline.latest(kind, search, since_ms, until_ms)
    offers = console.settings.faults is not None and console.settings.allow_changes
    return console.page(
        request,
        "timeline.html",
        brokers=await levers.states(console) if offers else [],
        offers=offers,
        levers=timeline.levers(),
        paging=paged(request, found, _ON_A_PAGE),
        problems=timeline.problems,
        kinds=timeline.kinds(),
        kind=kind,
        search=search,
        given=given,
    )


PAGES = (Page("/timeline", show, "Timeline"), *levers.PAGES)
