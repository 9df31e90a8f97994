"""A broker for tests, in a separate thread, on a free port, with a temporary directory."""

import asyncio
import shutil
import tempfile
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from barnabas.client.settings import ClientSettings
from barnabas.testing.calls import TIMEOUT, checked_timeout, in_thread, warn_on_running_loop
from barnabas.testing.configs import Configs, checked_config, texts
from barnabas.testing.helpers import AsyncHelpers, Helpers, HelperWork
from barnabas.testing.security import (
    ADMIN,
    CERTIFICATES,
    PASSWORDS,
    Security,
    security_of,
    settings_of,
)

if TYPE_CHECKING:
    from barnabas.broker.app import Broker as App
    from barnabas.broker.store.opening import OpenedStore
    from barnabas.security.acl.rules import AclBinding

STOP_TIMEOUT = 30.0
CLEAN_UP_TIMEOUT = 5.0
"""Seconds that a start beyond its limit may take to undo what it began."""

DEFAULTS = {
    # A group rebalances without waiting for more members, and few partitions load fast.
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "5",
    "log.segment.bytes": str(16 * 1024 * 1024),
}


class BrokerThread(HelperWork):
    """A broker on an event loop in a separate thread."""

    def __init__(
        self,
        configs: Configs | None = None,
        *,
        port: int = 0,
        data_dir: str | Path | None = None,
        secure: bool = False,
        users: Iterable[str] | Mapping[str, str] = (),
        rules: "Iterable[AclBinding]" = (),
        start_timeout: float = TIMEOUT,
    ) -> None:
        self._configs = {**DEFAULTS, **texts(configs)}
        self._start_timeout = checked_timeout(start_timeout)
        self._port = port
        self._data_dir = data_dir
        self._security = security_of(secure, users, rules)
        self._ports: Mapping[str, int] = {}
        self._thread: threading.Thread | None = None
        self._stop: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        self._failed = False
        self.bootstrap_servers = ""
        """The value of `bootstrap.servers` for clients, once the broker runs."""

    def _begin(self) -> None:
        if self._thread is not None:
            raise RuntimeError("this broker is running")
        started: Future[str] = Future()
        self._thread = threading.Thread(
            target=self._run, args=(started,), name="barnabas-broker", daemon=True
        )
        self._thread.start()
        try:
            self.bootstrap_servers = started.result(self._start_timeout)
        except BaseException as error:
            late = started.cancel()
            self._join(CLEAN_UP_TIMEOUT if late else STOP_TIMEOUT, must_end=not late)
            if late and isinstance(error, TimeoutError):
                seconds = self._start_timeout
                raise TimeoutError(f"the broker did not start within {seconds:g} s") from None
            raise

    def _end(self) -> None:
        if self._thread is None:
            return
        if self._stop is not None:
            loop, event = self._stop
            # A broker that failed has closed its loop.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(event.set)
        self._join()
        if self._failed:
            raise RuntimeError("the broker has failed; its log says why")

    def settings(self, user: str = ADMIN) -> ClientSettings:
        """Return the settings of a client with the password of a user, for each library.

        Raises ValueError if the broker has no such user.
        """
        return settings_of(self._security, self.bootstrap_servers, user)

    def certificate_settings(self, user: str) -> ClientSettings:
        """Return the settings of a client with a certificate of a user, who needs no password.

        Raises ValueError without `secure`.
        """
        if self._security is None:
            raise ValueError("only a broker with secure=True takes certificates")
        return self._security.certificate(f"127.0.0.1:{self._ports[CERTIFICATES]}", user)

    def _loop_of_brokers(self) -> asyncio.AbstractEventLoop:
        if self._stop is None:
            raise RuntimeError("this broker does not run")
        return self._stop[0]

    def _reachable_servers(self) -> str:
        return self.bootstrap_servers

    def _join(self, timeout: float = STOP_TIMEOUT, *, must_end: bool = True) -> None:
        assert self._thread is not None
        self._thread.join(timeout)
        if must_end and self._thread.is_alive():
            raise RuntimeError(f"the broker did not stop within {timeout:g} s")
        self._thread = None
        self._stop = None

    def _run(self, started: "Future[str]") -> None:
        """Run the broker until its stop. A start that was cancelled, because it was late, is undone
        here as soon as possible."""
        directory = self._data_dir or tempfile.mkdtemp(prefix="barnabas-")
        try:
            import uvloop

            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve(Path(directory), started))
        except BaseException as error:
            if started.done() and not started.cancelled():
                raise
            # A late start may be cancelled at this moment: its caller has an error already.
            with suppress(InvalidStateError):
                started.set_exception(error)
        finally:
            if self._data_dir is None:
                shutil.rmtree(directory, ignore_errors=True)

    async def _serve(self, directory: Path, started: "Future[str]") -> None:
        app = self._build(directory)
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        starting = loop.create_task(app.start())

        def cancel_late_start(started: "Future[str]") -> None:
            # A start that has failed has closed its loop.
            with suppress(RuntimeError):
                if started.cancelled():
                    loop.call_soon_threadsafe(starting.cancel)

        started.add_done_callback(cancel_late_start)
        await starting
        try:
            if not started.set_running_or_notify_cancel():
                return
            self._stop = (loop, stop)
            self._ports = app.ports
            started.set_result(app.bootstrap_servers)
            waits = [loop.create_task(event.wait()) for event in (stop, app.failed)]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
            self._failed = app.failed.is_set()
        finally:
            await app.stop()

    def _build(self, directory: Path) -> "App":
        # Imported here, so that the plugin costs nothing in a run that uses no broker.
        from barnabas.broker.app import Broker as App
        from barnabas.broker.platform import system_platform

        properties = {
            "log.dirs": str(directory),
            "listeners": f"PLAINTEXT://127.0.0.1:{self._port}",
        }
        security = self._security
        if security is not None:
            security.write(directory / "secure")
            properties |= security.properties({}) | {
                "listeners": f"{PASSWORDS}://127.0.0.1:{self._port},{CERTIFICATES}://127.0.0.1:0",
                "inter.broker.listener.name": PASSWORDS,
            }
        config = checked_config({**properties, **self._configs})
        platform = system_platform(config)
        if security is not None:
            platform = replace(platform, open_store=partial(_open_store, security))
        return App(config, platform=platform)


class Broker(BrokerThread, Helpers):
    """A running broker: `with Broker() as broker: ... broker.bootstrap_servers`.

    `configs` are Kafka's keys and win over `DEFAULTS`. With `data_dir` the data stays, and a later
    broker finds it; without, the broker's temporary directory is removed when it stops. The event
    loop has a separate thread, so blocking clients in the test's thread are safe.

    With `secure` clients need TLS, and a password or a certificate; `users` and `rules` imply it.
    The user `admin` may do everything. A start that takes longer than `start_timeout` seconds
    raises TimeoutError.

    `async with Broker() as broker` gives an `AsyncBroker`.
    """

    def start(self) -> "Broker":
        """Start the broker and return once it answers. Raises the error that stopped the start."""
        return self._start_blocking(2)

    def stop(self) -> None:
        """Shut the broker down, and wait until its thread, sockets and files are gone.

        Raises RuntimeError if the broker had failed before: the test must not overlook it.
        """
        self._end()

    @property
    def aio(self) -> "AsyncBroker":
        """The same broker, whose methods that wait are awaited."""
        return AsyncBroker(self)

    def _start_blocking(self, stacklevel: int) -> "Broker":
        warn_on_running_loop("Broker", stacklevel + 1)
        self._begin()
        return self

    def __enter__(self) -> "Broker":
        return self._start_blocking(2)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    async def __aenter__(self) -> "AsyncBroker":
        return await self.aio.start()

    async def __aexit__(self, *error: object) -> None:
        await self.aio.stop()


class AsyncBroker(BrokerThread, AsyncHelpers):
    """A broker for tests with an event loop: each method that waits is awaited.

    `async with Broker() as broker` gives one, and so does `Broker.aio`.
    """

    def __init__(self, broker: Broker) -> None:
        # Both objects are one broker: what one changes, the other sees.
        self.__dict__ = broker.__dict__

    async def start(self) -> "AsyncBroker":
        """Start the broker and return once it answers. Raises the error that stopped the start."""
        await in_thread(self._begin, self._end)
        return self

    async def stop(self) -> None:
        """Shut the broker down, and wait until its thread, sockets and files are gone.

        Raises RuntimeError if the broker had failed before: the test must not overlook it.
        """
        await asyncio.to_thread(self._end)


async def _open_store(security: Security, *arguments: Any) -> "OpenedStore":
    """Open the metadata store, and write users and rules into it."""
    from barnabas.broker.store.opening import open_metadata

    opened = await open_metadata(*arguments)
    await security.store(opened.session)
    return opened
