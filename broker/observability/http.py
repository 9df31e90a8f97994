"""The HTTP endpoint for operators: /metrics for Prometheus, /healthz and /readyz for probes.

It lives on the broker's own event loop, so counters are read where they are written, and /healthz
answers exactly when the loop still turns. A scrape is rendered in slices between other work.
"""

import asyncio
from collections.abc import Callable, Sequence
from http import HTTPStatus
from itertools import islice
from typing import Final, NamedTuple

from barnabas.metrics.exposition import CONTENT_TYPE, render
from barnabas.metrics.registry import Registry

_HEAD_LIMIT: Final = 8192
_EXCHANGE_SECONDS: Final = 10
_TEXT: Final = "text/plain; charset=utf-8"
_SLICE_LINES: Final = 500
"""Lines of a scrape that are rendered at a time: about a millisecond."""


class Request(NamedTuple):
    """What this endpoint looks at in a request."""

    method: str
    path: str


class Answer(NamedTuple):
    """Status, type and body of a response."""

    status: HTTPStatus
    content_type: str
    body: bytes


class HttpEndpoint:
    """Serves one registry. `not_ready` tells why clients should stay away, or nothing."""

    def __init__(self, registry: Registry, not_ready: Callable[[], Sequence[str]]) -> None:
        self._registry = registry
        self._not_ready = not_ready
        self._server: asyncio.Server | None = None
        self._exchanges: set[asyncio.Task[None]] = set()

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the bound port; OSError where the address cannot be had."""
        self._server = await asyncio.start_server(
            self._accept, host or None, port, limit=_HEAD_LIMIT
        )
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def stop(self) -> None:
        """Stop listening and break off what is under way."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for exchange in self._exchanges:
            exchange.cancel()
        await asyncio.gather(*self._exchanges, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        exchange = asyncio.get_running_loop().create_task(self._exchange(reader, writer))
        self._exchanges.add(exchange)
        exchange.add_done_callback(self._exchanges.discard)

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request, one response: probes and scrapers come seconds apart."""
        try:
            async with asyncio.timeout(_EXCHANGE_SECONDS):
                request = await _read_request(reader)
                answer = _BAD_REQUEST if request is None else await self._answer(request)
                writer.write(_encode(answer, with_body=request is None or request.method == "GET"))
                await writer.drain()
        except (TimeoutError, ConnectionError, asyncio.IncompleteReadError):
            writer.transport.abort()
        finally:
            writer.close()

    async def _answer(self, request: Request) -> Answer:
        if request.method not in ("GET", "HEAD"):
            return Answer(HTTPStatus.METHOD_NOT_ALLOWED, _TEXT, b"only GET and HEAD\n")
        match request.path:
            case "/metrics":
                return Answer(HTTPStatus.OK, CONTENT_TYPE, await self._scrape())
            case "/healthz":
                return Answer(HTTPStatus.OK, _TEXT, b"ok\n")
            case "/readyz":
                return _readiness(self._not_ready())
            case _:
                return Answer(HTTPStatus.NOT_FOUND, _TEXT, b"/metrics /healthz /readyz\n")

    async def _scrape(self) -> bytes:
        slices: list[str] = []
        lines = (line for family in self._registry.snapshot() for line in render(family))
        while text := "".join(islice(lines, _SLICE_LINES)):
            slices.append(text)
            await asyncio.sleep(0)
        return "".join(slices).encode()


_BAD_REQUEST: Final = Answer(HTTPStatus.BAD_REQUEST, _TEXT, b"not an HTTP request\n")


def _readiness(reasons: Sequence[str]) -> Answer:
    if reasons:
        body = "".join(f"{reason}\n" for reason in reasons).encode()
        return Answer(HTTPStatus.SERVICE_UNAVAILABLE, _TEXT, body)
    return Answer(HTTPStatus.OK, _TEXT, b"ready\n")


async def _read_request(reader: asyncio.StreamReader) -> Request | None:
    """The head of a request, or None where it is none or too long."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        return None
    words = head.partition(b"\r\n")[0].decode("latin-1").split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        return None
    return Request(words[0], words[1].partition("?")[0])


def _encode(answer: Answer, *, with_body: bool) -> bytes:
    status = answer.status
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\n"
        f"Content-Type: {answer.content_type}\r\n"
        f"Content-Length: {len(answer.body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode("latin-1") + (answer.body if with_body else b"")
