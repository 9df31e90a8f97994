"""One session with ZooKeeper: a kazoo client that never begins another.

kazoo answers the end of a session with a new one, silently and without our ephemeral nodes, and
would send in it what was meant for the old one. Here a client lives as long as its session: the
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

from barnabas.broker.metadata.store import (
    NotAllowed,
    SessionExpired,
    StoreError,
    StoreUnavailable,
)
from barnabas.broker.metadata.zookeeper import wire
from barnabas.broker.metadata.zookeeper.kazoo_thread import KazooLog, LoopHandler
from barnabas.broker.metadata.zookeeper.settings import Settings

_RECONNECT = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": 1.0, "max_jitter": 0.2}
_HEARTBEATS_PER_SESSION = 9
_ATTEMPTS_PER_SESSION = 3
"""A server that takes a connection and says nothing must not cost the session: kazoo would wait for
it as long as that lives."""
_CLOSING_SECONDS = 2.0
"""How long a session that is closed may wait for ZooKeeper to say so."""


class SessionKey(NamedTuple):
    """What ZooKeeper knows a session by; with it another process can take the session over."""

    session_id: int
    password: bytes


class _Answer:
    """Where kazoo's thread leaves an answer; it comes out on the loop."""

    def __init__(self, handler: LoopHandler, deliver: Callable[[Any, Exception | None], None]):
        self._handler = handler
        self._deliver = deliver

    def set(self, value: Any = None) -> None:
        self._handler.completion_queue.put(partial(self._deliver, value, None))

    def set_exception(self, error: Exception) -> None:
        self._handler.completion_queue.put(partial(self._deliver, None, error))


def _nobody(_value: Any, _error: Exception | None) -> None:
    """Waits for the answer to a farewell."""


class ZooKeeperSession:
    """Begun by `begin`. Every method and every call back is on the event loop."""

    def __init__(
        self,
        settings: Settings,
        *,
        on_connected: Callable[[], None],
        on_over: Callable[[], None],
        resume: SessionKey | None = None,
    ) -> None:
        """`on_connected` is called after each connection but the first: watches have to be set
        anew. `on_over` is called once if ZooKeeper ends the session. `resume` takes an existing
        session over."""
        self._loop = asyncio.get_running_loop()
        self._on_connected = on_connected
        self._on_over = on_over
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
        """As ZooKeeper has granted it, in seconds."""
        self.over = False
        """Nothing can be done in this session any more."""

    @property
    def connected(self) -> bool:
        return self._connected.is_set()

    def silent_for(self) -> float:
        """Seconds since the newest request that was answered was made."""
        return self._loop.time() - self._answered

    async def begin(self) -> None:
        """Raises StoreUnavailable, NotAllowed; SessionExpired where one to resume has ended."""
        self._client.start_async()
        try:
            await self.ready(self._connection_timeout)
        except BaseException:
            await self.close()
            raise
        self._answered = self._loop.time()
        self._beat()

    async def ready(self, patience: float) -> None:
        """Returns while connected; raises SessionExpired, or StoreUnavailable after so long."""
        if self._connected.is_set() and not self.over:
            return
        with suppress(TimeoutError):
            await asyncio.wait_for(self._connected.wait(), patience)
        if self._auth_failed:
            raise NotAllowed("ZooKeeper does not take these credentials")
        if self.over:
            raise SessionExpired
        if not self._connected.is_set():
            reason = self._handler.refusal
            raise StoreUnavailable(
                f"ZooKeeper cannot be reached at {', '.join(self._servers)}"
                + (f": {reason}" if reason else "")
            )

    def call(self, request: Any, path: str) -> asyncio.Future[Any]:
        """Send a request; requests are carried out in the order in which they were made.

        The answer raises the port's errors: StoreUnavailable where it was lost with the
        connection, SessionExpired.
        """
        answer: asyncio.Future[Any] = self._loop.create_future()
        if self.over:
            answer.set_exception(SessionExpired(path))
            return answer
        self._waiting.add(answer)
        deliver = partial(self._deliver, answer, path, self._loop.time())
        self._client._call(request, _Answer(self._handler, deliver))
        return answer

    async def close(self) -> None:
        """End the session, where ZooKeeper can be reached; otherwise it ends by itself."""
        if not self.over:
            self._end()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._gone.wait(), _CLOSING_SECONDS)

    # -- what kazoo says ---------------------------------------------------------------------------

    def _note_handshake(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        """In kazoo's thread: what is agreed on when a connection is made."""
        if not isinstance(request, zk.Connect):
            return self._invoke(timeout, request, xid)
        answer = self._invoke(min(timeout, self._patience), request, xid)
        if answer[0].time_out > 0:
            self.timeout = answer[0].time_out / 1000
        return answer

    def _state_changed(self, state: str) -> None:
        """In kazoo's thread, before it does anything else."""
        if state == KazooState.LOST:
            # Or it would connect again, for a session that nobody has asked for.
            self._auth_failed = self._client.client_state == KeeperState.AUTH_FAILED
            self._client._stopped.set()
        key = self._client.client_id
        self._handler.callback_queue.put(partial(self._on_state, state, key))

    def _on_state(self, state: str, key: tuple[int, bytes] | None) -> None:
        if self.over:
            return
        if state == KazooState.CONNECTED and key is not None:
            first = not self.key.session_id
            if not first and key[0] != self.key.session_id:
                # Not asked for, and nothing of ours is in it.
                self._lose()
                return
            self.key = SessionKey(*key)
            self._connected.set()
            if not first:
                self._on_connected()
        elif state == KazooState.SUSPENDED:
            self._connected.clear()
            self._fail_waiting(StoreUnavailable())
        elif state == KazooState.LOST:
            self._lose()

    def _lose(self) -> None:
        self._end()
        self._on_over()

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

    # -- the end -----------------------------------------------------------------------------------

    def _end(self) -> None:
        """Nothing that is asked or comes from now on belongs to a session."""
        self.over = True
        self._client._stopped.set()
        self._client._call(zk.CloseInstance, _Answer(self._handler, _nobody))
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

    # -- silence -----------------------------------------------------------------------------------

    def _beat(self) -> None:
        """Ask for something now and then, to know how long ZooKeeper has been silent."""
        if self.over:
            return
        if not self._beating and self.connected:
            self._beating = True
            self.call(zk.Exists("/", None), "/").add_done_callback(self._beaten)
        self._heart = self._loop.call_later(self.timeout / _HEARTBEATS_PER_SESSION, self._beat)

    def _beaten(self, answer: asyncio.Future[Any]) -> None:
        self._beating = False
        if not answer.cancelled():
            answer.exception()
