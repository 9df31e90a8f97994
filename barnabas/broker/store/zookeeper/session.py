"""One session with ZooKeeper: a kazoo client that never opens another.

After the end of a session kazoo silently opens a new one, without our ephemeral nodes, and would
send it requests that were made in the old one. Here a client lives as long as its session: the
thread that learns of the end stops the client before it can connect again.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from kazoo.client import KazooClient
from kazoo.protocol import serialization as zk
from kazoo.protocol.states import KazooState, KeeperState

from barnabas.broker.store.metadata_store import (
    NotAllowed,
    SessionExpired,
    StoreError,
    StoreUnavailable,
)
from barnabas.broker.store.zookeeper import wire
from barnabas.broker.store.zookeeper.kazoo_thread import KazooLog, LoopHandler
from barnabas.broker.store.zookeeper.settings import Settings

_RECONNECT = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": 1.0, "max_jitter": 0.2}
_HEARTBEATS_PER_SESSION = 9
_ATTEMPTS_PER_SESSION = 3
"""Attempts to connect per session timeout: kazoo would otherwise wait the whole timeout for a
server that accepts a connection and does not respond."""
_CLOSING_SECONDS = 2.0
"""Seconds to wait for ZooKeeper's response to the end of a session."""


class SessionKey(NamedTuple):
    """The id and password of a session, with which another process can resume it."""

    session_id: int
    password: bytes


class _Answer:
    """The place for a response from kazoo's thread; it is delivered on the loop."""

    def __init__(self, handler: LoopHandler, deliver: Callable[[Any, Exception | None], None]):
        self._handler = handler
        self._deliver = deliver

    def set(self, value: Any = None) -> None:
        self._handler.completion_queue.put(partial(self._deliver, value, None))

    def set_exception(self, error: Exception) -> None:
        self._handler.completion_queue.put(partial(self._deliver, None, error))


def _ignore(_value: Any, _error: Exception | None) -> None:
    """Ignore the response to the close request."""


class ZooKeeperSession:
    """A session, opened by `begin`. All methods and callbacks run on the event loop."""

    def __init__(
        self,
        settings: Settings,
        *,
        on_connected: Callable[[], None],
        on_end: Callable[[], None],
        on_disconnected: Callable[[], None] = lambda: None,
        resume: SessionKey | None = None,
    ) -> None:
        """`on_connected` is called after each connection but the first: watches have to be set
        again. `on_end` is called once if ZooKeeper ends the session, and `on_disconnected` at each
        loss of the connection. `resume` is an existing session to take over."""
        self._loop = asyncio.get_running_loop()
        self._on_connected = on_connected
        self._on_end = on_end
        self._on_disconnected = on_disconnected
        self._patience = settings.session_timeout / _ATTEMPTS_PER_SESSION
        self._handler = LoopHandler(self._loop, settings.tls, self._thread_ended, self._patience)
        credentials = settings.credentials
        self._client = KazooClient(
            ",".join(settings.servers),
            timeout=settings.session_timeout,
            handler=self._handler,
            client_id=resume,
            auth_data=[] if credentials is None else [("digest", credentials)],
            connection_retry=_RECONNECT,
            logger=KazooLog(),
        )
        self._client.add_listener(self._state_changed)
        self._invoke = self._client._connection._invoke
        self._client._connection._invoke = self._note_handshake
        self._servers = settings.servers
        self._connection_timeout = settings.connection_timeout
        self._connected = asyncio.Event()
        self._waiting: set[asyncio.Future[Any]] = set()
        self._heart: asyncio.TimerHandle | None = None
        self._beating = False
        self._gone = asyncio.Event()
        self._auth_failed = False
        self._answered = self._loop.time()
        self.key = SessionKey(0, b"")
        self.timeout = settings.session_timeout
        """Session timeout in seconds, as ZooKeeper granted it."""
        self.ended = False
        """Whether the session has ended."""

    @property
    def connected(self) -> bool:
        return self._connected.is_set()

    @property
    def newest_seen(self) -> int:
        """The newest transaction (zxid) that ZooKeeper has told of."""
        return int(self._client.last_zxid)

    def silent_for(self) -> float:
        """Return the seconds since the newest answered request was sent."""
        return self._loop.time() - self._answered

    async def begin(self) -> None:
        """Open the session. Raises StoreUnavailable, NotAllowed; SessionExpired if the one to
        resume has ended."""
        self._client.start_async()
        try:
            await self.ready(self._connection_timeout)
        except BaseException:
            await self.close()
            raise
        self._answered = self._loop.time()
        self._send_heartbeat()

    async def ready(self, timeout: float) -> None:
        """Return once connected; raise SessionExpired, or StoreUnavailable after the timeout."""
        if self._connected.is_set() and not self.ended:
            return
        with suppress(TimeoutError):
            await asyncio.wait_for(self._connected.wait(), timeout)
        if self._auth_failed:
            raise NotAllowed("ZooKeeper does not take these credentials")
        if self.ended:
            raise SessionExpired
        if not self._connected.is_set():
            reason = self._handler.refusal
            raise StoreUnavailable(
                f"ZooKeeper cannot be reached at {', '.join(self._servers)}"
                + (f": {reason}" if reason else "")
            )

    def call(self, request: Any, path: str) -> asyncio.Future[Any]:
        """Send a request; ZooKeeper runs requests in the order of the calls.

        The response raises the port's errors: StoreUnavailable if it was lost with the connection,
        SessionExpired.
        """
        answer: asyncio.Future[Any] = self._loop.create_future()
        if self.ended:
            answer.set_exception(SessionExpired(path))
            return answer
        self._waiting.add(answer)
        deliver = partial(self._deliver, answer, path, self._loop.time())
        self._client._call(request, _Answer(self._handler, deliver))
        return answer

    async def close(self) -> None:
        """End the session if ZooKeeper is reachable; otherwise it ends after its timeout."""
        if not self.ended:
            self._end()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._gone.wait(), _CLOSING_SECONDS)

    # -- callbacks of kazoo -----------------------------------------------------------------------

    def _note_handshake(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        """Record the results of a handshake. Runs in kazoo's thread."""
        if not isinstance(request, zk.Connect):
            return self._invoke(timeout, request, xid)
        answer = self._invoke(min(timeout, self._patience), request, xid)
        if answer[0].time_out > 0:
            self.timeout = answer[0].time_out / 1000
        return answer

    def _state_changed(self, state: str) -> None:
        """Handle a state change. Runs in kazoo's thread, before kazoo acts on it."""
        if state == KazooState.LOST:
            # Otherwise kazoo would open a session that its owner has not requested.
            self._auth_failed = self._client.client_state == KeeperState.AUTH_FAILED
            self._client._stopped.set()
        key = self._client.client_id
        self._handler.callback_queue.put(partial(self._on_state, state, key))

    def _on_state(self, state: str, key: tuple[int, bytes] | None) -> None:
        if self.ended:
            return
        if state == KazooState.CONNECTED and key is not None:
            first = not self.key.session_id
            if not first and key[0] != self.key.session_id:
                # kazoo opened this session on its own, and it has none of our nodes.
                self._lose()
                return
            self.key = SessionKey(*key)
            self._connected.set()
            if not first:
                self._on_connected()
        elif state == KazooState.SUSPENDED:
            self._connected.clear()
            self._fail_waiting(StoreUnavailable())
            self._on_disconnected()
        elif state == KazooState.LOST:
            self._lose()

    def _lose(self) -> None:
        self._end()
        self._on_end()

    def _deliver(
        self,
        answer: asyncio.Future[Any],
        path: str,
        sent: float,
        value: Any,
        error: Exception | None,
    ) -> None:
        self._waiting.discard(answer)
        failure = None if error is None else wire.error_of(error, path)
        if not isinstance(failure, StoreUnavailable | SessionExpired):
            self._answered = max(self._answered, sent)
        if answer.done():
            return
        if failure is None:
            answer.set_result(value)
        else:
            answer.set_exception(failure)

    # -- end of the session -----------------------------------------------------------------------

    def _end(self) -> None:
        """Fail all later requests and responses: the session has ended."""
        self.ended = True
        self._client._stopped.set()
        self._client._call(zk.CloseInstance, _Answer(self._handler, _ignore))
        self._connected.set()
        if self._heart is not None:
            self._heart.cancel()
        self._fail_waiting(SessionExpired())

    def _fail_waiting(self, error: StoreError) -> None:
        for answer in self._waiting:
            if not answer.done():
                answer.set_exception(error)
        self._waiting.clear()

    def _thread_ended(self) -> None:
        self._client.close()
        self._gone.set()

    # -- silence of ZooKeeper ---------------------------------------------------------------------

    def _send_heartbeat(self) -> None:
        """Send a request at intervals, to measure how long ZooKeeper has been silent."""
        if self.ended:
            return
        if not self._beating and self.connected:
            self._beating = True
            self.call(zk.Exists("/", None), "/").add_done_callback(self._heartbeat_answered)
        self._heart = self._loop.call_later(
            self.timeout / _HEARTBEATS_PER_SESSION, self._send_heartbeat
        )

    def _heartbeat_answered(self, answer: asyncio.Future[Any]) -> None:
        self._beating = False
        if not answer.cancelled():
            answer.exception()
