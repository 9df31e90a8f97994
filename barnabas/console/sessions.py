"""The consoles of persons: one for everyone, or one for each who logs in.

A login is that of a client: the brokers check the password, and the rights of the user decide what
the pages show and change. A cookie names the session; the password or token stays in this process,
because a lost connection needs it again.
"""

import asyncio
import hashlib
import logging
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from barnabas.client.cluster import Cluster
from barnabas.client.connection import AuthenticationError, Connect, Login
from barnabas.client.sasl import (
    BY_PASSWORD,
    BY_TOKEN,
    MECHANISM,
    logged_in,
    login_with,
    login_with_token,
    mechanism_in,
    only_asking,
)
from barnabas.client.security import connect_with
from barnabas.config.client_keys import ClientKeys
from barnabas.console.console import Console, Page, address_of
from barnabas.console.forms import form_fields
from barnabas.console.render import Renderer, url
from barnabas.console.settings import ConsoleSettings
from barnabas.console.shared import SharedCluster
from barnabas.protocol.errors import ErrorCode
from barnabas.security.sasl.oauthbearer import subject

MOST_SESSIONS: Final = 20
MOST_OF_A_USER: Final = 4
"""The sessions of one user: with another one, the oldest of them ends."""
IDLE_S: Final = 1800.0
"""The time after which a session ends, unless a person asks for a page."""
_SWEEP_S: Final = 30.0
_AT_ONCE: Final = 4
"""The logins under way at the same time."""
_MOST_BYTES: Final = 16384
"""The size of the form of a login."""
_FIELDS: Final = {"user", "password"}
_TOKEN_FIELDS: Final = {"token"}
_REFUSED: Final = "The brokers refuse this user name or this password."
_TOKEN_REFUSED: Final = "The brokers refuse this token. It may be too old."
_LOG: Final = logging.getLogger(__name__)


def shared_cluster(settings: ConsoleSettings, connect: Connect | None) -> SharedCluster:
    """Return the cluster of a console, not connected yet."""
    keys = ClientKeys.of(settings.properties)
    request_ms = keys.request_timeout_ms
    return SharedCluster(
        settings.bootstrap,
        client_id=keys.client_id,
        timeout=settings.timeout,
        request_timeout=None if request_ms is None else request_ms / 1000,
        connect=connect,
        check_cluster=keys.metadata_cluster_check_enable,
    )


class Consoles:
    """The one console that everyone has."""

    def __init__(
        self, settings: ConsoleSettings, renderer: Renderer, navigation: Sequence[Page]
    ) -> None:
        connect = connect_with(settings.properties)
        self.common = Console(settings, shared_cluster(settings, connect), renderer, navigation)

    def of(self, request: Request) -> Console | None:  # noqa: ARG002
        """Return the console of the person who makes a request, None without a login."""
        return self.common

    def turn_away(self, request: Request) -> Response:
        """Answer a request without a login: with the form of the login, if a person has asked."""
        if request.method == "POST" or _is_of_a_page(request):
            raise HTTPException(401, "Your login has ended: load this page again.")
        return RedirectResponse(url("/login", next=address_of(request)), 303)

    async def end(self, request: Request) -> None:
        """End the session of a request, if it has one: the brokers take its user no more."""

    async def start(self) -> None:
        self.common.start()

    async def close(self) -> None:
        await self.common.close()


class Session:
    """A login: a console with a client of its user."""

    def __init__(self, console: Console, now: float) -> None:
        self.console = console
        self.last = now


class Sessions(Consoles):
    """The consoles of those who have logged in; the common one only shows the form of the login."""

    def __init__(
        self,
        settings: ConsoleSettings,
        renderer: Renderer,
        navigation: Sequence[Page],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._renderer = renderer
        self._navigation = navigation
        self._now = now
        protocol = settings.properties["security.protocol"].strip().upper().removeprefix("SASL_")
        self._is_encrypted = protocol == "SSL"
        self._connect = connect_with({**settings.properties, "security.protocol": protocol})
        self.common = Console(settings, shared_cluster(settings, self._connect), renderer, ())
        self._mechanism = mechanism_in(settings.properties)
        """Asked for at the first login: brokers log each question as a login that failed."""
        self._is_by_token = self._mechanism == BY_TOKEN
        self._open: dict[str, Session] = {}
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._sweeping: asyncio.Task[None] | None = None
        # Consoles at other ports of this host get the cookie too.
        mark = hashlib.sha256(settings.bootstrap.encode()).hexdigest()[:12]
        self._cookie = f"{'__Host-' if settings.is_over_tls else ''}session-{mark}"

    def of(self, request: Request) -> Console | None:
        session = self._open.get(request.cookies.get(self._cookie, ""))
        now = self._now()
        if session is None or now - session.last >= IDLE_S:
            return None
        if not _is_of_a_page(request):
            session.last = now
        return session.console

    async def end(self, request: Request) -> None:
        await self._end(request.cookies.get(self._cookie, ""))

    async def start(self) -> None:
        self._sweeping = asyncio.create_task(self._sweep())

    async def close(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
        for key in list(self._open):
            await self._end(key)
        await self.common.close()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_S)
            await self.end_idle()

    async def end_idle(self) -> None:
        """End the sessions that no person has used for so long."""
        oldest = self._now() - IDLE_S
        for key in [key for key, each in self._open.items() if each.last <= oldest]:
            await self._end(key)

    async def _end(self, key: str) -> None:
        session = self._open.pop(key, None)
        if session is not None:
            await session.console.close()

    # -- the pages -------------------------------------------------------------------------------

    async def login(self, request: Request) -> Response:
        """Show the form of a login, or log in."""
        if request.method != "POST":
            return self._form(request, "", None)
        fields = _TOKEN_FIELDS if self._is_by_token else _FIELDS
        form = await form_fields(request, fields, _MOST_BYTES)
        if form is None:
            raise HTTPException(
                400, f"The form has no {' and '.join(sorted(fields))}: begin again."
            )
        user = form.get("user", "")
        if not all(form.values()):
            return self._form(request, user, "Fill in the form.", 400)
        await self.end_idle()
        self._require_place()
        if self._turns.locked():
            raise HTTPException(503, "Too many logins are under way: try again.")
        try:
            async with self._turns:
                console = await self._logged_in(form)
        except AuthenticationError as error:
            return self._refused(request, user, error)
        key = await self._begin(request, console)
        response = RedirectResponse(_next(request), 303)
        response.set_cookie(
            self._cookie,
            key,
            httponly=True,
            samesite="strict",
            secure=self._settings.is_over_tls,
        )
        return response

    def _refused(self, request: Request, user: str, error: AuthenticationError) -> Response:
        _LOG.warning("%s is refused", self.common.person(request))
        if error.code is ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            # The brokers may offer others by now.
            self._mechanism = mechanism_in(self._settings.properties)
        problem = f"The brokers refuse the login: {error}."
        if error.code is ErrorCode.SASL_AUTHENTICATION_FAILED:
            problem = _TOKEN_REFUSED if self._is_by_token else _REFUSED
        return self._form(request, user, problem, 401)

    async def logout(self, request: Request) -> Response:
        """End the session of a request."""
        console = self.of(request)
        if console is not None:
            _LOG.warning("%s has logged out", console.person(request))
        await self.end(request)
        response = RedirectResponse("/login", 303)
        response.delete_cookie(
            self._cookie, httponly=True, samesite="strict", secure=self._settings.is_over_tls
        )
        return response

    def _form(
        self, request: Request, user: str, problem: str | None, status: int = 200
    ) -> Response:
        return self.common.page(
            request,
            "login.html",
            status,
            name=user,
            problem=problem,
            is_by_token=self._is_by_token,
        )

    # -- a login ---------------------------------------------------------------------------------

    async def _logged_in(self, form: Mapping[str, str]) -> Console:
        """Return a console whose client has logged in; raises AuthenticationError."""
        if self._is_by_token:
            token = form["token"].strip()
            # The claim is that of the brokers, once they have taken the token.
            login = login_with_token(token, self._settings.properties)
            user = subject(token) or "a token"
        else:
            login, user = await self._login_by_password(form["user"], form["password"])
        cluster = shared_cluster(self._settings, logged_in(self._connect, login))
        try:
            await cluster.refresh()
        except BaseException:
            await cluster.close()
            raise
        return Console(self._settings, cluster, self._renderer, self._navigation, user)

    async def _login_by_password(self, user: str, password: str) -> tuple[Login, str]:
        if self._mechanism is None:
            self._mechanism = await self._strongest_mechanism()
        account = {"sasl.username": user, "sasl.password": password}
        return login_with({MECHANISM: self._mechanism, **account}), user

    async def _strongest_mechanism(self) -> str:
        """Return the strongest mechanism that the brokers offer. Raises AuthenticationError."""
        offered: list[str] = []
        connect = logged_in(self._connect, only_asking(offered))
        asking: Cluster = shared_cluster(self._settings, connect)
        try:
            with suppress(AuthenticationError):
                await asking.any_connection()
        finally:
            await asking.close()
        for each in BY_PASSWORD:
            if each in offered and (each != "PLAIN" or self._is_encrypted):
                return each
        raise AuthenticationError(
            ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            f"they offer {', '.join(offered) or 'no mechanism'}, and this console logs in by "
            f"{', '.join(BY_PASSWORD)}; by {BY_TOKEN}, and by PLAIN without TLS, only if "
            "sasl.mechanism names it",
        )

    async def _begin(self, request: Request, console: Console) -> str:
        """Keep a console, and return the value of its cookie."""
        # Each login gets a new one, and ends the session that the browser had.
        await self.end(request)
        own = [key for key, each in self._open.items() if each.console.user == console.user]
        for key in own[: max(len(own) + 1 - MOST_OF_A_USER, 0)]:
            await self._end(key)
        try:
            self._require_place()
        except HTTPException:
            await console.close()
            raise
        key = secrets.token_urlsafe(32)
        self._open[key] = Session(console, self._now())
        console.start()
        _LOG.warning("%s has logged in", console.person(request))
        return key

    def _require_place(self) -> None:
        if len(self._open) >= MOST_SESSIONS:
            raise HTTPException(503, "Too many persons are logged in: try again later.")


def _is_of_a_page(request: Request) -> bool:
    """Whether a request is made by an open page itself, and not by a person."""
    return "hx-request" in request.headers or request.url.path == "/live"


def _next(request: Request) -> str:
    """Return the address within this console at which a person wanted to be."""
    wanted = request.query_params.get("next", "/")
    is_own = wanted[:1] == "/" and wanted[1:2] not in ("/", "\\") and wanted.isprintable()
    return wanted if is_own else "/"
