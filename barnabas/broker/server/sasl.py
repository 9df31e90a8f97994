"""SASL on a listener: a connection authenticates before its first other request.

Before that only ApiVersions, SaslHandshake and SaslAuthenticate are decoded, requests are small,
and the time is limited. After SaslHandshake v0 the messages of the mechanism have no header
(KIP-43), after v1 they are in SaslAuthenticate requests (KIP-152).

A session may have a lifetime: its client then authenticates again on the open connection (KIP-368),
with the same mechanism and as the same principal.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from barnabas.broker.observability.logging import get_logger
from barnabas.broker.server.connection import Connection, SharedResources
from barnabas.broker.server.context import RequestContext
from barnabas.broker.server.dispatch import Arrival, Dispatcher, EncodedResponse, Exchange, Route
from barnabas.broker.server.failure_log import FailureLog
from barnabas.broker.server.login_queue import LoginQueue
from barnabas.config.broker import BrokerConfig
from barnabas.config.sasl_keys import SaslKeys
from barnabas.coordinator.ports import Clock
from barnabas.coordinator.soon import in_task
from barnabas.metrics.catalogue import RequestMetrics
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import api_versions, sasl_authenticate, sasl_handshake
from barnabas.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from barnabas.security.principal import TokenPrincipal
from barnabas.security.sasl.exchange import (
    Authenticated,
    AuthenticationFailed,
    Challenge,
    OffLoop,
    ServerExchange,
)

MIN_REAUTH_S: Final = 1.0
"""The least seconds between two authentications of one connection, as in Kafka."""
_API_VERSIONS, _HANDSHAKE, _AUTHENTICATE = (
    module.API.key.to_bytes(2, "big")
    for module in (api_versions, sasl_handshake, sasl_authenticate)
)
_LOGGED_CHARACTERS: Final = 32
_log = get_logger(__name__)
T = TypeVar("T")


class Refresh(NamedTuple):
    """Work of a mechanism that is repeated, such as the fetch of keys."""

    interval_ms: Callable[[], int]
    run: Callable[[], Coroutine[Any, Any, None]]


class Mechanism(NamedTuple):
    """A mechanism that a listener offers."""

    begin: Callable[[bytes], ServerExchange]
    """Begins an exchange with the client's first message."""
    max_reauth_ms: int
    """The longest lifetime of a session in ms; 0 is no limit."""
    refresh: Refresh | None = None
    keys: SaslKeys | None = None
    """The keys that it was made from."""


class ListenerSasl:
    """The SASL of a listener: its mechanisms, its limits, and its connections."""

    def __init__(
        self,
        listener: str,
        mechanisms: Mapping[str, Mechanism],
        config: BrokerConfig,
        *,
        shared: SharedResources,
        logins: LoginQueue,
        clock: Clock,
        metrics: RequestMetrics,
    ) -> None:
        self.mechanisms = mechanisms
        """May be replaced: the next choice of a client is one of these."""
        self.clock = clock
        self.logins = logins
        self.served = shared.dispatcher
        """The requests of clients that have authenticated."""
        self.max_request_bytes = shared.max_request_bytes
        self.max_receive_size = min(config.sasl_server_max_receive_size, shared.max_request_bytes)
        self.max_unauthenticated_s = config.connections_max_unauthenticated_ms / 1000
        self.delay_s = config.connection_failed_authentication_delay_ms / 1000
        self.versions = self.served.routes[api_versions.API.key]
        self.dispatcher = Dispatcher(
            {
                each.api.key: each
                for each in (
                    self.versions,
                    _route(sasl_handshake, self._handshake),
                    _route(sasl_authenticate, self._authenticate),
                )
            },
            clock=clock,
            slicer=self.served.slicer,
            metrics=metrics,
        )
        self.successes = metrics.authentication.succeeded.cell(listener)
        self.failures = FailureLog(
            "authentication failed", metrics.authentication.failed.cell(listener)
        )
        self.again_successes = metrics.authentication.succeeded_again.cell(listener)
        self.again_failures = FailureLog(
            "re-authentication failed", metrics.authentication.failed_again.cell(listener)
        )
        self.expired = metrics.connections_expired.cell()
        self.known: Callable[[int], None] = lambda _: None
        """Called with the id of a connection whose client has authenticated."""
        self._authentications: dict[int, Authentication] = {}

    def admit(self, connection: Connection) -> Callable[[], None]:
        """Let a new connection serve its client only after it has authenticated.

        Return the function that closes the connection before that, for others.
        """
        connection.limit_requests(self.max_receive_size, stranger=True)
        # A client that has ended its sending side does not need its login any more.
        connection.answers_after_eof = False
        authentication = Authentication(self, connection)
        self._authentications[connection.connection_id] = authentication
        connection.begin, connection.repeats_until = authentication.begin, -math.inf
        return authentication.make_way

    def forget(self, connection: Connection) -> None:
        """Forget a closed connection."""
        self._authentications.pop(connection.connection_id).close()

    async def run(
        self,
        exchange: ServerExchange,
        message: bytes | None,
        off_loop: Callable[[Callable[[], Any]], Awaitable[Any]],
    ) -> bytes | Authenticated:
        """Run an exchange up to the next message to the client, or to its end.

        Without a message it begins. `off_loop` runs a function in a thread. Raises
        AuthenticationFailed.
        """
        try:
            step = exchange.send(message)
            while not isinstance(step, Challenge):
                work = off_loop(step.function) if isinstance(step, OffLoop) else step.awaitable
                try:
                    result = await work
                except Exception as error:
                    step = exchange.throw(error)
                else:
                    step = exchange.send(result)
        except StopIteration as end:
            outcome: Authenticated = end.value
            return outcome
        except AuthenticationFailed:
            raise
        except Exception as error:
            _log.error("authentication broke", exc_info=error)
            raise AuthenticationFailed("an error of the broker") from error
        return step.data

    def _handshake(self, request: SaslHandshakeRequest, context: RequestContext) -> Any:
        return self._authentications[context.connection_id].handshake(request, context)

    def _authenticate(self, request: SaslAuthenticateRequest, context: RequestContext) -> Any:
        return self._authentications[context.connection_id].authenticate(request)


def _route(module: Any, handle: Callable[[Any, RequestContext], Any]) -> Route:
    return Route(module.API, module.API.versions, handle)


class Authentication:
    """The authentication of a connection. It begins the connection's requests."""

    def __init__(self, sasl: ListenerSasl, connection: Connection) -> None:
        self._sasl = sasl
        self._connection = connection
        self._authenticated = False
        self._versions_told = False
        self._mechanism = ""
        """The mechanism that the client has chosen for the exchange."""
        self._chosen: Mechanism | None = None
        """The same with its users: a change of the listener's keys does not touch the exchange."""
        self._exchange: ServerExchange | None = None
        self._without_header = False
        self._at_work = False
        """Whether a message of the client is being answered, or has been refused."""
        self._session_mechanism = ""
        """The mechanism of the last authentication; empty before the first."""
        self._session_ends = math.inf
        self._last_again = -math.inf
        self._work: asyncio.Future[Any] | None = None
        """The last work of the exchange outside the event loop."""
        self._deadline = asyncio.get_running_loop().call_later(
            sasl.max_unauthenticated_s, self._too_late
        )

    def close(self) -> None:
        """Stop the clock and the work of a closed connection."""
        self._deadline.cancel()
        # Only the collector would free the connection, which refers to this object.
        self._connection.begin = self._sasl.dispatcher.begin
        if self._work is not None:
            self._work.cancel()

    def begin(
        self, frame: memoryview, peer: Connection, arrival: Arrival
    ) -> EncodedResponse | Exchange:
        """Begin a request as `Dispatcher.begin` does, if it may be sent at this point."""
        key = bytes(frame[:2])
        if self._authenticated and not self._begin_again(key, arrival[1]):
            if arrival[1] < self._session_ends:
                return self._sasl.served.begin(frame, peer, arrival)
            self._sasl.expired.value += 1
            return None
        if self._at_work:
            # The connection lets no request overtake another one; this must not depend on it.
            return None
        if self._without_header:
            return self._run(self._answer_without_header(bytes(frame)))
        if key == _API_VERSIONS and not (self._versions_told or self._mechanism):
            version = int.from_bytes(frame[2:4], "big")
            self._versions_told = version in self._sasl.versions.serves
        elif key not in (_HANDSHAKE, _AUTHENTICATE):
            return self._run(self._end(None, "a request that is not part of authentication"))
        return self._sasl.dispatcher.begin(frame, peer, arrival)

    def handshake(self, request: SaslHandshakeRequest, context: RequestContext) -> Any:
        """Answer SaslHandshake: the client chooses a mechanism."""
        mechanisms, chosen = self._sasl.mechanisms, request.mechanism
        if self._mechanism:
            response = SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
            return in_task(self._end(response, "a second choice of a mechanism"))
        if chosen not in mechanisms:
            response = SaslHandshakeResponse(
                error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=[*mechanisms]
            )
            reason = f"mechanism {chosen[:_LOGGED_CHARACTERS]!r} is not enabled"
            return in_task(self._end(response, reason))
        self._mechanism, self._chosen = chosen, mechanisms[chosen]
        self._without_header = context.api_version == 0
        return SaslHandshakeResponse(mechanisms=[*mechanisms])

    def authenticate(self, request: SaslAuthenticateRequest) -> asyncio.Future[Any]:
        """Answer SaslAuthenticate: a message of the mechanism."""
        if not self._mechanism:
            response = SaslAuthenticateResponse(
                error_code=ErrorCode.ILLEGAL_SASL_STATE,
                error_message="SaslAuthenticate request received before SaslHandshake",
            )
            return in_task(self._end(response, "a message before the choice of a mechanism"))
        self._at_work = True
        return in_task(self._answer(bytes(request.auth_bytes)))

    async def _answer(self, message: bytes) -> SaslAuthenticateResponse:
        try:
            answer, lifetime_ms = await self._step(message)
        except AuthenticationFailed as error:
            told = error.answer(self._mechanism, again=bool(self._session_mechanism))
            response = SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=told
            )
            return await self._end(response, str(error))
        return SaslAuthenticateResponse(auth_bytes=answer, session_lifetime_ms=lifetime_ms)

    async def _answer_without_header(self, message: bytes) -> EncodedResponse:
        try:
            answer, _ = await self._step(message)
        except AuthenticationFailed as error:
            return await self._end(None, str(error))
        return [len(answer).to_bytes(4, "big") + answer]

    async def _step(self, message: bytes) -> tuple[bytes, int]:
        """Return the response to a message, and the lifetime in ms of the session that it begins.

        Raises AuthenticationFailed.
        """
        exchange, mechanism, chosen = self._exchange, self._mechanism, self._chosen
        assert chosen is not None, "a message comes after the choice"
        if self._session_mechanism not in ("", mechanism):
            raise AuthenticationFailed.public(
                f"SASL mechanism '{mechanism}' requested by client is not supported for "
                f"re-authentication of mechanism '{self._session_mechanism}'"
            )
        if exchange is None:
            self._exchange = chosen.begin(message)
            outcome = await self._sasl.run(self._exchange, None, self._off_loop)
        else:
            outcome = await self._sasl.run(exchange, message, self._off_loop)
        if isinstance(outcome, bytes):
            self._at_work = False
            return outcome, 0
        return outcome.answer, self._succeed(outcome, chosen.max_reauth_ms)

    def _off_loop(self, function: Callable[[], Any]) -> "asyncio.Future[Any]":
        self._work = self._sasl.logins.submit(self._connection.host, function, self._crowded_out)
        return self._work

    def _succeed(self, outcome: Authenticated, max_reauth_ms: int) -> int:
        """Begin a session, and return its lifetime in ms; raise AuthenticationFailed."""
        sasl, connection = self._sasl, self._connection
        if self._session_mechanism:
            self._require_same_principal(outcome)
            sasl.again_successes.value += 1
        else:
            sasl.successes.value += 1
        lifetimes = []
        if outcome.expires_ms is not None:
            # Within the clock skew of a token it is over already; 0 would tell that it has no end.
            lifetimes.append(max(1, outcome.expires_ms - sasl.clock.now_ms()))
        if max_reauth_ms > 0:
            lifetimes.append(max_reauth_ms)
        self._deadline.cancel()
        sasl.known(connection.connection_id)
        who = outcome.principal
        connection.principal = TokenPrincipal(*who) if outcome.by_token else who
        connection.limit_requests(sasl.max_request_bytes, stranger=False)
        connection.answers_after_eof = True
        if lifetimes:
            self._session_ends = sasl.clock.monotonic() + min(lifetimes) / 1000
        else:
            connection.begin = sasl.served.begin
        connection.repeats_until = self._session_ends
        self._authenticated = True
        self._session_mechanism, self._mechanism = self._mechanism, ""
        self._chosen = self._exchange = None
        self._without_header = self._at_work = False
        return min(lifetimes, default=0)

    def _require_same_principal(self, outcome: Authenticated) -> None:
        old, new = self._connection.principal, outcome.principal
        if old != new:
            raise AuthenticationFailed.public(
                "Cannot change principals during re-authentication from "
                f"{old.type}.{old.name}: {new.type}.{new.name}"
            )

    def _begin_again(self, key: bytes, now: float) -> bool:
        """Return whether a request begins a further authentication."""
        if key != _HANDSHAKE or now < self._last_again + MIN_REAUTH_S:
            return False
        self._last_again = now
        self._authenticated, self._versions_told = False, True
        self._connection.repeats_until = -math.inf
        return True

    async def _end(self, response: T, reason: str) -> T:
        """Return the response to a client that is refused: the connection is closed after it."""
        self._at_work = True
        (self._sasl.again_failures if self._session_mechanism else self._sasl.failures).failed(
            self._connection, reason
        )
        await asyncio.sleep(self._sasl.delay_s)
        self._connection.finish()
        return response

    def _run(self, work: Coroutine[Any, Any, EncodedResponse]) -> Exchange:
        """Answer bytes that the dispatcher does not decode."""
        self._at_work = True
        task = in_task(work)
        exchange = Exchange(task)

        def finished(done: "asyncio.Future[EncodedResponse]") -> None:
            exchange.finish(None if done.cancelled() else done.result())
            self._connection.answered(exchange)

        task.add_done_callback(finished)
        return exchange

    def _too_late(self) -> None:
        self._cut(f"no authentication in {self._sasl.max_unauthenticated_s:g} s")

    def make_way(self) -> None:
        """Close the connection, because too many others have not authenticated either."""
        self._cut("too many connections have not authenticated")

    def _crowded_out(self) -> None:
        self._cut("too many logins wait")

    def _cut(self, reason: str) -> None:
        self._sasl.failures.failed(self._connection, reason)
        self._connection.abort()
