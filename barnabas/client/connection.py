"""A connection to a broker: responses arrive in the order of the requests."""

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable
from itertools import groupby
from typing import Any, Final, NamedTuple, Protocol, cast

from barnabas import __version__
from barnabas.protocol.codec import decode, encode_parts
from barnabas.protocol.errors import ErrorCode, KafkaError, ProtocolError
from barnabas.protocol.frame import FrameReader
from barnabas.protocol.header import (
    decode_response_header,
    encode_request_header,
)
from barnabas.protocol.messages import api_versions
from barnabas.protocol.schema import Api

SOFTWARE_NAME = "barnabas"
MAX_RESPONSE = 2**31 - 1
CLOSE_TIMEOUT = 5.0
GATHERED_BYTES = 64 * 1024
"""The size from which requests are written at once, and their parts alone."""


RENEWAL: Final = (0.85, 0.95)
"""The part of a session's lifetime after which a client logs in again, at random, as Kafka's."""
RENEWAL_TIMEOUT: Final = 30.0

Connect = Callable[[Callable[[], "Connection"], str, int], Awaitable[object]]
"""A function that connects a protocol to a host and port, or raises OSError. With SASL it logs in
too, and raises AuthenticationError."""
Ask = Callable[[Api, object], Awaitable[Any]]
"""A function that sends a request and returns the response."""
Login = Callable[[Ask], Awaitable[float]]
"""A function that logs in and returns the lifetime of the session in s, 0 if it does not end."""


class BrokerUnreachable(ConnectionError):
    """The connection could not be opened, or was lost before the response came."""


class AuthenticationError(KafkaError):
    """The broker refused the login, or could not prove who it is. A retry would not help."""


class Meant(NamedTuple):
    """The cluster and the broker that a client means to reach at an address (KIP-1242)."""

    cluster_id: str
    node_id: int


class ReplyTaker(Protocol):
    """The taker of a response or an error, for example a future."""

    def done(self) -> bool: ...

    def set_result(self, result: Any, /) -> None: ...

    def set_exception(self, exception: BaseException, /) -> None: ...


Decode = Callable[[bytes, int], Any]
"""A function that decodes the body of a response, which begins at a position. Raises
ProtocolError."""


class _Pending(NamedTuple):
    correlation_id: int
    api: Api
    version: int
    answer: ReplyTaker
    decode: Decode | None = None


class _Encoded(NamedTuple):
    """A request ready to be written; `pending` is None if it gets no response."""

    parts: "list[bytes | memoryview]"
    size: int
    pending: _Pending | None


def _is_long(part: bytes | memoryview) -> bool:
    return len(part) >= GATHERED_BYTES


class _Held:
    """A login that is due, and the requests that follow it."""

    def __init__(self, login: Login) -> None:
        self.login = login
        self.requests: list[_Encoded] = []


def _versions_in(response: api_versions.ApiVersionsResponse) -> dict[int, range]:
    return {row.api_key: range(row.min_version, row.max_version + 1) for row in response.api_keys}


class Connection(asyncio.BufferedProtocol):
    """A connection that uses the highest common version of each API; see `Connection.open`."""

    def __init__(self, client_id: str, meant: Meant | None = None) -> None:
        self._client_id = client_id
        self._meant = meant
        self._frames = FrameReader(MAX_RESPONSE)
        self._pending: deque[_Pending] = deque()
        self._gathered: list[bytes | memoryview] = []
        """The requests of this iteration of the event loop that are not written yet."""
        self._gathered_bytes = 0
        self._transport: asyncio.Transport | None = None
        self._next_correlation_id = 0
        self._lost: BrokerUnreachable | None = None
        self._closed = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._held: _Held | None = None
        """The requests that follow a new login; None if none is due."""
        self._renewal: asyncio.TimerHandle | asyncio.Task[None] | None = None
        self.broker_versions: dict[int, range] = {}
        """By API key, the versions that the broker serves."""
        self.features: dict[str, int] = {}
        """By name, the finalized level of each feature (KIP-584), as of `learned_at`."""
        self.learned_at = 0.0
        self._learning = asyncio.Lock()

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        *,
        client_id: str = SOFTWARE_NAME,
        timeout: float = 30.0,
        connect: Connect | None = None,
        meant: Meant | None = None,
    ) -> "Connection":
        """Connect and negotiate versions, at most `timeout` s. Raises BrokerUnreachable, and
        AuthenticationError if `connect` logs in.

        If another broker than the `meant` one answers, which only some releases know, raises
        KafkaError REBOOTSTRAP_REQUIRED.
        """
        connect = connect or asyncio.get_running_loop().create_connection
        connection = cls(client_id, meant)
        try:
            async with asyncio.timeout(timeout):
                await connect(lambda: connection, host, port)
                await connection.negotiate()
        except BaseException as error:
            connection.abort()
            if isinstance(error, TimeoutError):
                text = f"{host}:{port} did not answer in {timeout:g} s"
                raise BrokerUnreachable(text) from None
            if isinstance(error, OSError):
                reason = error.strerror or error
                raise BrokerUnreachable(f"cannot reach {host}:{port}: {reason}") from error
            raise
        return connection

    @property
    def is_open(self) -> bool:
        return self._lost is None

    @property
    def takes_requests(self) -> bool:
        """Whether a request can be written now."""
        return self._lost is None and self._transport is not None and self._writable.is_set()

    @property
    def requests(self) -> int:
        """The number of requests that were sent."""
        return self._next_correlation_id

    def version_for(self, api: Api) -> int:
        """Return the highest common version; raises UNSUPPORTED_VERSION without one."""
        served = self.broker_versions.get(api.key)
        best = min(api.versions[-1], served[-1]) if served else -1
        if not served or best < max(api.versions[0], served[0]):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the broker serves no version of {api.name} we speak",
            )
        return best

    async def request(
        self,
        api: Api,
        request: object,
        *,
        version: int | None = None,
        timeout: float = 30.0,
        decode: Decode | None = None,
    ) -> Any:
        """Send a request and return the decoded response; `decode` as in `submit`.

        Raises BrokerUnreachable if the connection is lost, TimeoutError after `timeout` s.
        """
        if version is None:
            version = self.version_for(api)
        async with asyncio.timeout(timeout):
            await self._writable.wait()
            return await self._send(api, request, version, decode)

    def submit(
        self,
        api: Api,
        request: object,
        version: int,
        reply: ReplyTaker | None,
        decode: Decode | None = None,
    ) -> None:
        """Send a request while the connection `takes_requests`; the reply has no time limit.

        It is None for a request without a response. A request may be encoded already: `bytes` are
        its body. `decode` replaces the decoder of the response. Raises BrokerUnreachable,
        ProtocolError.
        """
        self._write(api, request, version, reply, decode)

    async def send_only(self, api: Api, request: object, *, version: int | None = None) -> None:
        """Send a request that gets no response: Produce with acks=0."""
        await self._writable.wait()
        self._write(api, request, self.version_for(api) if version is None else version)

    async def close(self) -> None:
        """Close the connection after the written data has been sent, or after CLOSE_TIMEOUT s.

        Requests without a response raise BrokerUnreachable.
        """
        self._fail(BrokerUnreachable("the connection was closed"))
        if self._transport is None:
            return
        self._write_gathered()
        self._transport.close()
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await self._closed.wait()
        except TimeoutError:
            self.abort()

    def abort(self) -> None:
        """Close the connection at once and drop unsent data."""
        self._gathered.clear()
        if self._transport is not None:
            self._transport.abort()

    async def learn_features(self, *, timeout: float = 30.0, older_than: float = 0.0) -> None:
        """Request the finalized features again if the known ones are older than `older_than` s."""
        if not self._are_features_older(older_than):
            return
        async with asyncio.timeout(timeout), self._learning:
            # Several tasks may need the features: request them once.
            if self._are_features_older(older_than):
                await self.negotiate()

    async def negotiate(self) -> None:
        """Request the versions of the broker's APIs, and the finalized features."""
        api = api_versions.API
        request = api_versions.ApiVersionsRequest(
            client_software_name=SOFTWARE_NAME, client_software_version=__version__
        )
        if self._meant is not None:
            request.cluster_id, request.node_id = self._meant
        response = await self._send(api, request, api.versions[-1])
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            # Brokers before KIP-511 do not tell their versions of this API.
            self.broker_versions = {api.key: range(1)} | _versions_in(response)
            response = await self._send(api, request, self.version_for(api))
        if response.error_code:
            raise KafkaError(ErrorCode.of(response.error_code), "the broker's ApiVersions")
        self.broker_versions = _versions_in(response)
        self.features = {row.name: row.max_version_level for row in response.finalized_features}
        self.learned_at = asyncio.get_running_loop().time()

    async def authenticate(self, login: Login) -> None:
        """Log in after `negotiate`; raises AuthenticationError.

        If the session ends, the first request after most of its lifetime has the client log in
        again (KIP-368). Requests that come meanwhile follow in their order; if that login fails,
        the connection is lost.
        """
        self._expect_end(login, await login(self._ask))

    def _expect_end(self, login: Login, lifetime: float) -> None:
        if lifetime > 0:
            delay = lifetime * random.uniform(*RENEWAL)
            self._renewal = asyncio.get_running_loop().call_later(delay, self._hold, login)

    def _hold(self, login: Login) -> None:
        self._held = _Held(login)

    async def _log_in_again(self, held: "_Held") -> None:
        try:
            async with asyncio.timeout(RENEWAL_TIMEOUT):
                lifetime = await held.login(self._ask)
        except (KafkaError, OSError, TimeoutError) as error:
            self._fail(BrokerUnreachable(f"the session could not be renewed: {error}"))
            self.abort()
            return
        self._held = None
        for request in held.requests:
            self._put(request)
        self._expect_end(held.login, lifetime)

    async def _ask(self, api: Api, request: object) -> Any:
        """Send a request of a login, which overtakes those that wait for it."""
        answer = asyncio.get_running_loop().create_future()
        self._put(self._encode(api, request, self.version_for(api), answer))
        return await answer

    def _are_features_older(self, seconds: float) -> bool:
        return asyncio.get_running_loop().time() - self.learned_at > seconds

    def _send(
        self, api: Api, request: object, version: int, decode: Decode | None = None
    ) -> "asyncio.Future[Any]":
        answer = asyncio.get_running_loop().create_future()
        self._write(api, request, version, answer, decode)
        return answer

    def _write(
        self,
        api: Api,
        request: object,
        version: int,
        answer: ReplyTaker | None = None,
        decode: Decode | None = None,
    ) -> None:
        encoded = self._encode(api, request, version, answer, decode)
        held = self._held
        if held is None:
            self._put(encoded)
            return
        if not held.requests:
            self._renewal = asyncio.get_running_loop().create_task(self._log_in_again(held))
        held.requests.append(encoded)

    def _encode(
        self,
        api: Api,
        request: object,
        version: int,
        answer: ReplyTaker | None,
        decode: Decode | None = None,
    ) -> _Encoded:
        correlation_id = self._next_correlation_id
        header = encode_request_header(api.key, version, correlation_id, self._client_id)
        if type(request) is bytes:
            size = len(header) + len(request)
            parts: list[bytes | memoryview] = [size.to_bytes(4, "big") + header + request]
        else:
            # Records are passed on without a copy where the transport can.
            parts = [header]
            for part in encode_parts(request, version):
                if not isinstance(part, bytes | memoryview):
                    raise ProtocolError("a request takes records that are in memory")
                parts.append(part)
            size = sum(map(len, parts))
            parts.insert(0, size.to_bytes(4, "big"))
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        pending = None
        if answer is not None:
            pending = _Pending(correlation_id, api, version, answer, decode)
        return _Encoded(parts, size, pending)

    def _put(self, request: _Encoded) -> None:
        if self._lost is not None or self._transport is None:
            raise self._lost or BrokerUnreachable("the connection is closed")
        if self._pending or self._gathered:
            self._gather(request.parts, request.size)
        else:
            self._write_parts(self._transport, request.parts)
        if request.pending is not None:
            self._pending.append(request.pending)

    def _gather(self, parts: "list[bytes | memoryview]", size: int) -> None:
        """Write a request at the end of this iteration of the event loop, with others.

        While a response is awaited, more requests often follow: one system call for all, and the
        broker reads them together.
        """
        if not self._gathered:
            asyncio.get_running_loop().call_soon(self._write_gathered)
        self._gathered += parts
        self._gathered_bytes += size
        if self._gathered_bytes >= GATHERED_BYTES:
            self._write_gathered()

    def _write_gathered(self) -> None:
        parts, self._gathered, self._gathered_bytes = self._gathered, [], 0
        if parts and self._transport is not None:
            self._write_parts(self._transport, parts)

    @staticmethod
    def _write_parts(transport: asyncio.Transport, parts: "list[bytes | memoryview]") -> None:
        """Write parts at once, except long ones: before Python 3.12 `writelines` copies all."""
        for is_long, group in groupby(parts, _is_long):
            if is_long:
                for part in group:
                    transport.write(part)
            else:
                transport.writelines(group)

    # -- called by asyncio -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # The transports of uvloop are not subclasses of those of asyncio.
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        return self._frames.writable()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            self._frames.wrote(nbytes)
            while (frame := self._frames.next_frame()) is not None:
                self._answer(frame)
        except ProtocolError as error:
            self._fail(BrokerUnreachable(f"the broker sent an invalid response: {error}"))
            self.abort()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed.set()
        self._gathered.clear()
        self._fail(BrokerUnreachable(f"the connection was lost: {exc or 'closed'}"))

    def _answer(self, frame: memoryview) -> None:
        if not self._pending:
            raise ProtocolError("a response without a request")
        waiting = self._pending[0]
        # Decoded responses outlive the receive buffer.
        data = bytes(frame)
        correlation_id, offset = decode_response_header(waiting.api.key, waiting.version, data)
        if correlation_id != waiting.correlation_id:
            text = f"correlation id {correlation_id} instead of {waiting.correlation_id}"
            raise ProtocolError(text)
        if waiting.decode is not None:
            response = waiting.decode(data, offset)
        elif waiting.api is api_versions.API and data[offset : offset + 2] == b"\x00\x23":
            # A broker without our version of ApiVersions responds in version 0 (KIP-511).
            response = decode(waiting.api.response, 0, data, offset)
        else:
            response = decode(waiting.api.response, waiting.version, data, offset)
        # Until now an invalid response fails this request together with the later ones.
        self._pending.popleft()
        if not waiting.answer.done():
            waiting.answer.set_result(response)

    def _fail(self, error: BrokerUnreachable) -> None:
        if self._lost is None:
            self._lost = error
        self._writable.set()
        if self._renewal is not None:
            self._renewal.cancel()
        if self._held is not None:
            requests, self._held = self._held.requests, None
            self._pending += [each.pending for each in requests if each.pending is not None]
        while self._pending:
            answer = self._pending.popleft().answer
            if not answer.done():
                answer.set_exception(error)
