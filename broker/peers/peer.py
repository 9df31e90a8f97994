"""A line from this broker to another: one connection, for one purpose, made again when it broke."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.metadata.cache import Endpoint
from barnabas.broker.observability.logging import get_logger
from barnabas.broker.server.network import Network
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.schema import Api

if TYPE_CHECKING:
    from barnabas.client.connection import Connection

BACKOFF_S: Final = 0.05
"""Until a broker that could not be reached is tried again; twice as long each time after that."""
LONGEST_BACKOFF_S: Final = 1.0
CONNECT_TIMEOUT_S: Final = 5.0
_log = get_logger(__name__)


class PeerUnreachable(Exception):
    """The broker could not be asked, or its answer did not come: what it did is unknown.

    Also of whoever is no broker of this cluster, though one has registered that address.
    """


class Peer:
    """Requests to one broker, in the order in which they are made."""

    def __init__(
        self, find: Callable[[], Endpoint | None], network: Network, *, client_id: str
    ) -> None:
        """`find` says where the broker is now; None where nobody knows."""
        self._find = find
        self._network = network
        self._client_id = client_id
        self._connection: Connection | None = None
        self._opening = asyncio.Lock()
        self._attempt: asyncio.Task[Connection] | None = None
        self._backoff = 0.0
        self._not_before = 0.0
        self._closed = False

    async def request(
        self, api: Api, request: object, *, version: int | None = None, timeout: float = 30.0
    ) -> Any:
        """The decoded answer, in the highest version both speak unless one is named.

        Raises PeerUnreachable: no address, no connection, or no answer within `timeout` seconds,
        after which the connection is dropped, so that a late answer is nobody's. While a broker
        that was out of reach is left alone for a moment, it is raised at once.
        """
        connection = self._connection
        if connection is None or not connection.is_open:
            connection = await self._open()
        try:
            answer = await connection.request(api, request, version=version, timeout=timeout)
        except TimeoutError as cause:
            connection.abort()
            raise PeerUnreachable(f"no answer to {api.name} in {timeout:g} s") from cause
        except ConnectionError as cause:
            raise PeerUnreachable(str(cause)) from cause
        except KafkaError as cause:
            # Another release perhaps, while all are replaced; or no broker of this cluster.
            _log.warning("broker does not understand", api=api.name, reason=str(cause))
            self.abort()
            self._fail()
            raise PeerUnreachable(str(cause)) from cause
        self._backoff = 0.0
        return answer

    @property
    def backoff(self) -> float:
        """Seconds for which asking is of no use; 0 where it may be."""
        return max(0.0, self._not_before - asyncio.get_running_loop().time())

    def abort(self) -> None:
        """Drop the connection, also one that is being opened; the next request opens another."""
        self._give_up_opening()
        if self._connection is not None:
            self._connection.abort()
            self._connection = None

    async def close(self) -> None:
        """Ask nothing more; what waits for an answer gets PeerUnreachable."""
        self._closed = True
        self._give_up_opening()
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _open(self) -> "Connection":
        async with self._opening:
            # Somebody else may have opened it while this request waited.
            if self._connection is not None and self._connection.is_open:
                return self._connection
            self._require_use()
            if self.backoff:
                raise PeerUnreachable("the broker was out of reach a moment ago")
            at = self._find()
            if at is None:
                raise PeerUnreachable("nobody knows where the broker is")
            # A task of its own: `abort` ends it, and not whoever asks.
            attempt = self._attempt = asyncio.get_running_loop().create_task(self._connect(at))
            try:
                await asyncio.wait([attempt])
            finally:
                self._give_up_opening()
            if attempt.cancelled():
                raise PeerUnreachable("the line was dropped while it was opened")
            connection = attempt.result()
            self._require_use()
            return connection

    async def _connect(self, at: Endpoint) -> "Connection":
        # A broker that is alone starts without it.
        from barnabas.client.connection import Connection

        try:
            self._connection = connection = await Connection.open(
                at.host,
                at.port,
                client_id=self._client_id,
                timeout=CONNECT_TIMEOUT_S,
                connect=self._network.connect,
            )
        except (ConnectionError, KafkaError) as cause:
            self._fail()
            raise PeerUnreachable(str(cause)) from cause
        return connection

    def _give_up_opening(self) -> None:
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.cancel()

    def _require_use(self) -> None:
        if self._closed:
            raise PeerUnreachable("the line is closed")

    def _fail(self) -> None:
        self._backoff = min(max(2 * self._backoff, BACKOFF_S), LONGEST_BACKOFF_S)
        self._not_before = asyncio.get_running_loop().time() + self._backoff
