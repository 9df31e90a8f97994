"""The guard in front of all pages: hosts, origins, methods, and the headers of each response.

A page of another site must not read the console through a name that the site points at this
address (DNS rebinding), and must not send it a form.
"""

import ipaddress
from collections.abc import Sequence
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    )
)
_HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # With `no-referrer`, browsers would send forms with the origin `null`.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_READS: Final = ("GET", "HEAD")


class Guard:
    """The ASGI application in front of the pages."""

    def __init__(
        self,
        app: ASGIApp,
        allowed_hosts: Sequence[str],
        forms: Sequence[str],
        *,
        allow_changes: bool,
    ) -> None:
        """`forms` are the paths that take forms; others do so with `allow_changes` only."""
        self._app = app
        self._allowed = {"localhost", *(each.lower() for each in allowed_hosts)}
        self._forms = frozenset(forms)
        self._allow_changes = allow_changes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(_HEADERS)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refused = self._refusal(scope["method"], scope["path"], Headers(scope=scope))
        app = self._app if refused is None else refused
        await app(scope, receive, with_headers)

    def _refusal(self, method: str, path: str, headers: Headers) -> PlainTextResponse | None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._is_allowed(_name_of(hosts[0])):
            text = "This name of the console is not allowed: start it with --allow-host NAME."
            return PlainTextResponse(text, 421)
        # A proxy in front may speak TLS.
        own = {f"{scheme}://{hosts[0]}" for scheme in ("http", "https")}
        if not own.issuperset(headers.getlist("origin")):
            return PlainTextResponse("A request from another origin is refused.", 403)
        takes_form = self._allow_changes or path in self._forms
        methods = (*_READS, "POST") if takes_form else _READS
        if method not in methods:
            text = "This console changes nothing: start it with --allow-changes."
            return PlainTextResponse(text, 405, {"Allow": ", ".join(methods)})
        site = headers.get("sec-fetch-site", "same-origin")
        if method not in _READS and site not in ("same-origin", "none"):
            return PlainTextResponse("A request from another site is refused.", 403)
        return None

    def _is_allowed(self, name: str) -> bool:
        """Whether a host is allowed. An address is: only names can be rebound."""
        if name in self._allowed:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def _name_of(host: str) -> str:
    """Return the name or address in a Host header, without the port; "" if it is not valid."""
    if host.startswith("["):
        address, bracket, port = host[1:].partition("]")
        is_v6 = bool(bracket) and ":" in address
        return address if is_v6 and (not port or _is_port(port)) else ""
    name, colon, port = host.partition(":")
    return name.lower() if not colon or _is_port(f":{port}") else ""


def _is_port(text: str) -> bool:
    return text.startswith(":") and text[1:].isascii() and text[1:].isdigit()
