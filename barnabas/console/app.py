"""The application of the console, and its server."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from barnabas.client.connection import AuthenticationError
from barnabas.console.console import CLUSTER_ERRORS, Console, Handler, Page
from barnabas.console.guard import Guard
from barnabas.console.pages import (
    brokers,
    configs,
    endings,
    favourites,
    groups,
    overview,
    pipelines,
    reassignments,
    records,
    resets,
    security,
    security_changes,
    timeline,
    topic,
    topic_changes,
    topics,
    transactions,
)
from barnabas.console.render import Renderer
from barnabas.console.sessions import Consoles, Sessions
from barnabas.console.settings import ConsoleSettings

PAGES: Final[tuple[Page, ...]] = (
    *overview.PAGES,
    *brokers.PAGES,
    *topics.PAGES,
    *topic.PAGES,
    *favourites.PAGES,
    *configs.PAGES,
    *records.PAGES,
    *groups.PAGES,
    *transactions.PAGES,
    *pipelines.PAGES,
    *reassignments.PAGES,
    *resets.PAGES,
    *topic_changes.PAGES,
    *endings.PAGES,
    *timeline.PAGES,
    *security.PAGES,
    *security_changes.PAGES,
)
"""All pages; those with a title are in the navigation, in this order."""
_STATIC: Final = Path(__file__).parent / "static"
_GRACE_S: Final = 2
TICK_S: Final = 2.0
_OF_EVERY_PAGE: Final = ("bootstrap", "allow_changes", "show_records")
"""The settings that templates of all pages may ask for."""
MOST_STREAMS: Final = 64
"""The open pages that follow the cluster at the same time."""


def application(settings: ConsoleSettings) -> ASGIApp:
    """Return the ASGI application of a console, which closes its clients at its end."""
    pages = [each for each in PAGES if settings.allow_changes or not each.is_change]
    forms = [each.path for each in pages if "POST" in each.methods]
    shared = {name: getattr(settings, name) for name in _OF_EVERY_PAGE}
    renderer, live = Renderer(shared), Live()
    logins: list[Route] = []
    if settings.has_logins:
        consoles: Consoles = (sessions := Sessions(settings, renderer, pages))
        logins = [
            Route("/login", sessions.login, methods=("GET", "POST")),
            Route("/logout", sessions.logout, methods=("POST",)),
        ]
        forms += [each.path for each in logins]
    else:
        consoles = Consoles(settings, renderer, pages)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await consoles.start()
        try:
            yield
        finally:
            await consoles.close()

    async def fail(request: Request, error: Exception) -> Response:
        failure = (consoles.of(request) or consoles.common).failure(request, error)
        if isinstance(error, AuthenticationError):
            await consoles.end(request)
        return failure

    app = Starlette(
        routes=[
            *(
                Route(each.path, _with(consoles, each.handler), methods=each.methods)
                for each in pages
            ),
            *logins,
            Route("/live", _with(consoles, live.handle)),
            Mount("/static", StaticFiles(directory=_STATIC)),
        ],
        exception_handlers=dict.fromkeys((HTTPException, *CLUSTER_ERRORS), fail),
        lifespan=lifespan,
    )
    return Guard(app, settings.allowed_hosts, forms, allow_changes=settings.allow_changes)


def _with(consoles: Consoles, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        console = consoles.of(request)
        if console is None:
            return consoles.turn_away(request)
        return await handler(console, request)

    return answer


class Live:
    """The streams of all open pages, a bounded number."""

    def __init__(self) -> None:
        self._open = 0

    async def handle(self, _console: Console, _request: Request) -> Response:
        if self._open >= MOST_STREAMS:
            return PlainTextResponse("Too many pages are live.", 503)
        return StreamingResponse(self._ticks(), media_type="text/event-stream")

    async def _ticks(self) -> AsyncIterator[str]:
        self._open += 1
        try:
            yield "retry: 5000\n\n"
            while True:
                await asyncio.sleep(TICK_S)
                yield "event: tick\ndata: 1\n\n"
        finally:
            self._open -= 1


async def serve(
    settings: ConsoleSettings, started: Callable[[str], None], stop: asyncio.Event
) -> None:
    """Serve the console until `stop`; `started` gets its address.

    Raises OSError if it is taken, and ValueError for settings that are not safe.
    """
    settings.require_safety()
    config = uvicorn.Config(
        application(settings),
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        timeout_graceful_shutdown=_GRACE_S,
        ssl_certfile=settings.certificate_file,
        ssl_keyfile=settings.key_file,
    )
    # Files that cannot be used are an error before anything is served.
    config.load()
    with _listening(settings.host, settings.port) as listener:
        server = _Server(config)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        stopping = asyncio.create_task(stop.wait())
        scheme = "https" if config.is_ssl else "http"
        started(f"{scheme}://{_host_text(settings.host)}:{listener.getsockname()[1]}/")
        await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
        server.should_exit = True
        stopping.cancel()
        await serving


class _Server(uvicorn.Server):
    """A server that leaves signals to its caller."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family)


def _host_text(host: str) -> str:
    return f"[{host}]" if ":" in host else host
