"""The groups of every kind, each with its lag; one group with members and partitions."""

from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from barnabas.console.console import Console, Page, paged, parameter, search_of
from barnabas.console.reads import ask_each, groups
from barnabas.operations.answers.groups import DescribedGroup
from barnabas.operations.group_description import describe_group
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.list_groups import ListedGroup

_ON_A_PAGE = 25
_DESCRIBED = ("", "classic", "consumer")
_FOR_S = 1.5


class GroupRow(NamedTuple):
    """A group in the list; without a description, the error says why."""

    listed: ListedGroup
    described: DescribedGroup | None
    error: str | None


async def describe(console: Console, group: str) -> DescribedGroup:
    """Return the description of a group, of a moment ago."""
    return await console.results.get(
        ("group", group), lambda: describe_group(console.cluster, group), for_s=_FOR_S
    )


async def show_all(console: Console, request: Request) -> Response:
    search = search_of(request)
    listed = [each for each in await groups(console) if search.lower() in each.group_id.lower()]
    paging = paged(request, listed, _ON_A_PAGE)
    known = [each.group_id for each in paging.rows if each.group_type in _DESCRIBED]
    found = await ask_each(known, lambda group: describe(console, group))
    rows = [
        GroupRow(each, found.answers.get(each.group_id), found.errors.get(each.group_id))
        for each in paging.rows
    ]
    return console.page(request, "groups.html", paging=paging, groups=rows, search=search)


async def show(console: Console, request: Request) -> Response:
    group = parameter(request, "id")
    try:
        described = await describe(console, group)
    except KafkaError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        others = [each for each in await groups(console) if each.group_id == group]
        if not others:
            raise
        return console.page(request, "other_group.html", group=others[0])
    return console.page(request, "group.html", group=described)


PAGES = (Page("/groups", show_all, "Groups"), Page("/group", show))
