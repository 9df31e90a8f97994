"""The connections from this broker to other brokers."""

import asyncio
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.cluster.cache import Endpoint, MetadataCache
from barnabas.broker.cluster.znodes import BrokerInfo
from barnabas.broker.observability.logging import get_logger
from barnabas.protocol.backoff import Backoff
from barnabas.protocol.errors import KafkaError, ProtocolError
from barnabas.protocol.schema import Api

if TYPE_CHECKING:
    from barnabas.client.connection import Connect, Connection, Decode

CONNECT_TIMEOUT_S: Final = 5.0
_CLIENT_ID: Final = "broker-"
_ID: Final = re.compile(r"[0-9]{1,10}")
_log = get_logger(__name__)
Then = Callable[[Any], None]
"""A function that takes a response, or None if none came."""


def client_id_of(broker_id: int) -> str:
    """Return the client id of a broker's connections to others."""
    return f"{_CLIENT_ID}{broker_id}"


def broker_id_of(client_id: str | None) -> int | None:
    """Return the id in the client id of a broker; None for other clients."""
    digits = (client_id or "").removeprefix(_CLIENT_ID)
    return int(digits) if client_id == f"{_CLIENT_ID}{digits}" and _ID.fullmatch(digits) else None


class PeerUnreachable(Exception):
    """The broker did not get the request, or did not answer it: its outcome is unknown.

    Also raised if the address of a registration does not belong to a broker of this cluster.
    """


class Peer:
    """A connection to another broker for one purpose, opened again after a failure. Requests go in
    order."""

    def __init__(
        self, find: Callable[[], Endpoint | None], connect: "Connect", *, client_id: str
    ) -> None:
        """`find` returns the broker's current address, or None if it is unknown."""
        self._find = find
        self._connect_protocol = connect
        self._client_id = client_id
        self._connection: Connection | None = None
        self._opening = asyncio.Lock()
        self._attempt: asyncio.Task[Connection] | None = None
        self._backoff = Backoff()
        self._not_before = 0.0
        self._closed = False
        self._tasks: set[asyncio.Task[None]] = set()

    def submit(
        self,
        api: Api,
        request: object,
        then: Then,
        *,
        version: int,
        timeout: float,
        decode: "Decode | None" = None,
    ) -> None:
        """Send a request, and call `then` with the decoded response, later and exactly once.

        The body of a request may be encoded already, and `decode` may know the response. Without a
        response `then` is called with None: the broker may have carried out the request. While the
        connection is open this needs no task and no future: `then` runs where the response is
        read. It must raise nothing.
        """
        connection = self._connection
        if connection is None or not connection.takes_requests:
            # The connection must be opened first, or its buffer is full.
            work = self._request(api, request, then, version, timeout, decode)
            task = asyncio.get_running_loop().create_task(work)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return
        reply = _Reply(self, connection, then, timeout)
        try:
            connection.submit(api, request, version, reply, decode)
        except (ConnectionError, ProtocolError) as error:
            _log.warning("request not sent", api=api.name, version=version, reason=str(error))
            asyncio.get_running_loop().call_soon(reply.set_exception, error)

    def tells(self, api: Api) -> bool:
        """Return whether `tell` can send the broker a request now: the connection is open, and the
        broker serves the API, which another release may not know."""
        connection = self._connection
        return (
            connection is not None
            and connection.takes_requests
            and api.key in connection.broker_versions
        )

    def tell(self, api: Api, request: object, *, version: int) -> None:
        """Send a request that gets no response, if the broker `tells`. It may get lost."""
        if self._connection is not None and self.tells(api):
            self._connection.submit(api, request, version, None)

    async def _request(
        self,
        api: Api,
        request: object,
        then: Then,
        version: int,
        timeout: float,
        decode: "Decode | None",
    ) -> None:
        try:
            answer = await self.request(
                api, request, version=version, timeout=timeout, decode=decode
            )
        except PeerUnreachable:
            answer = None
        except ProtocolError as error:
            _log.warning("request not sent", api=api.name, version=version, reason=str(error))
            answer = None
        then(answer)

    async def request(
        self,
        api: Api,
        request: object,
        *,
        version: int | None = None,
        timeout: float = 30.0,
        decode: "Decode | None" = None,
    ) -> Any:
        """Send a request and return the decoded response, in `version` or the highest common one.

        Raises PeerUnreachable: no address, no connection, or no response within `timeout` seconds.
        The connection is dropped then, so a late response reaches no other request. During the
        backoff after a failure PeerUnreachable is raised at once.
        """
        connection = self._connection
        if connection is None or not connection.is_open:
            connection = await self._open()
        try:
            answer = await connection.request(
                api, request, version=version, timeout=timeout, decode=decode
            )
        except TimeoutError as cause:
            self.drop(connection)
            raise PeerUnreachable(f"no answer to {api.name} in {timeout:g} s") from cause
        except ConnectionError as cause:
            raise PeerUnreachable(str(cause)) from cause
        except KafkaError as cause:
            # The broker may have another release during a rolling upgrade, or belong to no cluster
            # of ours.
            _log.warning("broker does not support request", api=api.name, reason=str(cause))
            self.abort()
            self._fail()
            raise PeerUnreachable(str(cause)) from cause
        self.answered()
        return answer

    async def announces(self, api: Api) -> bool:
        """Return whether the broker serves an API that another release may not know.

        Raises PeerUnreachable if the connection cannot be opened.
        """
        connection = self._connection
        if connection is None or not connection.is_open:
            connection = await self._open()
        return api.key in connection.broker_versions

    @property
    def backoff(self) -> float:
        """Seconds until a request is useful; 0 if it is now."""
        return max(0.0, self._not_before - asyncio.get_running_loop().time())

    def abort(self) -> None:
        """Drop the connection, open or opening; the next request opens another one."""
        self._give_up_opening()
        if self._connection is not None:
            self._connection.abort()
            self._connection = None

    async def close(self) -> None:
        """Close for good; requests in flight fail with PeerUnreachable."""
        self._closed = True
        self._give_up_opening()
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _open(self) -> "Connection":
        async with self._opening:
            # Another request may have opened it while this one waited.
            if self._connection is not None and self._connection.is_open:
                return self._connection
            self._require_use()
            if self.backoff:
                raise PeerUnreachable("the broker was unreachable a moment ago")
            at = self._find()
            if at is None:
                raise PeerUnreachable("the address of the broker is unknown")
            # A separate task, so that `abort` cancels the attempt and not the caller.
            attempt = self._attempt = asyncio.get_running_loop().create_task(self._connect(at))
            try:
                await asyncio.wait([attempt])
            finally:
                self._give_up_opening()
            if attempt.cancelled():
                raise PeerUnreachable("the connection was dropped while it was opened")
            connection = attempt.result()
            self._require_use()
            return connection

    async def _connect(self, at: Endpoint) -> "Connection":
        # Imported here: a single broker starts faster without it.
        from barnabas.client.connection import Connection

        try:
            self._connection = connection = await Connection.open(
                at.host,
                at.port,
                client_id=self._client_id,
                timeout=CONNECT_TIMEOUT_S,
                connect=self._connect_protocol,
            )
        except (ConnectionError, KafkaError) as cause:
            if isinstance(cause, KafkaError) and not self._backoff.failures:
                # It runs, but will not be of use by itself: SASL refuses us, for example.
                _log.warning("broker refused connection", host=at.host, reason=str(cause))
            self._fail()
            raise PeerUnreachable(str(cause)) from cause
        return connection

    def answered(self) -> None:
        """Forget failures: the broker has answered."""
        self._backoff.failures = 0

    def drop(self, connection: "Connection") -> None:
        """Drop a connection on which the broker has not answered in time."""
        connection.abort()
        if self._connection is connection:
            self._connection = None

    def _give_up_opening(self) -> None:
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.cancel()

    def _require_use(self) -> None:
        if self._closed:
            raise PeerUnreachable("the connection is closed")

    def _fail(self) -> None:
        self._not_before = asyncio.get_running_loop().time() + self._backoff.failed()


class _Reply:
    """The reply to a submitted request, which is passed on at once."""

    __slots__ = ("_connection", "_peer", "_then", "_timer")

    def __init__(self, peer: Peer, connection: "Connection", then: Then, timeout: float) -> None:
        self._peer = peer
        self._connection = connection
        self._then: Then | None = then
        self._timer = asyncio.get_running_loop().call_later(timeout, self._expired)

    def done(self) -> bool:
        return self._then is None

    def set_result(self, response: Any, /) -> None:
        self._peer.answered()
        self._give(response)

    def set_exception(self, error: BaseException, /) -> None:  # noqa: ARG002
        self._give(None)

    def _expired(self) -> None:
        self._peer.drop(self._connection)
        self._give(None)

    def _give(self, response: Any) -> None:
        then, self._then = self._then, None
        self._timer.cancel()
        if then is not None:
            then(response)


class Peers:
    """The factory of connections to other brokers; the caller owns and closes them."""

    def __init__(
        self, cache: MetadataCache, connect: "Connect", *, broker_id: int, listener: str
    ) -> None:
        """`listener` is the value of `inter.broker.listener.name`, `connect` opens a socket."""
        self._cache = cache
        self._connect = connect
        self._listener = listener
        self._client_id = client_id_of(broker_id)

    def to(self, broker_id: int) -> Peer:
        """Return a connection to a broker, at the address that the metadata cache has when it is
        opened."""
        return Peer(
            lambda: self._cache.endpoint(broker_id, self._listener),
            self._connect,
            client_id=self._client_id,
        )

    def at(self, broker: BrokerInfo) -> Peer:
        """Return a connection to one incarnation of a broker, at the address in its
        registration."""
        found = None
        for endpoint in broker.endpoints:
            if endpoint.listener == self._listener:
                found = Endpoint(endpoint.host, endpoint.port)
        return Peer(lambda: found, self._connect, client_id=self._client_id)
