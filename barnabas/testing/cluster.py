"""A cluster of brokers for tests, in a blocking form and in an awaited one."""

import asyncio
from typing import Self

from barnabas.testing.calls import TIMEOUT, in_thread, warn_on_running_loop
from barnabas.testing.helpers import AsyncHelpers, Helpers
from barnabas.testing.levers import ClusterLevers, Held, Lever

__all__ = ["AsyncCluster", "Cluster", "Held", "Lever"]


class ClusterRoles(ClusterLevers):
    """The work of the methods that wait, on the event loop of the brokers."""

    def in_sync_of(self, topic: str, partition: int = 0) -> list[int]:
        """Return the ISR of a partition. Raises ValueError if the partition does not exist."""
        return self._do(self._in_sync_of(topic, partition))

    async def _in_sync_of(self, topic: str, partition: int) -> list[int]:
        return list(self._store.state(topic, partition).isr)

    async def _wait_until_in_sync(self) -> None:
        await self._store.until(lambda: self._store.in_sync() or None)


class Cluster(ClusterRoles, Helpers):
    """Running brokers: `with Cluster() as cluster: ... cluster.bootstrap_servers`.

    `configs` are Kafka's keys for every broker and win over `DEFAULTS`. The brokers have the ids 1,
    2, 3, or as many as `brokers` says, and run in one thread; with `processes` each has a separate
    process, which can be killed and paused. With `data_dir` the data stays; without, it is
    removed with the cluster. Methods may be called from any thread, and return when their effect
    has happened. One that waits raises RuntimeError on a running event loop.

    With `secure` clients need TLS, and a password or a certificate; `users` and `rules` imply it.
    The user `admin` may do everything. The start of the cluster, and of a single broker of it,
    raises TimeoutError after `start_timeout` seconds.

    `async with Cluster() as cluster` gives an `AsyncCluster`.
    """

    def start(self) -> Self:
        """Start all brokers; return once they know each other and have a controller."""
        return self._start_blocking(2)

    def stop(self) -> None:
        """Stop the brokers that run, and remove all files but those in `data_dir`."""
        self._end()

    @property
    def aio(self) -> "AsyncCluster":
        """The same cluster, whose methods that wait are awaited."""
        return AsyncCluster(self)

    @property
    def controller(self) -> int:
        """The broker that is the controller; waits until there is one."""
        return self._wait(self._levers.controller(), call="controller")

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """Return the leader of a partition; wait until it has one.

        Raises ValueError if the partition does not exist, and TimeoutError.
        """
        late = f"no broker leads {topic}-{partition}"
        return self._wait(self._levers.leader_of(topic, partition), late=late)

    def coordinator_of(self, *, group: str = "", transactional_id: str = "") -> int:
        """Return the coordinator of a group or of a transactional id; no client need have asked for
        it before."""
        return self._wait(self._levers.coordinator_of(group, transactional_id))

    def wait_until_in_sync(self, timeout: float = TIMEOUT) -> None:
        """Wait until every replica of every partition is in sync."""
        self._wait(self._wait_until_in_sync(), timeout, "not every replica was in sync")

    def start_broker(self, broker: int) -> None:
        """Start a broker that was stopped or killed, with its address and its data.

        Cut links and levers apply to it again; it counts requests from the beginning.
        """
        late = f"broker {broker} did not start"
        self._wait(self._start_broker(broker), self._start_timeout, late)

    def stop_broker(self, broker: int) -> None:
        """Stop one broker in order: others lead its partitions before it ends."""
        self._wait(self._stop_broker(broker))

    def move_leader(self, topic: str, partition: int, to: int) -> None:
        """Make an in-sync replica of a partition its leader, and wait until it is.

        Raises ValueError if the partition does not exist, or the broker has no replica of it.
        """
        self._wait(self._levers.move_leader(topic, partition, to))

    def move_coordinator(self, to: int, *, group: str = "", transactional_id: str = "") -> None:
        """Make a broker the coordinator of a group or of a transactional id."""
        self._wait(self._levers.move_coordinator(to, group, transactional_id))

    def _start_blocking(self, stacklevel: int) -> Self:
        warn_on_running_loop("Cluster", stacklevel + 1)
        self._begin()
        return self

    def __enter__(self) -> Self:
        return self._start_blocking(2)

    def __exit__(self, *error: object) -> None:
        self.stop()

    async def __aenter__(self) -> "AsyncCluster":
        return await self.aio.start()

    async def __aexit__(self, *error: object) -> None:
        await self.aio.stop()


class AsyncCluster(ClusterRoles, AsyncHelpers):
    """A cluster for tests with an event loop: each method that waits is awaited.

    `async with Cluster() as cluster` gives one, and so does `Cluster.aio`. The levers are those of
    `Cluster`: they take milliseconds, and are not awaited.
    """

    def __init__(self, cluster: Cluster) -> None:
        # Both objects are one cluster: what one changes, the other sees.
        self.__dict__ = cluster.__dict__

    async def start(self) -> Self:
        """Start all brokers; return once they know each other and have a controller."""
        await in_thread(self._begin, self._end)
        return self

    async def stop(self) -> None:
        """Stop the brokers that run, and remove all files but those in `data_dir`."""
        await asyncio.to_thread(self._end)

    @property
    async def controller(self) -> int:
        """The broker that is the controller; waits until there is one."""
        return await self._awaited(self._levers.controller())

    async def leader_of(self, topic: str, partition: int = 0) -> int:
        """Return the leader of a partition; wait until it has one.

        Raises ValueError if the partition does not exist, and TimeoutError.
        """
        late = f"no broker leads {topic}-{partition}"
        return await self._awaited(self._levers.leader_of(topic, partition), late=late)

    async def coordinator_of(self, *, group: str = "", transactional_id: str = "") -> int:
        """Return the coordinator of a group or of a transactional id; no client need have asked for
        it before."""
        return await self._awaited(self._levers.coordinator_of(group, transactional_id))

    async def wait_until_in_sync(self, timeout: float = TIMEOUT) -> None:
        """Wait until every replica of every partition is in sync."""
        await self._awaited(self._wait_until_in_sync(), timeout, "not every replica was in sync")

    async def start_broker(self, broker: int) -> None:
        """Start a broker that was stopped or killed, with its address and its data.

        Cut links and levers apply to it again; it counts requests from the beginning.
        """
        late = f"broker {broker} did not start"
        await self._awaited(self._start_broker(broker), self._start_timeout, late)

    async def stop_broker(self, broker: int) -> None:
        """Stop one broker in order: others lead its partitions before it ends."""
        await self._awaited(self._stop_broker(broker))

    async def move_leader(self, topic: str, partition: int, to: int) -> None:
        """Make an in-sync replica of a partition its leader, and wait until it is.

        Raises ValueError if the partition does not exist, or the broker has no replica of it.
        """
        await self._awaited(self._levers.move_leader(topic, partition, to))

    async def move_coordinator(
        self, to: int, *, group: str = "", transactional_id: str = ""
    ) -> None:
        """Make a broker the coordinator of a group or of a transactional id."""
        await self._awaited(self._levers.move_coordinator(to, group, transactional_id))
