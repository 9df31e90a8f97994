"""The HTTP endpoint for operators: /metrics for Prometheus, /healthz and /readyz for probes.

It lives on the broker's own event loop, so counters are read where they are written, and /healthz
answers exactly when the loop still turns. A scrape is rendered in slices between other work.
"""

import asyncio
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Final, NamedTuple

import h11

from barnabas.metrics.exposition import CONTENT_TYPE, render
from barnabas.metrics.registry import Registry

_HEAD_LIMIT: Final = 8192
_READ: Final = 4096
_EXCHANGE_SECONDS: Final = 10
_MOST_EXCHANGES: Final = 64
"""Probes and scrapers are few; a crowd here would take the descriptors of the broker's clients."""
_TEXT: Final = "text/plain; charset=utf-8"


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
        if len(self._exchanges) >= _MOST_EXCHANGES:
            writer.transport.abort()
            return
        exchange = asyncio.get_running_loop().create_task(self._exchange(reader, writer))
        self._exchanges.add(exchange)
        exchange.add_done_callback(self._exchanges.discard)

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request, one response: probes and scrapers come seconds apart."""
        http = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEAD_LIMIT)
        try:
            async with asyncio.timeout(_EXCHANGE_SECONDS):
                with_body = True
                try:
                    request = await _read_request(http, reader)
                    with_body = request.method != b"HEAD"
                    answer = await self._answer(request)
                except h11.RemoteProtocolError:
                    answer = _BAD_REQUEST
                writer.write(_encode(http, answer, with_body=with_body))
                await writer.drain()
        except (TimeoutError, ConnectionError):
            writer.transport.abort()
        finally:
            writer.close()

    async def _answer(self, request: h11.Request) -> Answer:
        if request.method not in (b"GET", b"HEAD"):
            return Answer(HTTPStatus.METHOD_NOT_ALLOWED, _TEXT, b"only GET and HEAD\n")
        match request.target.partition(b"?")[0]:
            case b"/metrics":
                return Answer(HTTPStatus.OK, CONTENT_TYPE, await self._scrape())
            case b"/healthz":
                return Answer(HTTPStatus.OK, _TEXT, b"ok\n")
            case b"/readyz":
                return _readiness(self._not_ready())
            case _:
                return Answer(HTTPStatus.NOT_FOUND, _TEXT, b"/metrics /healthz /readyz\n")

    async def _scrape(self) -> bytes:
        blocks: list[bytes] = []
        for family in self._registry.snapshot():
            for block in render(family):
                blocks.append(block)
                await asyncio.sleep(0)
        return b"".join(blocks)


_BAD_REQUEST: Final = Answer(HTTPStatus.BAD_REQUEST, _TEXT, b"not an HTTP request\n")


def _readiness(reasons: Sequence[str]) -> Answer:
    if reasons:
        body = "".join(f"{reason}\n" for reason in reasons).encode()
        return Answer(HTTPStatus.SERVICE_UNAVAILABLE, _TEXT, body)
    return Answer(HTTPStatus.OK, _TEXT, b"ready\n")


async def _read_request(http: h11.Connection, reader: asyncio.StreamReader) -> h11.Request:
    """The head of a request; h11.RemoteProtocolError where there is none or it is too long."""
    while (event := http.next_event()) is h11.NEED_DATA:
        http.receive_data(await reader.read(_READ))
    if not isinstance(event, h11.Request):
        raise h11.RemoteProtocolError("the client left before its request")
    return event


def _encode(http: h11.Connection, answer: Answer, *, with_body: bool) -> bytes:
    head = h11.Response(
        status_code=answer.status.value,
        reason=answer.status.phrase.encode(),
        headers=[
            ("Content-Type", answer.content_type),
            ("Content-Length", str(len(answer.body))),
            ("Connection", "close"),
        ],
    )
    encoded = http.send(head) or b""
    return encoded + (http.send(h11.Data(data=answer.body)) or b"") if with_body else encoded
