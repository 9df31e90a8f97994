"""The server of an embedded store: sessions of other processes of this host, on a Unix socket.

A session outlives its connection: after a loss the client attaches a new one. A session ends when
it is closed, after its timeout without a message, or a moment after its connection was closed and
no other came: a crashed process closes its connections, so its ephemeral nodes are deleted soon.
Watches belong to a connection, and the client sets them again on the next one.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

from barnabas.broker.observability.logging import get_logger
from barnabas.broker.socket_path import bind
from barnabas.broker.store import socket_protocol
from barnabas.broker.store.embedded import EmbeddedSession, EmbeddedStore
from barnabas.broker.store.metadata_store import (
    Op,
    SessionExpired,
    StoreError,
    StoreUnavailable,
    WatchHandle,
)
from barnabas.broker.store.socket_protocol import FormatError
from barnabas.broker.store.tree import Tree
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.frame import FrameReader

REATTACH_SECONDS: Final = 0.25
"""Seconds that a session waits for a new connection after its client closed the last one."""
SHORTEST_TIMEOUT: Final = 0.1
LONGEST_TIMEOUT: Final = 3600.0
MOST_UNSENT: Final = 2 * socket_protocol.LARGEST_FRAME
"""Bytes that a client may leave unread before its connection is closed."""
_log = get_logger(__name__)


class StoreServer:
    """The server of one store's sessions. `connection` is its protocol factory."""

    def __init__(self, store: EmbeddedStore) -> None:
        self._store = store
        self._sessions: dict[int, _Session] = {}
        self._connections: set[_Connection] = set()
        self._servers: list[tuple[asyncio.Server, str]] = []
        self._closing = False
        self.failed = asyncio.Event()
        """Set when the store could not write: it answers no request until its next start."""

    async def serve(
        self, path: str, connection: Callable[[], asyncio.BaseProtocol] | None = None
    ) -> None:
        """Accept connections at a path, for this user only; delete the socket of a crashed server.

        Raises OSError, FileExistsError if the path is another kind of file.
        """
        bound = bind(path)
        loop = asyncio.get_running_loop()
        server = await loop.create_unix_server(connection or self.connection, sock=bound)
        self._servers.append((server, path))

    async def close(self) -> None:
        """Accept no more connections, close the open ones, and end their sessions."""
        self._closing = True
        for server, path in self._servers:
            server.close()
            with suppress(FileNotFoundError):
                os.unlink(path)
        for connection in list(self._connections):
            connection.cut()
        for session in list(self._sessions.values()):
            await session.end()

    async def expire(self, session_id: int) -> None:
        """End a session as if it had been silent. Raises KeyError if it has ended."""
        await self._sessions[session_id].expire()

    async def end_detached(self, session_id: int) -> bool:
        """End a session whose client has closed its connection; return False if it has not."""
        session = self._sessions.get(session_id)
        if session is not None and session.attached:
            return False
        if session is not None:
            await session.expire()
        return True

    def connection(self) -> "_Connection":
        """Return the protocol of a new connection."""
        return _Connection(self)

    def opened(self, connection: "_Connection") -> None:
        self._connections.add(connection)

    def closed(self, connection: "_Connection") -> None:
        self._connections.discard(connection)

    def attach(self, connection: "_Connection", session_id: int, timeout: float) -> "_Session":
        """Return the session for a connection; 0 opens one. Raises SessionExpired."""
        if self._closing:
            raise StoreUnavailable
        if not session_id:
            timeout = min(max(timeout, SHORTEST_TIMEOUT), LONGEST_TIMEOUT)
            begun = _Session(self._store, self._store.session(), timeout, self._sessions)
            begun.attach(connection)
            return begun
        session = self._sessions.get(session_id)
        if session is None:
            raise SessionExpired
        session.attach(connection)
        return session


class _Session:
    """A session of the store, and its timeout."""

    def __init__(
        self,
        store: EmbeddedStore,
        session: EmbeddedSession,
        timeout: float,
        table: dict[int, "_Session"],
    ) -> None:
        self.session = session
        self.timeout = timeout
        self._store = store
        self._table = table
        self._connection: _Connection | None = None
        self._loop = asyncio.get_running_loop()
        self._heard = self._loop.time()
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._ending: asyncio.Task[None] | None = None
        table[session.session_id] = self

    @property
    def attached(self) -> bool:
        """Whether its client is connected."""
        return self._connection is not None

    def attach(self, connection: "_Connection") -> None:
        if self._connection is not None:
            self._connection.cut()
        self._connection = connection
        self.message_received()
        self._look_in(self.timeout)

    def detach(self, connection: "_Connection") -> None:
        if connection is self._connection and self.session.session_id in self._table:
            self._connection = None
            self._look_in(min(REATTACH_SECONDS, self.timeout))

    @property
    def tree(self) -> Tree:
        """The tree, for reading only. Raises SessionExpired."""
        if not self._store.alive(self.session.session_id):
            raise SessionExpired
        return self._store.tree

    def message_received(self) -> None:
        self._heard = self._loop.time()

    async def end(self) -> None:
        """End the session at the request of its owner."""
        if self._forget():
            await self.session.close()

    def _forget(self) -> bool:
        if self._timer is not None:
            self._timer.cancel()
        return self._table.pop(self.session.session_id, None) is not None

    def _look_in(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due = self._loop.time() + seconds
        self._timer = self._loop.call_later(seconds, self._look)

    def _look(self) -> None:
        now = self._loop.time()
        if now - self._due > self.timeout / 4:
            # This process was paused and could not receive messages.
            self._heard = now
        silent = now - self._heard
        if self._connection is not None and silent < self.timeout:
            # Not sooner than the clock's resolution allows.
            self._look_in(max(self.timeout - silent, 0.001))
        else:
            self._ending = self._loop.create_task(self.expire())

    async def expire(self) -> None:
        """End the session because its owner was silent."""
        if not self._forget():
            return
        connection = self._connection
        _log.warning(
            "metadata session expired",
            session=self.session.session_id,
            reason="silence" if connection else "connection closed",
        )
        # A failed store answers no request any more; its process reports the failure.
        try:
            await self._store.expire(self.session.session_id)
        except StoreUnavailable as error:
            _log.error("metadata session not ended", exc_info=error)
        if connection is not None:
            connection.send({"expired": True})
            connection.finish()


class _Connection(asyncio.BufferedProtocol):
    """One connection: receives requests, sends responses and watch events."""

    def __init__(self, server: StoreServer) -> None:
        self._server = server
        self._reader = FrameReader(socket_protocol.LARGEST_FRAME)
        self._transport: Any = None
        self._session: _Session | None = None
        self._watches: dict[tuple[str, str], WatchHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._server.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        for watch in self._watches.values():
            watch.cancel()
        self._watches.clear()
        self._server.closed(self)
        if self._session is not None:
            self._session.detach(self)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        return self._reader.writable()

    def buffer_updated(self, nbytes: int) -> None:
        self._reader.wrote(nbytes)
        try:
            while (frame := self._reader.next_frame()) is not None:
                self._received(socket_protocol.decode(frame))
        except (ProtocolError, FormatError, KeyError, TypeError, ValueError) as error:
            _log.error("invalid message from a metadata client", error=str(error))
            self.cut()

    def cut(self) -> None:
        self._transport.abort()

    def finish(self) -> None:
        """Close when all messages have been sent."""
        self._transport.close()

    def send(self, message: dict[str, Any]) -> None:
        if self._transport.is_closing():
            return
        self._transport.write(socket_protocol.encode(message))
        if self._transport.get_write_buffer_size() > MOST_UNSENT:
            _log.error("metadata client does not read: connection closed")
            self.cut()

    def _received(self, message: dict[str, Any]) -> None:
        number = message["id"]
        try:
            match message["do"]:
                case "multi":
                    self._change(number, self._begun().session, message["ops"])
                case "close":
                    self._run(self._close(number, self._begun()))
                case "end":
                    self._begun()
                    self._run(self._end(number, message["session"]))
                case _:
                    self.send({"id": number, "is": self._answer(message)})
        except StoreError as error:
            self.send({"id": number, **socket_protocol.error_to_json(error)})

    def _begun(self) -> _Session:
        if self._session is None:
            raise FormatError("a request before the session was opened")
        self._session.message_received()
        return self._session

    def _answer(self, message: dict[str, Any]) -> Any:
        """Answer at once if the request changes no node."""
        match message["do"]:
            case "attach":
                session = self._server.attach(self, message["session"], message["timeout"])
                self._session = session
                return [session.session.session_id, session.timeout]
            case "ping":
                self._begun()
                return None
            case "watch":
                self._watch(message["kind"], message["path"])
                return None
            case "unwatch":
                self._unwatch(message["kind"], message["path"])
                return None
        return self._read(message["do"], message["path"])

    def _read(self, what: str, path: str) -> Any:
        tree = self._begun().tree
        match what:
            case "get":
                node = tree.node(path)
                return [socket_protocol.data_text(node.data), list(node.stat)]
            case "exists":
                found = tree.find(path)
                return None if found is None else list(found.stat)
            case "children":
                return tree.children(path)
        raise FormatError(f"no request: {what}")

    def _change(self, number: int, session: EmbeddedSession, ops: list[list[Any]]) -> None:
        self._run(self._commit(number, session, socket_protocol.ops_from_json(ops)))

    async def _commit(self, number: int, session: EmbeddedSession, ops: list[Op]) -> None:
        try:
            results = await session.multi(ops)
        except (StoreError, ValueError) as error:
            if isinstance(error, StoreUnavailable):
                self._server.failed.set()
            self.send({"id": number, **socket_protocol.error_to_json(error)})
        else:
            self.send({"id": number, "is": socket_protocol.results_to_json(results)})

    async def _close(self, number: int, session: "_Session") -> None:
        try:
            await session.end()
        except StoreUnavailable as error:
            self.send({"id": number, **socket_protocol.error_to_json(error)})
        else:
            self.send({"id": number, "is": None})
            self.finish()

    async def _end(self, number: int, session_id: int) -> None:
        self.send({"id": number, "is": await self._server.end_detached(session_id)})

    def _watch(self, kind: str, path: str) -> None:
        session = self._begun().session
        watch = {"data": session.watch_data, "children": session.watch_children}[kind]
        if (kind, path) not in self._watches:
            self._watches[kind, path] = watch(path, lambda at: self.send({"told": kind, "at": at}))

    def _unwatch(self, kind: str, path: str) -> None:
        watching = self._watches.pop((kind, path), None)
        if watching is not None:
            watching.cancel()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
