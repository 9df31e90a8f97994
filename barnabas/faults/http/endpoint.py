"""The HTTP endpoint of faults.

A page in a browser on this machine must not reach it. Such a page can send simple requests to
localhost. It can send others after a question (CORS), which this endpoint never permits. And it can
send any request under a name of its site that it lets point here (DNS rebinding). So Host must be
an address or a name of this machine, Origin must be absent, a body must be JSON, and a change needs
the token.
"""

import hmac
import json
import re
import socket
from collections.abc import Awaitable
from http import HTTPStatus
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import parse_qsl

import h11
from pydantic import BaseModel, ValidationError

from barnabas.broker.server.http_server import JSON, HttpResponse, HttpServer, header
from barnabas.config.faults import first_fault
from barnabas.faults.http import models
from barnabas.faults.http.openapi import describe
from barnabas.faults.http.operations import Call, Operation, Operations
from barnabas.faults.remote import BrokerDied
from barnabas.protocol.errors import KafkaError

_MOST_BODY: Final = 64 * 1024
_SECONDS: Final = models.MOST_WAIT + 10
_DOCUMENT: Final = "/openapi.json"
_STATUSES: Final[dict[type[Exception], HTTPStatus]] = {
    TimeoutError: HTTPStatus.GATEWAY_TIMEOUT,
    PermissionError: HTTPStatus.UNAUTHORIZED,
    LookupError: HTTPStatus.NOT_FOUND,
    TypeError: HTTPStatus.BAD_REQUEST,
    ValueError: HTTPStatus.BAD_REQUEST,
    # The others tell of the state of the cluster.
    RuntimeError: HTTPStatus.CONFLICT,
    BrokerDied: HTTPStatus.CONFLICT,
    KafkaError: HTTPStatus.CONFLICT,
    OSError: HTTPStatus.CONFLICT,
}
"""The status of each error; the first that matches counts."""
_HEADERS: Final = (("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff"))


class _Refused(Exception):
    """A request that gets an error; the text says what to do."""

    def __init__(self, status: HTTPStatus, text: str, *headers: tuple[str, str]) -> None:
        super().__init__(text)
        self.status = status
        self.headers = headers


class FaultsEndpoint(HttpServer):
    """The HTTP server of the operations."""

    def __init__(self, operations: Operations, token: str, host: str) -> None:
        """`host` is the name by which the user has named the address."""
        super().__init__(seconds=_SECONDS, most_body=_MOST_BODY)
        self._operations = operations
        self._token = token.encode()
        self._hosts = {"localhost", socket.gethostname().lower(), host.lower()} - {""}

    async def answer(self, request: h11.Request, body: bytes) -> HttpResponse:
        """Return the response to a request: JSON, whatever happens."""
        try:
            self._refuse_pages(request)
            answer = await self._answer(request, body)
            return _answer(HTTPStatus.OK, answer)
        except _Refused as error:
            return _answer(error.status, {"error": str(error)}, *error.headers)

    def _refuse_pages(self, request: h11.Request) -> None:
        """Raise _Refused if a page of a browser may have sent the request."""
        if not self._is_ours(header(request, b"host").decode("latin-1")):
            text = "Host must be an address or a name of this machine"
            raise _Refused(HTTPStatus.FORBIDDEN, text)
        site = header(request, b"sec-fetch-site")
        if any(name == b"origin" for name, _ in request.headers) or site not in (b"", b"none"):
            raise _Refused(HTTPStatus.FORBIDDEN, "pages in browsers are not served")

    def _is_ours(self, host: str) -> bool:
        found = re.fullmatch(r"(\[[^\]]*\]|[^:\[\]]*)(?::\d+)?", host)
        if found is None:
            return False
        name = found[1].lower()
        try:
            # No name leads to an address in digits: it cannot be rebound.
            ip_address(name.strip("[]"))
        except ValueError:
            return name in self._hosts
        return True

    def _has_token(self, request: h11.Request) -> bool:
        scheme, _, sent = header(request, b"authorization").partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(sent.strip(), self._token)

    async def _answer(self, request: h11.Request, body: bytes) -> Any:
        path, _, query = request.target.decode("latin-1").partition("?")
        method = request.method.decode("latin-1")
        operation, number = self._find(method, path)
        if operation is None:
            return describe(self._operations.table)
        trusted = self._has_token(request)
        if method == "POST":
            if not trusted:
                text = "a change needs Authorization: Bearer and the token that the start printed"
                raise _Refused(HTTPStatus.UNAUTHORIZED, text)
            takes = _read_body(request, body, operation.takes)
        else:
            takes = _validated(operation.takes, dict(parse_qsl(query, keep_blank_values=True)))
        return (await _run(operation.run(Call(number, takes, trusted)))).model_dump(mode="json")

    def _find(self, method: str, path: str) -> tuple[Operation | None, int]:
        """Return the operation and the number in its path; None for the document."""
        allowed = {"GET"} if path == _DOCUMENT else set()
        if method == "GET" and allowed:
            return None, 0
        for each in self._operations.table:
            found = re.fullmatch(each.pattern, path)
            if found is None:
                continue
            if each.method == method:
                return each, int(found[1]) if found.groups() else 0
            allowed.add(each.method)
        if allowed:
            allow = ", ".join(sorted(allowed))
            text = f"{path} takes {allow}"
            raise _Refused(HTTPStatus.METHOD_NOT_ALLOWED, text, ("Allow", allow))
        raise _Refused(HTTPStatus.NOT_FOUND, f"there is nothing here: see {_DOCUMENT}")


def _read_body(request: h11.Request, body: bytes, model: type[BaseModel]) -> BaseModel:
    kind = header(request, b"content-type").partition(b";")[0].strip().lower()
    if kind != JSON.encode():
        raise _Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"Content-Type must be {JSON}")
    try:
        # An operation without arguments needs no body.
        value = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        raise _Refused(HTTPStatus.BAD_REQUEST, "the body is not JSON") from None
    return _validated(model, value)


def _validated(model: type[BaseModel], value: Any) -> BaseModel:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise _Refused(HTTPStatus.BAD_REQUEST, first_fault(error)) from None


async def _run(work: Awaitable[BaseModel]) -> BaseModel:
    try:
        return await work
    except tuple(_STATUSES) as error:
        status = next(each for kind, each in _STATUSES.items() if isinstance(error, kind))
        raise _Refused(status, str(error)) from error


def _answer(status: HTTPStatus, value: Any, *headers: tuple[str, str]) -> HttpResponse:
    body = json.dumps(value).encode() + b"\n"
    return HttpResponse(status, JSON, body, headers=(*_HEADERS, *headers))
