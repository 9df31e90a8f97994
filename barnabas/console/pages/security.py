"""Access control rules, quotas and users, and why a request is allowed or denied."""

from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.user_admin import UserAdmin
from barnabas.console.console import Console, Page, paged, search_of
from barnabas.console.render import url
from barnabas.operations.access_rules import OPERATIONS, Question, explain, rule_row
from barnabas.operations.answers.acls import Rule
from barnabas.operations.answers.model import Answer, names_of
from barnabas.operations.answers.quotas import Quota
from barnabas.operations.answers.users import User, user_rows
from barnabas.operations.quotas import quota_rows
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.security.acl.rules import RESOURCE_TYPES, WILDCARD, AclFilter, PatternType
from barnabas.security.acl.rules import ResourceType as Kind

_ON_A_PAGE: Final = 100
_FOR_S: Final = 1.5


async def _rules(cluster: Cluster) -> Sequence[Answer]:
    found = await Admin(cluster).describe_acls(AclFilter(Kind.ANY, None, PatternType.ANY))
    return [rule_row(each) for each in sorted(found)]


async def _quotas(cluster: Cluster) -> Sequence[Answer]:
    return quota_rows(await Admin(cluster).describe_client_quotas({}))


async def _users(cluster: Cluster) -> Sequence[Answer]:
    return user_rows(await UserAdmin(cluster).describe_users())


class _List(NamedTuple):
    """A list of the page, the type of its rows, and the changes that it offers."""

    read: Callable[[Cluster], Awaitable[Sequence[Answer]]]
    row: type[Answer]
    addition: tuple[str, str]
    """The text and the path of the link to a new row."""
    changes: tuple[tuple[str, str], ...]
    """The texts and paths of the links in each row."""
    key: Sequence[str]
    """The columns that these links pass on."""


class _Row(NamedTuple):
    """A row: its cells, and the texts and addresses of its links."""

    cells: list[Any]
    links: list[tuple[str, str]]


_LISTS: Final = {
    "rules": _List(
        _rules,
        Rule,
        ("Add a rule", "/security/rule"),
        (("Remove", "/security/rule/remove"),),
        names_of(Rule),
    ),
    "quotas": _List(
        _quotas,
        Quota,
        ("Set a quota", "/security/quota"),
        (("Change", "/security/quota"), ("Remove", "/security/quota/remove")),
        ("user", "client_id", "ip", "quota"),
    ),
    "users": _List(
        _users,
        User,
        ("Add a user", "/security/user"),
        (("New password", "/security/user"), ("Delete", "/security/user/delete")),
        ("user", "mechanism"),
    ),
}


async def show(console: Console, request: Request) -> Response:
    search, kind = search_of(request), request.query_params.get("show", "rules")
    if kind not in _LISTS:
        raise HTTPException(400, f"The parameter show must be one of {', '.join(_LISTS)}.")
    chosen, missing = _LISTS[kind], None
    found: list[list[Any]] = []
    try:
        rows = await console.results.get(
            ("security", kind), lambda: chosen.read(console.cluster), for_s=_FOR_S
        )
        found = [_cells(each) for each in rows]
    except KafkaError as error:
        # Without an authorizer there are no rules; older clusters and rights may lack the rest.
        missing = _missing(error)
    matching = [row for row in found if any(search.lower() in str(each).lower() for each in row)]
    paging = paged(request, matching, _ON_A_PAGE)
    return console.page(
        request,
        "security.html",
        kind=kind,
        kinds=list(_LISTS),
        addition=chosen.addition,
        rows=[_Row(row, _links(chosen, row)) for row in paging.rows],
        columns=[each.replace("_", " ").capitalize() for each in names_of(chosen.row)],
        paging=paging,
        search=search,
        missing=missing,
    )


def _cells(row: Answer) -> list[Any]:
    cells = (getattr(row, name) for name in names_of(type(row)))
    return [each.value if isinstance(each, Enum) else each for each in cells]


def _links(of: _List, cells: Sequence[Any]) -> list[tuple[str, str]]:
    known = dict(zip(names_of(of.row), cells, strict=True))
    passed = {name: known[name] for name in of.key}
    return [(text, url(path, **passed)) for text, path in of.changes]


def _missing(error: KafkaError) -> str:
    if error.code is ErrorCode.SECURITY_DISABLED:
        return "No authorizer is set: everyone may do everything."
    return f"The cluster refuses: {error.code.name}, {error.message or error.code.text}"


async def why(console: Console, request: Request) -> Response:
    given = request.query_params
    explained = missing = None
    if given.get("principal") or given.get("name"):
        try:
            question = Question.parse(
                given.get("principal", ""),
                given.get("operation", ""),
                f"{given.get('type', '')}:{given.get('name', '')}",
                given.get("host", "").strip() or WILDCARD,
            )
        except ValueError as error:
            raise HTTPException(400, f"{error}.") from None
        try:
            explained = await explain(console.cluster, question)
        except KafkaError as error:
            missing = _missing(error)
    return console.page(
        request,
        "why.html",
        given=given,
        explained=explained,
        missing=missing,
        operations=[each.label for each in OPERATIONS],
        types=[each.label for each in RESOURCE_TYPES],
    )


PAGES = (Page("/security", show, "Security"), Page("/security/why", why))
