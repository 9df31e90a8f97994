"""The groups of every kind, each with its lag; one group with members and partitions."""

from functools import partial
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from barnabas.console.console import Console, Page, paged, parameter, search_of
from barnabas.console.lags import KEPT, PERIOD_S, Sample
from barnabas.console.reads import ask_for_groups, groups
from barnabas.operations.answers.groups import DescribedGroup
from barnabas.operations.group_description import DESCRIBED_TYPES, describe_groups
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.list_groups import ListedGroup

_ON_A_PAGE = 25
_LISTED_S: Final = 5.0
"""The age of the descriptions in the list."""
_LAGS: Final = {"lag": "lag", "to_read": "records to read", "held_back": "records held back"}
_WIDTH: Final = 1000
_HEIGHT: Final = 100


class GroupRow(NamedTuple):
    """A group in the list; without a description, the error says why."""

    listed: ListedGroup
    described: DescribedGroup | None
    error: str | None


async def show_all(console: Console, request: Request) -> Response:
    search = search_of(request)
    listed = [each for each in await groups(console) if search.lower() in each.group_id.lower()]
    paging = paged(request, listed, _ON_A_PAGE)
    known = tuple(each.group_id for each in paging.rows if each.group_type in DESCRIBED_TYPES)
    found = await console.results.get(
        ("groups", known),
        lambda: ask_for_groups(console, known, partial(describe_groups, console.cluster)),
        for_s=_LISTED_S,
    )
    rows = [
        GroupRow(each, found.answers.get(each.group_id), found.errors.get(each.group_id))
        for each in paging.rows
    ]
    return console.page(request, "groups.html", paging=paging, groups=rows, search=search)


async def show(console: Console, request: Request) -> Response:
    group = parameter(request, "id")
    try:
        described = await console.describe(group)
    except KafkaError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        others = [each for each in await groups(console) if each.group_id == group]
        if not others:
            raise
        return console.page(request, "other_group.html", group=others[0])
    samples = console.lags.shown(described)
    return console.page(
        request, "group.html", group=described, lags=_chart(samples), samples=samples
    )


class Line(NamedTuple):
    """One of the three lags over an hour, as the points of a line, with its least and its most."""

    name: str
    points: str
    last: int | None
    least: int | None
    most: int | None


def _chart(samples: list[Sample]) -> list[Line]:
    """Draw the samples over the hour up to the last; all lines have the scale of the highest."""
    lines = []
    rows = [[getattr(each, name) for each in samples] for name in _LAGS]
    top = max((each for row in rows for each in row if each is not None), default=0) or 1
    for title, values in zip(_LAGS.values(), rows, strict=True):
        known = [
            (
                _WIDTH - (samples[-1].at - sample.at) / (KEPT * PERIOD_S) * _WIDTH,
                _HEIGHT - value / top * _HEIGHT,
            )
            for sample, value in zip(samples, values, strict=True)
            if value is not None
        ]
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in known)
        found = [value for value in values if value is not None]
        least, most = min(found, default=None), max(found, default=None)
        lines.append(Line(title, points, values[-1], least, most))
    return lines


PAGES = (Page("/groups", show_all, "Groups"), Page("/group", show))
