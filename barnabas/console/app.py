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

from barnabas.client.security import connect_with
from barnabas.config.client_keys import ClientKeys
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
    timeline,
    topic,
    topic_changes,
    topics,
    transactions,
)
from barnabas.console.settings import ConsoleSettings
from barnabas.console.shared import SharedCluster
from barnabas.console.tokens import Tokens

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
    *topic_changes.PAGES,
    *resets.PAGES,
    *endings.PAGES,
    *timeline.PAGES,
    *security.PAGES,
)
"""All pages; those with a title are in the navigation, in this order."""
_STATIC: Final = Path(__file__).parent / "static"
_GRACE_S: Final = 2
TICK_S: Final = 2.0
MOST_STREAMS: Final = 64
"""The open pages that follow the cluster at the same time."""


def shared_cluster(settings: ConsoleSettings) -> SharedCluster:
    """Return the cluster of a console, not connected yet."""
    keys = ClientKeys.of(settings.properties)
    request_ms = keys.request_timeout_ms
    return SharedCluster(
        settings.bootstrap,
        client_id=keys.client_id,
        timeout=settings.timeout,
        request_timeout=None if request_ms is None else request_ms / 1000,
        connect=connect_with(settings.properties) if settings.properties else None,
        check_cluster=keys.metadata_cluster_check_enable,
    )


def application(settings: ConsoleSettings, cluster: SharedCluster) -> ASGIApp:
    """Return the ASGI application of a console, which closes the cluster at its end."""
    pages = [each for each in PAGES if settings.allow_changes or not each.is_change]
    navigation = [each for each in pages if each.title is not None]
    console = Console(settings, cluster, navigation, Tokens())
    live = Live()

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        sampling = asyncio.create_task(console.lags.run())
        try:
            yield
        finally:
            sampling.cancel()
            await console.close()

    async def fail(request: Request, error: Exception) -> Response:
        return console.failure(request, error)

    app = Starlette(
        routes=[
            *(
                Route(each.path, _with(console, each.handler), methods=each.methods)
                for each in pages
            ),
            Route("/live", live.handle),
            Mount("/static", StaticFiles(directory=_STATIC)),
        ],
        exception_handlers=dict.fromkeys((HTTPException, *CLUSTER_ERRORS), fail),
        lifespan=lifespan,
    )
    forms = [each.path for each in pages if "POST" in each.methods]
    return Guard(app, settings.allowed_hosts, forms, allow_changes=settings.allow_changes)


def _with(console: Console, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        return await handler(console, request)

    return answer


class Live:
    """The streams of all open pages, a bounded number."""

    def __init__(self) -> None:
        self._open = 0

    async def handle(self, _: Request) -> Response:
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
    """Serve the console until `stop`; `started` gets its address. OSError if it is taken."""
    config = uvicorn.Config(
        application(settings, shared_cluster(settings)),
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        timeout_graceful_shutdown=_GRACE_S,
    )
    with _listening(settings.host, settings.port) as listener:
        server = _Server(config)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        stopping = asyncio.create_task(stop.wait())
        started(_address(settings.host, listener.getsockname()[1]))
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


def _address(host: str, port: int) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"
