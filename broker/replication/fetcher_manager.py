"""Which partitions are fetched over which line: few lines to each leader, many partitions each."""

import asyncio
from collections.abc import Callable, Iterator

from barnabas.broker.metadata.cache import NO_LEADER
from barnabas.broker.replication.fetcher import Fetcher
from barnabas.broker.replication.follower import Following
from barnabas.broker.replication.means import Line, Means
from barnabas.broker.replication.partition import Partition
from barnabas.protocol.java_hash import java_hash


class FetcherManager:
    """The fetchers of this broker. None runs where nothing is followed."""

    def __init__(self, connect: Callable[[int], Line], means: Means) -> None:
        """`connect` makes a line of its own to a broker."""
        self._connect = connect
        self.means = means
        self._fetchers: dict[tuple[int, int], Fetcher] = {}
        self._tasks: dict[Fetcher, asyncio.Task[None]] = {}
        self._followed: dict[Partition, tuple[Following, Fetcher]] = {}
        self._lines = means.config().num_replica_fetchers
        self._stopped = False

    def __iter__(self) -> Iterator[Following]:
        """Everything that is followed."""
        return (following for following, _ in self._followed.values())

    # -- what the controller says ----------------------------------------------------------------

    def follow(self, partition: Partition) -> None:
        """Fetch a partition from its leader, in the leader epoch that it has now."""
        known = self._followed.get(partition)
        if known is not None and known[0].leader_epoch == partition.leader_epoch:
            return
        assert known is None, "another epoch begins where the one before has ended"
        if partition.leader_id != NO_LEADER and not self._stopped:
            following, fetcher = Following(partition), self._fetcher(partition)
            self._followed[partition] = following, fetcher
            fetcher.add(following)

    def unfollow(self, partition: Partition) -> "asyncio.Task[None] | None":
        """Do nothing more to a partition's log; what must be awaited before anybody else may."""
        known = self._followed.pop(partition, None)
        if known is None:
            return None
        following, fetcher = known
        following.stopped = True
        fetcher.remove(following)
        return following.work

    async def close_idle(self) -> None:
        """Give up lines over which nothing is fetched any more."""
        idle = [place for place, fetcher in self._fetchers.items() if not len(fetcher)]
        for fetcher in [self._fetchers.pop(place) for place in idle]:
            await self._close(fetcher)

    async def stop(self) -> None:
        """Fetch nothing ever again, and return when nothing is done to any log."""
        self._stopped = True
        works = [self.unfollow(partition) for partition in list(self._followed)]
        await asyncio.gather(*(work for work in works if work is not None))
        await self.close_idle()

    async def resize(self) -> None:
        """`num.replica.fetchers` may have changed: spread the partitions anew."""
        lines = self.means.config().num_replica_fetchers
        if lines == self._lines:
            return
        self._lines = lines
        for partition, (following, _) in list(self._followed.items()):
            # Those that are being cut stay where they are, until they have another leader.
            if following.work is None:
                self.unfollow(partition)
                self.follow(partition)
        await self.close_idle()

    def _fetcher(self, partition: Partition) -> Fetcher:
        leader = partition.leader_id
        line = (31 * java_hash(partition.topic) + partition.index) % self._lines
        fetcher = self._fetchers.get((leader, line))
        if fetcher is None:
            fetcher = Fetcher(leader, self._connect(leader), self.means)
            self._fetchers[leader, line] = fetcher
            self._tasks[fetcher] = asyncio.get_running_loop().create_task(fetcher.run())
        return fetcher

    async def _close(self, fetcher: Fetcher) -> None:
        task = self._tasks.pop(fetcher)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await fetcher.close()

    # -- what is measured ------------------------------------------------------------------------

    @property
    def max_lag(self) -> int:
        """Committed records that the partition furthest behind has not fetched."""
        return max((following.lag or 0 for following in self), default=0)

    @property
    def min_fetch_rate(self) -> float:
        """Requests per second over the slowest line; 0 without any."""
        now = self.means.clock.monotonic()
        rates = (fetcher.requests.rate(now) for fetcher in self._fetchers.values())
        return min(rates, default=0.0)
