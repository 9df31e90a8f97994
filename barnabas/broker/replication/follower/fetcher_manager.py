"""The fetchers of this broker: `num.replica.fetchers` per leader, many partitions each."""

import asyncio
from collections.abc import Callable, Iterator

from barnabas.broker.cluster.cache import NO_LEADER
from barnabas.broker.replication.follower.fetcher import Fetcher, FetcherContext, LeaderConnection
from barnabas.broker.replication.follower.follower_state import FollowerState
from barnabas.broker.replication.partition import Partition
from barnabas.protocol.java_hash import java_hash


class FetcherManager:
    """The assignment of followed partitions to fetchers; idle fetchers are closed."""

    def __init__(self, connect: Callable[[int], LeaderConnection], context: FetcherContext) -> None:
        """`connect` makes a new connection to a broker."""
        self._connect = connect
        self.context = context
        self._fetchers: dict[tuple[int, int], Fetcher] = {}
        self._tasks: dict[Fetcher, asyncio.Task[None]] = {}
        self._followed: dict[Partition, tuple[FollowerState, Fetcher]] = {}
        self._fetchers_per_leader = context.config().num_replica_fetchers
        self._stopped = False

    def __iter__(self) -> Iterator[FollowerState]:
        """Iterate over the followed partitions."""
        return (follower for follower, _ in self._followed.values())

    # -- decisions of the controller -------------------------------------------------------------

    def follow(self, partition: Partition) -> None:
        """Fetch a partition from its leader, in the leader epoch that it has now."""
        known = self._followed.get(partition)
        if known is not None and known[0].leader_epoch == partition.leader_epoch:
            return
        assert known is None, "another epoch begins where the one before has ended"
        if partition.leader_id != NO_LEADER and not self._stopped:
            follower, fetcher = FollowerState(partition), self._fetcher(partition)
            self._followed[partition] = follower, fetcher
            fetcher.add(follower)

    def unfollow(self, partition: Partition) -> "asyncio.Task[None] | None":
        """Stop changing a partition's log; return the task to await before others change it."""
        known = self._followed.pop(partition, None)
        if known is None:
            return None
        follower, fetcher = known
        follower.stopped = True
        fetcher.remove(follower)
        return follower.work

    async def close_idle(self) -> None:
        """Close the fetchers that have no partitions left."""
        idle = [key for key, fetcher in self._fetchers.items() if not len(fetcher)]
        for fetcher in [self._fetchers.pop(key) for key in idle]:
            await self._close(fetcher)

    async def stop(self) -> None:
        """Stop all fetchers for good; return when none of them changes a log any more."""
        self._stopped = True
        works = [self.unfollow(partition) for partition in list(self._followed)]
        await asyncio.gather(*(work for work in works if work is not None))
        await self.close_idle()

    async def resize(self) -> None:
        """Redistribute the partitions if `num.replica.fetchers` has changed."""
        fetchers_per_leader = self.context.config().num_replica_fetchers
        if fetchers_per_leader == self._fetchers_per_leader:
            return
        self._fetchers_per_leader = fetchers_per_leader
        for partition, (follower, _) in list(self._followed.items()):
            # A partition in truncation stays on its fetcher until it has another leader.
            if follower.work is None:
                self.unfollow(partition)
                self.follow(partition)
        await self.close_idle()

    def _fetcher(self, partition: Partition) -> Fetcher:
        leader = partition.leader_id
        number = (31 * java_hash(partition.topic) + partition.index) % self._fetchers_per_leader
        fetcher = self._fetchers.get((leader, number))
        if fetcher is None:
            fetcher = Fetcher(leader, self._connect(leader), self.context)
            self._fetchers[leader, number] = fetcher
            self._tasks[fetcher] = asyncio.get_running_loop().create_task(fetcher.run())
        return fetcher

    async def _close(self, fetcher: Fetcher) -> None:
        task = self._tasks.pop(fetcher)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await fetcher.close()

    # -- metrics ---------------------------------------------------------------------------------

    @property
    def max_lag(self) -> int:
        """The lag of the partition furthest behind, in committed records."""
        return max((follower.lag or 0 for follower in self), default=0)

    @property
    def min_fetch_rate(self) -> float:
        """Requests per second of the slowest fetcher; 0 without any."""
        now = self.context.clock.monotonic()
        rates = (fetcher.requests.rate(now) for fetcher in self._fetchers.values())
        return min(rates, default=0.0)
