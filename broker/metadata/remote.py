"""A session with a store that another process of this host serves on a Unix socket."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from typing import Any, Final, cast

from barnabas.broker.metadata import served_format
from barnabas.broker.metadata.served_format import FormatError
from barnabas.broker.metadata.socket_path import socket_address
from barnabas.broker.metadata.store import (
    ByTransaction,
    Op,
    OpResult,
    SessionExpired,
    Stat,
    StoreUnavailable,
    Watch,
)
from barnabas.broker.observability.logging import get_logger
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.frame import FrameReader

RETRY_SECONDS: Final = 0.1
_log = get_logger(__name__)


class RemoteStore(ByTransaction):
    """See `MetadataStore`. Built by `connect_store`.

    A connection that is lost, or that nothing came over for two thirds of the session's timeout, is
    replaced; until then every call raises StoreUnavailable.
    """

    def __init__(self, path: str, timeout: float) -> None:
        self._path = path
        self._timeout = timeout
        self._id = 0
        self._link: _Link | None = None
        self._attaching = asyncio.Lock()
        self._watches: dict[tuple[str, str], list[_Watching]] = {}
        self._on_expired: list[Callable[[], None]] = []
        self._expired = True
        self._closed = False
        self._loop = asyncio.get_running_loop()
        self._answered = self._loop.time()
        self._lost = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None

    # -- the session -----------------------------------------------------------------------------

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
                self._keeper = self._loop.create_task(self._keep())

    async def close(self) -> None:
        if self._closed:
            return
        with suppress(StoreUnavailable, SessionExpired, TimeoutError):
            await asyncio.wait_for(self._ask({"do": "close"}), self._timeout / 3)
        self._closed = True
        if self._keeper is not None:
            self._keeper.cancel()
        if self._link is not None:
            self._link.abort()

    async def end_earlier(self, session_id: int) -> bool:
        """End a session whose client has gone; False where it is connected."""
        return bool(await self._ask({"do": "end", "session": session_id}))

    # -- nodes -----------------------------------------------------------------------------------

    async def get(self, path: str) -> tuple[bytes, Stat]:
        text, stat = await self._ask({"do": "get", "path": path})
        return served_format.text_data(text), Stat(*stat)

    async def exists(self, path: str) -> Stat | None:
        stat = await self._ask({"do": "exists", "path": path})
        return None if stat is None else Stat(*stat)

    async def children(self, path: str) -> list[str]:
        return cast("list[str]", await self._ask({"do": "children", "path": path}))

    async def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        results = await self._ask({"do": "multi", "ops": served_format.ops_to_json(ops)})
        return served_format.results_from_json(ops, results)

    # -- watches ---------------------------------------------------------------------------------

    def watch_data(self, path: str, watch: Watch) -> "_Watching":
        return self._watch("data", path, watch)

    def watch_children(self, path: str, watch: Watch) -> "_Watching":
        return self._watch("children", path, watch)

    def _watch(self, kind: str, path: str, watch: Watch) -> "_Watching":
        watching = _Watching(self, kind, path, watch)
        watchers = self._watches.setdefault((kind, path), [])
        watchers.append(watching)
        if len(watchers) == 1 and self._link is not None:
            self._link.say({"do": "watch", "kind": kind, "path": path})
        return watching

    def cancel(self, watching: "_Watching") -> None:
        """Tell a watch no more."""
        place = watching.kind, watching.path
        self._watches[place].remove(watching)
        if not self._watches[place]:
            del self._watches[place]
            if self._link is not None:
                self._link.say({"do": "unwatch", "kind": watching.kind, "path": watching.path})

    # -- the connection's side -------------------------------------------------------------------

    def told(self, message: dict[str, Any]) -> None:
        """What the store says by itself."""
        if message.get("expired"):
            self._expire()
        else:
            self._call(message["told"], message["at"])

    def answered(self, asked: float) -> None:
        """The store has answered what was asked then."""
        self._answered = max(self._answered, asked)

    def lost(self, link: "_Link") -> None:
        """A connection is gone."""
        if link is self._link:
            self._link = None
            self._lost.set()

    def _call(self, kind: str, path: str) -> None:
        for watching in self._watches.get((kind, path), ()):
            self._loop.call_soon(watching.call)

    def _expire(self) -> None:
        if not (self._expired or self._closed):
            self._expired = True
            for callback in list(self._on_expired):
                callback()

    async def _ask(self, message: dict[str, Any]) -> Any:
        if self._closed or self._expired:
            raise SessionExpired
        if self._link is None:
            raise StoreUnavailable
        return await self._link.ask(message)

    async def _attach(self, session_id: int) -> None:
        """Get a connection for this session, 0 for a new one. SessionExpired, StoreUnavailable."""
        async with self._attaching:
            if session_id == 0 and not self._expired:
                return
            link = await self._open()
            attach = {"do": "attach", "session": session_id, "timeout": self._timeout}
            try:
                # Not `wait_for`: before Python 3.12 it forgets that it was cancelled where the
                # answer has just come, and a broker that is told to stop starts on.
                async with asyncio.timeout(self._timeout):
                    self._id, self._timeout = await link.ask(attach)
            except BaseException as error:
                link.abort()
                if isinstance(error, TimeoutError):
                    raise StoreUnavailable from error
                raise
            if self._closed:
                link.abort()
                raise SessionExpired
            self._link, self._expired = link, False
            self._lost.clear()
            # Anything may have changed while nobody listened.
            for kind, path in self._watches:
                link.say({"do": "watch", "kind": kind, "path": path})
                self._call(kind, path)

    async def _open(self) -> "_Link":
        try:
            with socket_address(self._path) as address:
                _, link = await self._loop.create_unix_connection(lambda: _Link(self), address)
        except OSError as error:
            reason = error.strerror or error
            raise StoreUnavailable(f"no metadata store at {self._path}: {reason}") from error
        return link

    async def _keep(self) -> None:
        """Keep the session alive, until it is closed."""
        while not self._closed:
            if self._link is not None:
                await self._stay_in_touch(self._link)
            elif self._expired:
                # Until its owner asks for another one.
                await asyncio.sleep(RETRY_SECONDS)
            else:
                await self._come_back()

    async def _stay_in_touch(self, link: "_Link") -> None:
        """Ask something three times within a timeout; leave a connection that answers nothing."""
        link.say({"do": "ping"})
        with suppress(TimeoutError):
            await asyncio.wait_for(self._lost.wait(), self._timeout / 3)
        if link.waiting_for() > self._timeout * 2 / 3:
            _log.warning("metadata store is silent", session=self._id, at=self._path)
            link.abort()

    async def _come_back(self) -> None:
        try:
            await self._attach(self._id)
        except SessionExpired:
            self._expire()
        except StoreUnavailable:
            await asyncio.sleep(RETRY_SECONDS)


async def connect_store(path: str, timeout: float) -> RemoteStore:
    """Begin a session with the store that is served at `path`.

    It ends when the store heard nothing for `timeout` seconds, which the store may raise or lower.
    Raises StoreUnavailable.
    """
    store = RemoteStore(path, timeout)
    await store.renew()
    return store


class _Watching:
    """A watch that is set."""

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


class _Link(asyncio.BufferedProtocol):
    """One connection to the store."""

    def __init__(self, owner: RemoteStore) -> None:
        self._owner = owner
        self._reader = FrameReader(served_format.LARGEST_FRAME)
        self._loop = asyncio.get_running_loop()
        self._numbers = count(1)
        self._asked: dict[int, tuple[float, asyncio.Future[Any] | None]] = {}
        self._transport: Any = None

    def ask(self, message: dict[str, Any]) -> "asyncio.Future[Any]":
        """Send a request; the future has its answer, or StoreUnavailable when there is none."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self._send(message, future)
        return future

    def say(self, message: dict[str, Any]) -> None:
        """Send a request whose answer says only that the store is there."""
        self._send(message, None)

    def waiting_for(self) -> float:
        """Seconds since the oldest request without an answer."""
        oldest = next(iter(self._asked.values()), None)
        return 0.0 if oldest is None else self._loop.time() - oldest[0]

    def abort(self) -> None:
        self._transport.abort()

    def _send(self, message: dict[str, Any], future: "asyncio.Future[Any] | None") -> None:
        number = next(self._numbers)
        frame = served_format.encode({"id": number, **message})
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
                self._received(served_format.decode(frame))
        except (ProtocolError, FormatError, KeyError) as error:
            _log.error("metadata store spoke nonsense", error=str(error))
            self.abort()

    def _received(self, message: dict[str, Any]) -> None:
        number = message.get("id")
        if number is None:
            self._owner.told(message)
            return
        asked, future = self._asked.pop(number)
        self._owner.answered(asked)
        if future is None or future.done():
            return
        if "error" in message:
            future.set_exception(served_format.error_from_json(message))
        else:
            future.set_result(message["is"])
