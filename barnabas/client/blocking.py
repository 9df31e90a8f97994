"""A blocking front of the asyncio client, for code without an event loop: Spark's workers.

    client = ClientLoop.of_process()
    cluster = client.cluster("localhost:9092")
    info = client.run(cluster.topic("orders"), timeout=10.0)

All threads of a process share one event loop, which runs in a separate thread.
"""

import asyncio
import atexit
import os
import threading
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from contextlib import suppress
from types import MappingProxyType
from typing import Any, TypeVar

from barnabas.client.cluster import Cluster
from barnabas.client.connection import Connect

T = TypeVar("T")

_ClusterKey = tuple[str, str, float, float | None, frozenset[tuple[str, str]], bool]
CLOSE_TIMEOUT = 5.0
"""Seconds until open connections are dropped when the loop is closed."""


class ClientLoop:
    """The event loop of the clients of one process; see `ClientLoop.of_process`."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self.is_closed = False
        self._clusters: dict[_ClusterKey, Cluster] = {}
        self._opening: dict[_ClusterKey, asyncio.Lock] = {}
        self._thread = threading.Thread(target=self._serve, name="barnabas-client", daemon=True)
        self._thread.start()

    @staticmethod
    def of_process() -> "ClientLoop":
        """Return the loop of this process, which begins with the first call.

        A child of a fork has no thread of its parent, and so gets another loop.
        """
        return _loops.own()

    def run(self, coroutine: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Run a coroutine and return its result; raises TimeoutError after `timeout` s.

        When the call raises TimeoutError, the coroutine has been cancelled and has ended. It is
        cancelled too if an exception such as KeyboardInterrupt ends the wait.
        """
        future = self.submit(_within(coroutine, timeout) if timeout is not None else coroutine)
        try:
            return future.result()
        finally:
            future.cancel()

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
        """Start a coroutine; the future returns its result, and its `cancel` cancels it.

        Raises RuntimeError in a coroutine of this loop, in a forked child and after `close`.
        """
        reason = self._reason_to_refuse()
        if reason is not None:
            coroutine.close()
            raise RuntimeError(reason)
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def cluster(
        self,
        bootstrap_servers: str,
        *,
        client_id: str = "barnabas",
        timeout: float = 30.0,
        request_timeout: float | None = None,
        security: Mapping[str, str] = MappingProxyType({}),
        check_cluster: bool = True,
    ) -> Cluster:
        """Return the cluster of these arguments, connected at the first call.

        Its methods are coroutines for `run` and `submit`. The loop closes it. `security` has the
        keys of `barnabas/client/security.py`; raises ConfigError for keys that cannot be used.
        """
        keys = frozenset(security.items())
        key = bootstrap_servers, client_id, timeout, request_timeout, keys, check_cluster
        known = self._clusters.get(key)
        if known is not None and not known.is_replaced and self._reason_to_refuse() is None:
            # Every task of a worker asks: no way through the loop's thread.
            return known
        return self.run(self._open(key))

    def close(self) -> None:
        """Cancel what still runs, close the clusters and end the thread."""
        if self.is_closed or self._pid != os.getpid():
            return
        self.is_closed = True
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(2 * CLOSE_TIMEOUT)

    def _reason_to_refuse(self) -> str | None:
        if self._pid != os.getpid():
            return f"the loop of process {self._pid} does not run here: use ClientLoop.of_process()"
        if self.is_closed:
            return "the client loop is closed"
        if threading.current_thread() is self._thread:
            return "a coroutine of the client loop must await, not block"
        return None

    async def _open(self, key: _ClusterKey) -> Cluster:
        async with self._opening.setdefault(key, asyncio.Lock()):
            known = self._clusters.get(key)
            if known is not None and known.is_replaced:
                # What failed has said so; what begins now, begins with the other cluster.
                del self._clusters[key]
                await known.close()
            if key not in self._clusters:
                bootstrap_servers, client_id, timeout, request_timeout, keys, check_cluster = key
                cluster = Cluster(
                    bootstrap_servers,
                    client_id=client_id,
                    timeout=timeout,
                    request_timeout=request_timeout,
                    connect=_connect(keys),
                    check_cluster=check_cluster,
                )
                try:
                    await cluster.refresh(())
                except BaseException:
                    await cluster.close()
                    raise
                self._clusters[key] = cluster
            return self._clusters[key]

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._until_closed())

    async def _until_closed(self) -> None:
        await self._stop.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT):
                # Coroutines that run on would open the connections again.
                others = asyncio.all_tasks() - {asyncio.current_task()}
                for task in others:
                    task.cancel()
                await asyncio.gather(*others, return_exceptions=True)
                await asyncio.gather(*(each.close() for each in self._clusters.values()))


class _Loops:
    """The loop of this process, and the loops that it inherited from its ancestors."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._own: ClientLoop | None = None
        # If they were freed, asyncio would warn of their open transports.
        self._inherited: list[ClientLoop] = []

    def own(self) -> ClientLoop:
        """Return the loop of this process."""
        with self._lock:
            if self._own is None or self._own.is_closed:
                self._own = ClientLoop()
            return self._own

    def begin_anew(self) -> None:
        """Forget the parent's loop in a forked child, where its thread does not run."""
        # Another thread of the parent may have held the lock.
        self._lock = threading.Lock()
        if self._own is not None:
            self._inherited.append(self._own)
            self._own = None

    def close(self) -> None:
        """Close the loop of this process."""
        if self._own is not None:
            self._own.close()


_loops = _Loops()
os.register_at_fork(after_in_child=_loops.begin_anew)
atexit.register(_loops.close)


def _connect(keys: frozenset[tuple[str, str]]) -> Connect | None:
    if not keys:
        return None
    # Imported here: it brings TLS and SASL with it.
    from barnabas.client.security import connect_with

    return connect_with(dict(keys))


async def _within(coroutine: Coroutine[Any, Any, T], timeout: float) -> T:
    try:
        async with asyncio.timeout(timeout) as scope:
            return await coroutine
    except TimeoutError:
        if scope.expired():
            raise TimeoutError(f"not finished in {timeout:g} s") from None
        raise
