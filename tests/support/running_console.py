"""A console on a free port, in a thread of its own, and a browser without JavaScript."""

import asyncio
import html
import http.client
import re
import threading
from concurrent.futures import Future
from html.parser import HTMLParser
from types import TracebackType
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from barnabas.console.app import serve
from barnabas.console.settings import ConsoleSettings

DEADLINE_S = 60


class Answered(NamedTuple):
    """The answer to a request."""

    status: int
    headers: http.client.HTTPMessage
    text: str

    @property
    def code(self) -> list[str]:
        """The tags that run code or load something, other than the console's own scripts."""
        return self._parsed().code

    def _parsed(self) -> "_Words":
        parser = _Words()
        parser.feed(self.text)
        return parser

    @property
    def words(self) -> str:
        """The text that a person reads, without tags; spaces are single."""
        parser = self._parsed()
        return " ".join("".join(parser.parts).split())

    @property
    def links(self) -> list[str]:
        """The addresses of the links, as a browser would request them."""
        return [html.unescape(each) for each in re.findall(r'href="([^"]*)"', self.text)]


class _Words(HTMLParser):
    """The text of a page, and the tags that could run code."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self.code: list[str] = []

    def handle_data(self, data: str) -> None:
        self.parts.append(data)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.parts.append(" ")
        names = dict(attrs)
        source = names.get("src") or ""
        known = tag == "script" and source.startswith("/static/") and "//" not in source
        if (
            tag in ("img", "iframe", "style", "object", "embed", "base")
            or (tag == "script" and not known)
            or any(name.startswith("on") or name == "style" for name in names)
            or any(
                (text or "").strip().lower().startswith("javascript:") for text in names.values()
            )
        ):
            self.code.append(self.get_starttag_text() or tag)


def confirmation(answered: Answered) -> tuple[str, dict[str, str]]:
    """Return the address and the fields of the form that confirms a change."""
    (form,) = re.findall(r'<form method="post".*?</form>', answered.text, re.S)
    (address,) = re.findall(r'action="([^"]*)"', form)
    fields = re.findall(r'name="(\w+)" value="([^"]*)"', form)
    return html.unescape(address), {name: html.unescape(text) for name, text in fields}


class RunningConsole:
    """A console of a cluster, with the options of `ConsoleSettings`."""

    def __init__(self, bootstrap: str, **options: Any) -> None:
        self._settings = ConsoleSettings(bootstrap=bootstrap, port=0, **options)
        self._address: Future[str] = Future()
        self._stop: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        async def run() -> None:
            stop = asyncio.Event()
            self._stop = asyncio.get_running_loop(), stop
            await serve(self._settings, self._address.set_result, stop)

        try:
            asyncio.run(run())
        except BaseException as error:
            if self._address.done():
                raise
            self._address.set_exception(error)

    def __enter__(self) -> "RunningConsole":
        self._thread.start()
        self.url = self._address.result(DEADLINE_S)
        self.host = urlsplit(self.url).netloc
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        assert self._stop is not None
        loop, stop = self._stop
        loop.call_soon_threadsafe(stop.set)
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()

    def request(
        self,
        path: str,
        *,
        method: str = "GET",
        headers: dict[str, str] | None = None,
        body: str | None = None,
    ) -> Answered:
        """Send a request and return its answer; a redirect is not followed."""
        connection = http.client.HTTPConnection(self.host, timeout=DEADLINE_S)
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return Answered(response.status, response.headers, response.read().decode())
        finally:
            connection.close()

    def get(self, path: str, /, **parameters: object) -> Answered:
        """Return a page that must be there."""
        query = urlencode(parameters)
        answered = self.request(f"{path}?{query}" if query else path)
        assert answered.status == 200, answered.words
        return answered

    def carry_out(self, path: str) -> Answered:
        """Ask for a change, and confirm what the page says."""
        address, fields = confirmation(self.request(path))
        done = self.post(address, **fields)
        assert done.status == 200, done.words
        return done

    def post(self, path: str, headers: dict[str, str] | None = None, **fields: str) -> Answered:
        """Send a form as a browser would."""
        kind = {"Content-Type": "application/x-www-form-urlencoded", "Origin": self.url.rstrip("/")}
        return self.request(
            path, method="POST", headers={**kind, **(headers or {})}, body=urlencode(fields)
        )
