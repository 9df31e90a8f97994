"""A session with a store that another process of this host serves on a Unix socket."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from typing import Any, Final, cast

from barnabas.broker.observability.logging import get_logger
from barnabas.broker.socket_path import socket_address
from barnabas.broker.store import socket_protocol
from barnabas.broker.store.metadata_store import (
    Op,
    OpResult,
    SessionExpired,
    SingleOperations,
    Stat,
    StoreUnavailable,
    Watch,
)
from barnabas.broker.store.socket_protocol import FormatError
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.frame import FrameReader

RETRY_SECONDS: Final = 0.1
_log = get_logger(__name__)


class RemoteStore(SingleOperations):
    """See `MetadataStore`. Created by `connect_store`.

    A connection that is lost, or silent for two thirds of the session timeout, is replaced; until
    then every call raises StoreUnavailable.
    """

    def __init__(self, path: str, timeout: float) -> None:
        self._path = path
        self._timeout = timeout
        self._id = 0
        self._connection: _Connection | None = None
        self._attaching = asyncio.Lock()
        self._watches: dict[tuple[str, str], list[_WatchHandle]] = {}
        self._on_expired: list[Callable[[], None]] = []
        self._expired = True
        self._closed = False
        self._loop = asyncio.get_running_loop()
        self._answered = self._loop.time()
        self._lost = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None

    # -- session ----------------------------------------------------------------------------------

    @property
    def session_id(self) -> int:
        return self._id

    @property
    def session_timeout(self) -> float:
        return self._timeout

    def silent_for(self) -> float:
        return self._loop.time() - self._answered

    def on_expired(self, callback: Callable[[], None]) -> None:
        self._on_expired.append(callback)

    async def renew(self) -> None:
        if self._closed:
            raise SessionExpired
        if self._expired:
            await self._attach(0)
            if self._keeper is None:
                self._keeper = self._loop.create_task(self._keep_alive())

    async def close(self) -> None:
        if self._closed:
            return
        with suppress(StoreUnavailable, SessionExpired, TimeoutError):
            # Not `wait_for`: before Python 3.12 it asks in a task, and a loop that stops now never
            # runs it.
            async with asyncio.timeout(self._timeout / 3):
                await self._ask({"do": "close"})
        self._closed = True
        if self._keeper is not None:
            self._keeper.cancel()
        if self._connection is not None:
            self._connection.abort()

    async def end_earlier(self, session_id: int) -> bool:
        """End a session whose client has disconnected; return False if it is connected."""
        return bool(await self._ask({"do": "end", "session": session_id}))

    # -- nodes -----------------------------------------------------------------------------------

    async def get(self, path: str) -> tuple[bytes, Stat]:
        text, stat = await self._ask({"do": "get", "path": path})
        return socket_protocol.text_data(text), Stat(*stat)

    async def exists(self, path: str) -> Stat | None:
        stat = await self._ask({"do": "exists", "path": path})
        return None if stat is None else Stat(*stat)

    async def children(self, path: str) -> list[str]:
        return cast("list[str]", await self._ask({"do": "children", "path": path}))

    async def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        results = await self._ask({"do": "multi", "ops": socket_protocol.ops_to_json(ops)})
        return socket_protocol.results_from_json(ops, results)

    # -- watches ---------------------------------------------------------------------------------

    def watch_data(self, path: str, watch: Watch) -> "_WatchHandle":
        return self._watch("data", path, watch)

    def watch_children(self, path: str, watch: Watch) -> "_WatchHandle":
        return self._watch("children", path, watch)

    def _watch(self, kind: str, path: str, watch: Watch) -> "_WatchHandle":
        handle = _WatchHandle(self, kind, path, watch)
        watchers = self._watches.setdefault((kind, path), [])
        watchers.append(handle)
        if len(watchers) == 1 and self._connection is not None:
            self._connection.send({"do": "watch", "kind": kind, "path": path})
        return handle

    def cancel(self, handle: "_WatchHandle") -> None:
        """Stop calling a watch."""
        key = handle.kind, handle.path
        self._watches[key].remove(handle)
        if not self._watches[key]:
            del self._watches[key]
            if self._connection is not None:
                self._connection.send({"do": "unwatch", "kind": handle.kind, "path": handle.path})

    # -- callbacks of the connection --------------------------------------------------------------

    def message_received(self, message: dict[str, Any]) -> None:
        """Handle a message that the store sends on its own: a changed node, or the end of the
        session."""
        if message.get("expired"):
            self._expire()
        else:
            self._call(message["told"], message["at"])

    def response_received(self, asked: float) -> None:
        """Record that the store has answered a request that was sent at this time."""
        self._answered = max(self._answered, asked)

    def lost(self, connection: "_Connection") -> None:
        """Handle the loss of a connection."""
        if connection is self._connection:
            self._connection = None
            self._lost.set()

    def _call(self, kind: str, path: str) -> None:
        for handle in self._watches.get((kind, path), ()):
            self._loop.call_soon(handle.call)

    def _expire(self) -> None:
        if not (self._expired or self._closed):
            self._expired = True
            for callback in list(self._on_expired):
                callback()

    async def _ask(self, message: dict[str, Any]) -> Any:
        if self._closed or self._expired:
            raise SessionExpired
        if self._connection is None:
            raise StoreUnavailable
        return await self._connection.request(message)

    async def _attach(self, session_id: int) -> None:
        """Connect for this session; 0 opens a new one. Raises SessionExpired, StoreUnavailable."""
        async with self._attaching:
            if session_id == 0 and not self._expired:
                return
            connection = await self._open()
            attach = {"do": "attach", "session": session_id, "timeout": self._timeout}
            try:
                # Not `wait_for`: before Python 3.12 it ignores a cancellation if the answer has
                # just come, and a broker that is told to stop would continue to start.
                async with asyncio.timeout(self._timeout):
                    self._id, self._timeout = await connection.request(attach)
            except BaseException as error:
                connection.abort()
                if isinstance(error, TimeoutError):
                    raise StoreUnavailable from error
                raise
            if self._closed:
                connection.abort()
                raise SessionExpired
            self._connection, self._expired = connection, False
            self._lost.clear()
            # Any node may have changed while no connection was open.
            for kind, path in self._watches:
                connection.send({"do": "watch", "kind": kind, "path": path})
                self._call(kind, path)

    async def _open(self) -> "_Connection":
        try:
            with socket_address(self._path) as address:
                _, connection = await self._loop.create_unix_connection(
                    lambda: _Connection(self), address
                )
        except OSError as error:
            reason = error.strerror or error
            raise StoreUnavailable(f"no metadata store at {self._path}: {reason}") from error
        return connection

    async def _keep_alive(self) -> None:
        """Keep the session alive until it is closed."""
        while not self._closed:
            if self._connection is not None:
                await self._send_pings(self._connection)
            elif self._expired:
                # Wait until the owner calls `renew`.
                await asyncio.sleep(RETRY_SECONDS)
            else:
                await self._reconnect()

    async def _send_pings(self, connection: "_Connection") -> None:
        """Send three pings per session timeout; drop a connection without answers."""
        connection.send({"do": "ping"})
        with suppress(TimeoutError):
            await asyncio.wait_for(self._lost.wait(), self._timeout / 3)
        if connection.waiting_for() > self._timeout * 2 / 3:
            _log.warning("metadata store not responding", session=self._id, at=self._path)
            connection.abort()

    async def _reconnect(self) -> None:
        try:
            await self._attach(self._id)
        except SessionExpired:
            self._expire()
        except StoreUnavailable:
            await asyncio.sleep(RETRY_SECONDS)


async def connect_store(path: str, timeout: float) -> RemoteStore:
    """Open a session with the store that is served at `path`.

    It ends after `timeout` seconds of silence; the store may change that. Raises StoreUnavailable.
    """
    store = RemoteStore(path, timeout)
    await store.renew()
    return store


class _WatchHandle:
    """An active watch."""

    def __init__(self, store: RemoteStore, kind: str, path: str, watch: Watch) -> None:
        self.kind = kind
        self.path = path
        self._store = store
        self._watch: Watch | None = watch

    def call(self) -> None:
        if self._watch is not None:
            self._watch(self.path)

    def cancel(self) -> None:
        if self._watch is not None:
            self._watch = None
            self._store.cancel(self)


class _Connection(asyncio.BufferedProtocol):
    """One connection to the store."""

    def __init__(self, owner: RemoteStore) -> None:
        self._owner = owner
        self._reader = FrameReader(socket_protocol.LARGEST_FRAME)
        self._loop = asyncio.get_running_loop()
        self._numbers = count(1)
        self._asked: dict[int, tuple[float, asyncio.Future[Any] | None]] = {}
        self._transport: Any = None

    def request(self, message: dict[str, Any]) -> "asyncio.Future[Any]":
        """Send a request; the future has the response, or StoreUnavailable if it was lost."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self._send(message, future)
        return future

    def send(self, message: dict[str, Any]) -> None:
        """Send a request whose response has no content."""
        self._send(message, None)

    def waiting_for(self) -> float:
        """Return the seconds since the oldest request without a response."""
        oldest = next(iter(self._asked.values()), None)
        return 0.0 if oldest is None else self._loop.time() - oldest[0]

    def abort(self) -> None:
        self._transport.abort()

    def _send(self, message: dict[str, Any], future: "asyncio.Future[Any] | None") -> None:
        number = next(self._numbers)
        frame = socket_protocol.encode({"id": number, **message})
        if self._transport.is_closing():
            if future is not None:
                future.set_exception(StoreUnavailable())
            return
        self._asked[number] = self._loop.time(), future
        self._transport.write(frame)

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        for _, future in self._asked.values():
            if future is not None and not future.done():
                future.set_exception(StoreUnavailable())
        self._asked.clear()
        self._owner.lost(self)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        return self._reader.writable()

    def buffer_updated(self, nbytes: int) -> None:
        self._reader.wrote(nbytes)
        try:
            while (frame := self._reader.next_frame()) is not None:
                self._received(socket_protocol.decode(frame))
        except (ProtocolError, FormatError, KeyError) as error:
            _log.error("invalid message from the metadata store", error=str(error))
            self.abort()

    def _received(self, message: dict[str, Any]) -> None:
        number = message.get("id")
        if number is None:
            self._owner.message_received(message)
            return
        asked, future = self._asked.pop(number)
        self._owner.response_received(asked)
        if future is None or future.done():
            return
        if "error" in message:
            future.set_exception(socket_protocol.error_from_json(message))
        else:
            future.set_result(message["is"])
