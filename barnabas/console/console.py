"""The parts that all pages of a console share."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from barnabas.client.connection import BrokerUnreachable
from barnabas.console.forms import Tokens
from barnabas.console.lags import Lags
from barnabas.console.rates import Rates
from barnabas.console.render import Renderer
from barnabas.console.settings import ConsoleSettings
from barnabas.console.shared import Results, SharedCluster
from barnabas.operations.answers.groups import DescribedGroup
from barnabas.operations.broker_http import Endpoints, HttpAccess
from barnabas.operations.events import Timeline
from barnabas.operations.group_description import describe_group
from barnabas.operations.quantities import parse_time
from barnabas.protocol.errors import ErrorCode, KafkaError, ProtocolError

Handler = Callable[["Console", Request], Awaitable[Response]]
_MISSING = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
)
CLUSTER_ERRORS = (KafkaError, BrokerUnreachable, ProtocolError, OSError, TimeoutError)
"""The errors of a cluster that does not answer, or refuses."""
_DESCRIBED_S: Final = 1.5
T = TypeVar("T")


class Page(NamedTuple):
    """A page: its address, its handler, and the text of its link in the navigation, if any."""

    path: str
    handler: Handler
    title: str | None = None
    methods: tuple[str, ...] = ("GET",)
    is_local: bool = False
    """Whether its POST changes nothing of the cluster, only the cookie of the browser."""

    @property
    def is_change(self) -> bool:
        """Whether it changes the cluster."""
        return "POST" in self.methods and not self.is_local


class Trouble(NamedTuple):
    """An error as a person is told it."""

    title: str
    text: str
    status: int


class Console:
    """The cluster, as one client sees it, with the results and forms of that client."""

    def __init__(
        self,
        settings: ConsoleSettings,
        cluster: SharedCluster,
        renderer: Renderer,
        navigation: Sequence[Page],
        user: str | None = None,
    ) -> None:
        """`user` is the person who has logged in; None: everyone has this console."""
        self.settings = settings
        self.cluster = cluster
        self.results = Results()
        self.tokens = Tokens()
        self.user = user
        self.lags = Lags(self.describe, CLUSTER_ERRORS)
        endpoints = Endpoints(cluster, HttpAccess(settings.token, settings.ca_file))
        self.timeline = Timeline(cluster, endpoints)
        self.rates = Rates(cluster, endpoints)
        self._renderer = renderer
        self._navigation = [(each.path, each.title) for each in navigation if each.title]
        self._changes = {each.path for each in navigation if each.is_change}
        self._sampling: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin with what goes on between requests, until `close`."""
        self._sampling = asyncio.create_task(self.lags.run())

    async def describe(self, group: str) -> DescribedGroup:
        """Return the description of a group, of a moment ago."""
        return await self.results.get(
            ("group", group), lambda: describe_group(self.cluster, group), for_s=_DESCRIBED_S
        )

    def page(self, request: Request, template: str, status: int = 200, **values: Any) -> Response:
        """Return a page of HTML."""
        shared = {"navigation": self._navigation, "user": self.user}
        values = {"path": request.url.path, "address": address_of(request), **shared, **values}
        return HTMLResponse(self._renderer.page(template, values), status)

    def person(self, request: Request) -> str:
        """Return who makes a request, for the log: on one line, whatever the name is."""
        address = request.client.host if request.client else "?"
        return address if self.user is None else f"{self.user!r} at {address}"

    def trouble(self, error: Exception) -> Trouble:
        """Return what a person is told about an error of the cluster or of the request."""
        if isinstance(error, HTTPException):
            return Trouble("Not possible", error.detail, error.status_code)
        text = str(error) or type(error).__name__
        if isinstance(error, KafkaError):
            return Trouble("The cluster refuses", text, 404 if error.code in _MISSING else 502)
        if isinstance(error, TimeoutError):
            text = str(error) or "No broker has answered in time."
        elif not isinstance(error, CLUSTER_ERRORS):
            end = "" if text.endswith("?") else "."
            return Trouble("Not possible", f"{text}{end}", 400)
        return Trouble("The cluster does not answer", text, 502)

    def failure(self, request: Request, error: Exception) -> Response:
        """Return the page about an error of the cluster or of the request."""
        trouble, is_form = self.trouble(error), request.method == "POST"
        return self.page(
            request,
            "failure.html",
            trouble.status,
            title=trouble.title,
            text=trouble.text,
            # What follows a form must not be replaced before it is read.
            is_live=not is_form,
            can_begin_again=is_form and request.url.path in self._changes,
        )

    async def close(self) -> None:
        if self._sampling is not None:
            self._sampling.cancel()
        self.results.close()
        await self.cluster.close()


def address_of(request: Request) -> str:
    """Return the path and query of a request, at which its live parts are asked for again."""
    query = request.url.query
    return f"{request.url.path}?{query}" if query else request.url.path


async def soon(future: "asyncio.Future[T]", seconds: float) -> T | None:
    """Return the result of work if it is there soon, otherwise None; the work continues."""
    done, _ = await asyncio.wait((future,), timeout=seconds)
    return future.result() if done else None


class Paging(NamedTuple, Generic[T]):
    """The rows of one page of a list; pages count from 1."""

    rows: Sequence[T]
    page: int
    pages: int
    total: int


def paged(request: Request, rows: Sequence[T], size: int) -> Paging[T]:
    """Return the rows of the page that a request asks for, or of the last one."""
    pages = max(1, -(-len(rows) // size))
    page = min(whole_number(request, "page", 1, least=1), pages)
    return Paging(rows[(page - 1) * size : page * size], page, pages, len(rows))


def search_of(request: Request) -> str:
    """Return the text that the names of a list must contain, in any case."""
    return request.query_params.get("q", "").strip()


def parameter(request: Request, name: str) -> str:
    """Return a parameter of the address that must be there."""
    value = request.query_params.get(name)
    if value is None:
        raise HTTPException(400, f"The address lacks the parameter {name}.")
    return value


def time_ms(request: Request, name: str, default: T) -> int | T:
    """Return a parameter of the address that is a date, a time or an age, in ms since 1970."""
    text = request.query_params.get(name, "").strip()
    if not text:
        return default
    try:
        at_ms = parse_time(text)
    except (ValueError, OverflowError) as error:
        raise HTTPException(400, f"Time: {error}.") from None
    if at_ms >= 2**63:
        raise HTTPException(400, "Time: it is too late.")
    return at_ms


def whole_number(
    request: Request, name: str, default: int, *, least: int = 0, most: int = 2**63 - 1
) -> int:
    """Return a parameter of the address that is a whole number within bounds."""
    text = request.query_params.get(name, "").strip()
    if not text:
        return default
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 20):
        raise HTTPException(400, f"The parameter {name} must be a whole number.")
    value = int(text)
    if not least <= value <= most:
        raise HTTPException(400, f"The parameter {name} must be between {least} and {most}.")
    return value
