"""The state that all parts of a run share: options, history, random numbers, stop event."""

import asyncio
from collections import Counter
from random import Random

from barnabas.client.cluster import Cluster
from barnabas.verify.history import History, Partition
from barnabas.verify.options import BOTH, NEWER, Options
from barnabas.verify.wire.inspection import EPOCH_PER_TRANSACTION
from barnabas.verify.wire.transactor import Transactor

REQUEST_TIMEOUT = 10.0


class Context:
    """The context of one run; random choices follow from the seed."""

    def __init__(
        self, options: Options, history: History, name: str, transaction_version: int
    ) -> None:
        self.options = options
        self.history = history
        self.name = name
        self.stopping = asyncio.Event()
        self.transactional_ids: list[str] = []
        self.problems: Counter[str] = Counter()
        """The problems that interrupted parts of the run, with their counts."""
        self._clusters: list[Cluster] = []
        self._values = 0
        self._has_newer = transaction_version >= EPOCH_PER_TRANSACTION

    def random(self, who: str) -> Random:
        """Return the random numbers of one part, independent of the other parts."""
        return Random(f"{self.options.seed} {who}")

    def topic(self, name: str) -> str:
        """Return the full name of a topic of this run."""
        return f"{self.name}-{name}"

    def partitions(self, name: str) -> list[Partition]:
        """Return the partitions of a topic of this run."""
        return [(self.topic(name), index) for index in range(self.options.partitions)]

    def cluster(self) -> Cluster:
        """Return a client with its own connections; the run closes it at the end."""
        cluster = Cluster(
            self.options.bootstrap,
            client_id=self.options.client_id,
            timeout=REQUEST_TIMEOUT,
            connect=self.options.connect,
        )
        self._clusters.append(cluster)
        return cluster

    def value(self, proc: str) -> str:
        """Return a new unique value."""
        self._values += 1
        return f"{proc}:{self._values}"

    def transactor(
        self, cluster: Cluster, proc: str, transactional_id: str, number: int
    ) -> Transactor:
        """Return a transactional producer; with protocol `both`, even numbers get the newer one."""
        full_id = f"{self.name}-{transactional_id}"
        if full_id not in self.transactional_ids:
            self.transactional_ids.append(full_id)
        protocol = self.options.protocol
        newer = protocol == NEWER or (protocol == BOTH and number % 2 == 0)
        return Transactor(
            self.history,
            cluster,
            proc,
            full_id,
            newer=newer and self._has_newer,
            timeout=self.options.transaction_timeout,
            value_size=self.options.value_size,
        )

    def problem(self, text: str) -> None:
        """Count a problem of a part of the run; the checks at the end show whether it mattered."""
        self.problems[text] += 1

    async def pause(self, seconds: float) -> bool:
        """Wait, at most until the run is stopped; return True while it is running."""
        try:
            async with asyncio.timeout(seconds):
                await self.stopping.wait()
        except TimeoutError:
            return True
        return False

    async def wait(self, seconds: float) -> None:
        """Wait, even if the run is stopped meanwhile."""
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        """Close every connection."""
        for cluster in self._clusters:
            await cluster.close()
