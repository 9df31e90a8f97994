"""The bridge from kazoo's thread: all callbacks run on the event loop.

kazoo has one thread for the connection. It calls back in the order in which it reads from the
socket, so an event always comes before a response that ZooKeeper sent after it.
"""

import asyncio
import logging
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler

from barnabas.broker.observability.logging import get_logger

_log = get_logger(__name__)


class LoopQueue:
    """A replacement for a queue that a worker thread empties."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def put(self, call: Callable[[], object]) -> None:
        # The loop is closed, so no task waits for the callback.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call)


class LoopHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """A kazoo handler with callbacks on an event loop and TLS with the broker's own context."""

    running = True

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        tls: ssl.SSLContext | None,
        on_end: Callable[[], object],
        connect_timeout: float,
    ) -> None:
        """`on_end` is called when kazoo's thread has ended. `connect_timeout` is the maximum of
        seconds for one attempt to connect."""
        super().__init__()
        self.callback_queue = self.completion_queue = LoopQueue(loop)
        self._tls = tls
        self._on_end = on_end
        self._connect_timeout = connect_timeout
        self.refusal: OSError | None = None
        """The error of the last attempt to connect."""

    def start(self) -> None:
        """Do nothing: there are no workers."""

    def stop(self) -> None:
        """Do nothing: later callbacks have no effect."""

    def spawn(self, func: Callable[..., object], *args: Any, **kwargs: Any) -> threading.Thread:
        def run() -> None:
            try:
                func(*args, **kwargs)
            finally:
                self.completion_queue.put(self._on_end)

        thread = threading.Thread(target=run, name="zookeeper", daemon=True)
        thread.start()
        return thread

    def dispatch_callback(self, callback: Any) -> None:
        self.callback_queue.put(partial(callback.func, *callback.args))

    def create_connection(
        self, address: tuple[str, int], hostname: str, timeout: float, **_kazoos: Any
    ) -> socket.socket:
        # kazoo's own context would trust the system's authorities in addition to the configured
        # ones.
        try:
            return self._connect(address, hostname, min(timeout, self._connect_timeout))
        except OSError as error:
            self.refusal = error
            raise

    def _connect(self, address: tuple[str, int], hostname: str, timeout: float) -> socket.socket:
        connection = socket.create_connection(address, timeout)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_hostname=hostname)
        except BaseException:
            connection.close()
            raise
        return connection

    def select(
        self, readers: list[Any], writers: list[Any], errors: list[Any], timeout: float | None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        # TLS may have read more from the socket than was requested.
        decrypted = [each for each in readers if isinstance(each, ssl.SSLSocket) and each.pending()]
        waiting = super().select(readers, writers, errors, 0 if decrypted else timeout)
        readable, writable, broken = waiting
        return [*decrypted, *(each for each in readable if each not in decrypted)], writable, broken


class KazooLog(logging.Logger):
    """The logger of kazoo's messages about its connection.

    It drops messages below INFO: kazoo's DEBUG shows every request, credentials included.
    """

    def __init__(self) -> None:
        super().__init__("kazoo", logging.INFO)

    def setLevel(self, _level: int | str) -> None:
        self.level = logging.INFO

    def handle(self, record: logging.LogRecord) -> None:
        say = _log.warning if record.levelno >= logging.WARNING else _log.debug
        say("zookeeper", said=record.getMessage(), exc_info=record.exc_info)
