"""The HTTP endpoint for operators: /metrics for Prometheus, and paths for probes.

/healthz and /livez say that the event loop runs, /readyz that clients may connect, and /syncz that
every replica of this broker is in the ISR, so that another broker may be stopped. /stacks shows
where threads and tasks are, /events the latest elections, sessions, rebalances and so on.

It runs on the broker's event loop: counters are read on the thread that writes them, and /healthz
responds exactly if the loop runs. A scrape is rendered, and compressed for those who accept gzip,
in slices between other work.
"""

import asyncio
import hmac
import re
import sys
import threading
import traceback
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from http import HTTPStatus
from pathlib import Path
from types import FrameType
from typing import Final, NamedTuple
from urllib.parse import parse_qs

import h11

from barnabas.broker.server.http_server import (
    JSON,
    TEXT,
    HttpResponse,
    HttpServer,
    Watched,
    header,
)
from barnabas.config.key import ConfigError
from barnabas.metrics.exposition import CONTENT_TYPE, render
from barnabas.metrics.registry import Registry
from barnabas.protocol.steps import Steps

_FASTEST: Final = 1
_GZIP: Final = 16 + zlib.MAX_WBITS
"""The window of zlib that writes gzip."""
_UNAUTHORIZED: Final = HTTPStatus.UNAUTHORIZED
_PATHS: Final = b"/metrics /healthz /livez /readyz /syncz /stacks /events\n"
_SEQUENCE: Final = re.compile(rb"\d{1,18}")
_MOST_METRICS: Final = 100
"""Limit of the names in a scrape of some metrics."""
MOST_NAMES: Final = 20
"""Limit of the partitions that /syncz names."""
_MOST_FRAMES: Final = 30
"""Limit of the innermost frames of a stack that /stacks shows."""
_ROOTS: Final = sorted((f"{Path(each).resolve()}/" for each in sys.path if each), key=len)


class Access(NamedTuple):
    """The files of TLS and of the token; they are read again when they change."""

    certificate: str | None = None
    """PEM, with its chain."""
    key: str | None = None
    """PEM, without a password."""
    token: str | None = None
    """The token that /metrics asks for, as `Authorization: Bearer`."""


OPEN: Final = Access()
"""Plain text, and no token."""


def _token(path: str) -> bytes:
    with open(path, "rb") as file:
        token = file.read().strip()
    if not token:
        raise ConfigError(f"{path} has no token")
    return token


class HttpEndpoint(HttpServer):
    """The HTTP server of one registry."""

    def __init__(
        self,
        registry: Registry,
        not_ready: Callable[[], Sequence[str]],
        out_of_sync: Callable[[], Steps[list[str]]],
        events: Callable[[int], bytes],
        access: Access = OPEN,
    ) -> None:
        """`not_ready` returns reasons why clients should not connect, `out_of_sync` the partitions
        with a replica here that is not in the ISR, `events` the events after a sequence number, as
        JSON.

        Raises OSError if a file of `access` cannot be read, ConfigError for its content.
        """
        super().__init__(access.certificate, access.key)
        self._registry = registry
        self._not_ready = not_ready
        self._out_of_sync = out_of_sync
        self._events = events
        self._token: Watched[bytes] | None = None
        if access.token is not None:
            self._token = Watched((access.token,), _token)

    async def answer(self, request: h11.Request, body: bytes) -> HttpResponse:  # noqa: ARG002
        if request.method not in (b"GET", b"HEAD"):
            return HttpResponse(HTTPStatus.METHOD_NOT_ALLOWED, TEXT, b"only GET and HEAD\n")
        path, _, query = request.target.partition(b"?")
        match path:
            case b"/metrics" | b"/stacks" | b"/events" if not self._may_scrape(request):
                return HttpResponse(_UNAUTHORIZED, TEXT, b"a bearer token is needed\n")
            case b"/metrics":
                gzip = _accepts_gzip(request)
                text = await self._scrape(_names_in(query), gzip=gzip)
                return HttpResponse(HTTPStatus.OK, CONTENT_TYPE, text, gzip)
            case b"/events":
                return self._events_after(query)
            case b"/healthz" | b"/livez":
                return HttpResponse(HTTPStatus.OK, TEXT, b"ok\n")
            case b"/readyz":
                return _verdict(b"ready\n", self._not_ready())
            case b"/syncz":
                # The names of topics are for those who may scrape.
                return await self._synced(names=self._may_scrape(request))
            case b"/stacks":
                return HttpResponse(HTTPStatus.OK, TEXT, await self._slicer.run(_stacks()))
            case _:
                return HttpResponse(HTTPStatus.NOT_FOUND, TEXT, _PATHS)

    def _may_scrape(self, request: h11.Request) -> bool:
        if self._token is None:
            return True
        token = self._token.current()
        scheme, _, sent = header(request, b"authorization").partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(sent.strip(), token)

    def _events_after(self, query: bytes) -> HttpResponse:
        after = query.removeprefix(b"after=") or b"0"
        if not _SEQUENCE.fullmatch(after):
            return HttpResponse(HTTPStatus.BAD_REQUEST, TEXT, b"/events?after=SEQUENCE\n")
        return HttpResponse(HTTPStatus.OK, JSON, self._events(int(after)))

    async def _synced(self, *, names: bool) -> HttpResponse:
        reasons = list(self._not_ready())
        if not reasons:
            behind = await self._slicer.run(self._out_of_sync())
            reasons = [f"{each} is not in sync" for each in behind[: MOST_NAMES if names else 0]]
            if more := len(behind) - len(reasons):
                reasons.append(f"{more} partitions are not in sync")
        return _verdict(b"in sync\n", reasons)

    async def _scrape(self, names: Collection[str] | None, *, gzip: bool) -> bytes:
        compressor = zlib.compressobj(_FASTEST, wbits=_GZIP) if gzip else None
        blocks: list[bytes] = []
        for family in self._registry.snapshot(names):
            for block in render(family):
                blocks.append(block if compressor is None else compressor.compress(block))
                await asyncio.sleep(0)
        if compressor is not None:
            blocks.append(compressor.flush())
        return b"".join(blocks)


def _verdict(good: bytes, reasons: Sequence[str]) -> HttpResponse:
    if reasons:
        body = "".join(f"{reason}\n" for reason in reasons).encode()
        return HttpResponse(HTTPStatus.SERVICE_UNAVAILABLE, TEXT, body)
    return HttpResponse(HTTPStatus.OK, TEXT, good)


def _names_in(query: bytes) -> list[str] | None:
    """Return the metrics that `/metrics?name[]=METRIC` asks for, as clients of Prometheus in other
    languages serve it; None for all."""
    try:
        return parse_qs(query.decode("latin-1"), max_num_fields=_MOST_METRICS).get("name[]")
    except ValueError:
        return []


def _accepts_gzip(request: h11.Request) -> bool:
    """Return whether Accept-Encoding names gzip with a weight above 0 (RFC 9110, 12.5.3)."""
    for each in header(request, b"accept-encoding").lower().split(b","):
        coding, *weight = each.replace(b" ", b"").split(b";")
        if coding == b"gzip":
            return not weight or weight[0].strip(b"q=0.") != b""
    return False


def _stacks() -> Steps[bytes]:
    """Return the stack of each thread, and those of the loop's tasks with their number, the most
    frequent first. A task waits at the last line of its stack."""
    names = {each.ident: each.name for each in threading.enumerate()}
    lines = ["threads"]
    for ident, frame in sys._current_frames().items():
        lines += ["", names.get(ident, f"thread {ident}"), *_lines(_outermost(frame))]
    counts: Counter[tuple[str, ...]] = Counter()
    for task in asyncio.all_tasks():
        counts[_lines(task.get_stack(limit=_MOST_FRAMES))] += 1
        yield None
    lines += ["", "tasks"]
    for stack, count in counts.most_common():
        lines += ["", f"{count} task(s)", *stack]
    return "\n".join([*lines, ""]).encode()


def _outermost(frame: FrameType) -> list[FrameType]:
    """Return the innermost frames up to the limit, the outermost of them first."""
    walked = (each for each, _ in traceback.walk_stack(frame))
    return [each for each, _ in zip(walked, range(_MOST_FRAMES), strict=False)][::-1]


def _lines(frames: list[FrameType]) -> tuple[str, ...]:
    return tuple(
        f"    {_relative(each.f_code.co_filename)}:{each.f_lineno} {each.f_code.co_qualname}"
        for each in frames
    )


def _relative(file: str) -> str:
    """Return the path of a module in the directory that it was imported from."""
    for root in reversed(_ROOTS):
        if file.startswith(root):
            return file.removeprefix(root)
    return file
