"""Requests to the servers of OAuth: tokens by client credentials (KIP-768), and documents.

`http.client` and `ssl` are imported at the first use: most clients and brokers have no tokens.
"""

import asyncio
import base64
import io
import json
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import SplitResult, urlencode

from barnabas.config.key import ConfigError
from barnabas.config.sasl_keys import TokenKeys
from barnabas.config.tls_keys import TlsKeys
from barnabas.protocol.backoff import Backoff
from barnabas.security.sasl.exchange import AuthenticationFailed

if TYPE_CHECKING:
    import ssl

MAX_ANSWER: Final = 1 << 20
"""Bytes of a response, far above every token and key set."""
REUSED: Final = 0.8
"""The part of a token's lifetime in which it is used for logins, as in Kafka."""
_NOT_REPEATED: Final = frozenset({*range(400, 408), *range(409, 416), 501, 505} - {408})
"""The HTTP codes of requests that would fail again, as in Kafka."""
_SHOWN: Final = 200
TIMEOUT_MS: Final = 10_000
"""The default of both timeouts."""


class Timeouts(NamedTuple):
    """Times in s: to connect, shake hands included, and for which the server may be silent.

    A request takes at most both together: a server that drips is never silent.
    """

    connect: float
    read: float


class _Incoming(io.RawIOBase):
    """The received bytes of a socket, which `http.client` reads up to a deadline."""

    def __init__(self, sock: socket.socket, silence: float, deadline: float) -> None:
        """`silence` is in s, `deadline` a time of `time.monotonic`."""
        self._sock = sock
        self._silence = silence
        self._deadline = deadline

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Receive bytes; raise TimeoutError."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._sock.settimeout(min(self._silence, left))
        return self._sock.recv_into(buffer)


def trust(options: Mapping[str, str]) -> "ssl.SSLContext":
    """Return the context for HTTPS by the options `ssl.*` of a login module.

    Without them the system's authorities are trusted. Raises ConfigError. It takes milliseconds.
    """
    from barnabas.security.tls import client_tls

    texts = {name: text for name, text in options.items() if name in TlsKeys.KEYS}
    return client_tls(TlsKeys(**TlsKeys.parse(texts))).context


def ask(
    url: SplitResult,
    options: Mapping[str, str],
    headers: Mapping[str, str],
    timeouts: Timeouts,
    body: bytes | None = None,
) -> tuple[int, bytes]:
    """Send a GET, or a POST with a body; return code and answer. Blocks. Raises OSError.

    `options` are those of `trust`, whose files are read again at each request. Redirections are not
    followed.
    """
    from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection

    host = url.hostname or ""
    deadline = time.monotonic() + timeouts.connect + timeouts.read
    if url.scheme == "https":
        try:
            context = trust(options)
        except ConfigError as error:
            raise OSError(str(error)) from None
        connection: HTTPConnection = HTTPSConnection(
            host, url.port, timeout=timeouts.connect, context=context
        )
    else:
        connection = HTTPConnection(host, url.port, timeout=timeouts.connect)
    try:
        connection.connect()
        connection.sock.settimeout(timeouts.read)
        path = url._replace(scheme="", netloc="", fragment="").geturl() or "/"
        connection.request("GET" if body is None else "POST", path, body, dict(headers))
        incoming: Any = _Incoming(connection.sock, timeouts.read, deadline)
        answer = HTTPResponse(incoming)
        answer.begin()
        data = answer.read(MAX_ANSWER + 1)
        if len(data) > MAX_ANSWER:
            raise OSError(f"{host} answers more than {MAX_ANSWER} bytes")
        return answer.status, data
    except (HTTPException, ValueError) as error:
        raise OSError(f"{host} does not answer as HTTP says: {error!r}") from None
    except TimeoutError:
        raise OSError(f"{host} does not answer in time") from None
    finally:
        connection.close()


class TokenEndpoint(NamedTuple):
    """An endpoint that gives tokens for client credentials."""

    url: SplitResult
    options: Mapping[str, str]
    """The options of `trust`."""
    request: bytes
    headers: Mapping[str, str]
    timeouts: Timeouts
    backoff_s: float
    longest_s: float

    async def fetch(self) -> str:
        """Return a token; repeat requests that fail.

        Raises AuthenticationFailed if the endpoint refuses, and ConnectionError if it is of no use.
        """
        loop = asyncio.get_running_loop()
        end, backoff = loop.time() + self.longest_s, Backoff(self.backoff_s, self.longest_s)
        while True:
            try:
                return await loop.run_in_executor(None, self._fetch)
            except OSError as error:
                left = end - loop.time()
                if left <= 0:
                    reason = error.strerror or error
                    raise ConnectionError(f"no token of {self.url.hostname}: {reason}") from None
            await asyncio.sleep(min(backoff.failed(), left))

    def _fetch(self) -> str:
        code, answer = ask(self.url, self.options, self.headers, self.timeouts, self.request)
        if code not in (200, 201):
            text = f"{self.url.hostname} answers {code}{_explained(answer)}"
            if code in _NOT_REPEATED:
                raise AuthenticationFailed(f"no token: {text}")
            raise OSError(text)
        token = _json(answer).get("access_token")
        if not isinstance(token, str):
            raise AuthenticationFailed(f"{self.url.hostname} answers without an access_token")
        return token.strip()


def token_endpoint(
    url: SplitResult,
    options: Mapping[str, str],
    account: tuple[str, str],
    scope: str | None,
    keys: TokenKeys,
) -> TokenEndpoint:
    """Return an endpoint, asked as Kafka asks it; `account` is the client's id and secret."""
    form = {"grant_type": "client_credentials"} | ({"scope": scope} if scope else {})
    headers = {
        "Accept": "application/json",
        "Authorization": f"Basic {base64.b64encode(':'.join(account).encode()).decode()}",
        "Cache-Control": "no-cache",
        "Content-Type": "application/x-www-form-urlencoded",
    }
    return TokenEndpoint(
        url,
        options,
        urlencode(form).encode(),
        headers,
        Timeouts(
            (keys.sasl_login_connect_timeout_ms or TIMEOUT_MS) / 1000,
            (keys.sasl_login_read_timeout_ms or TIMEOUT_MS) / 1000,
        ),
        keys.sasl_login_retry_backoff_ms / 1000,
        keys.sasl_login_retry_backoff_max_ms / 1000,
    )


class BearerTokens:
    """The tokens of a client. Logins share a token for most of its lifetime, and a fetch."""

    def __init__(self, fetch: Callable[[], Awaitable[str]]) -> None:
        self._fetch = fetch
        self._token = ""
        self._until = 0.0
        self._pending: asyncio.Future[str] | None = None

    async def get(self) -> str:
        """Return a token that may be used now. Raises what the fetch raises."""
        if time.time() < self._until:
            return self._token
        if self._pending is None:
            self._pending = asyncio.ensure_future(self._renew())
        # A login that is given up does not take the token from the others.
        return await asyncio.shield(self._pending)

    def forget(self) -> None:
        """Fetch another token for the next login: a server has refused this one."""
        self._until = 0.0

    async def _renew(self) -> str:
        try:
            token = await self._fetch()
        finally:
            self._pending = None
        now = time.time()
        self._token, self._until = token, now + REUSED * (_expires(token) - now)
        return token


def _expires(token: str) -> float:
    """Return the end of a token in s since the epoch; 0 if it does not tell.

    The signature is not checked: the servers do that.
    """
    payload = token.split(".")[1:2]
    try:
        claims = _json(base64.urlsafe_b64decode(payload[0] + "=" * (-len(payload[0]) % 4)))
    except (IndexError, ValueError):
        return 0.0
    expires = claims.get("exp")
    return float(expires) if isinstance(expires, int | float) else 0.0


def _json(data: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _explained(answer: bytes) -> str:
    """Return the error of RFC 6749 in a response, with a colon before it."""
    fields = _json(answer)
    texts = [fields.get("error"), fields.get("error_description")]
    told = " - ".join(text for text in texts if isinstance(text, str))
    return f": {told[:_SHOWN]!r}" if told else ""
