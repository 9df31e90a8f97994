"""What the parts of a run share: the cluster, the history, chance, and when to stop."""

import asyncio
from collections import Counter
from random import Random

from barnabas.client.cluster import Cluster
from barnabas.verify.history import History, Place
from barnabas.verify.options import BOTH, NEWER, Options
from barnabas.verify.wire.inspection import EPOCH_PER_TRANSACTION
from barnabas.verify.wire.transactor import Transactor

REQUEST_TIMEOUT = 10.0


class Context:
    """One run. What is by chance follows from the seed, as far as the cluster lets it."""

    def __init__(
        self, options: Options, history: History, name: str, transaction_version: int
    ) -> None:
        self.options = options
        self.history = history
        self.name = name
        self.stopping = asyncio.Event()
        self.transactional_ids: list[str] = []
        self.problems: Counter[str] = Counter()
        """What kept a part of the run from going on, and how often."""
        self._clusters: list[Cluster] = []
        self._values = 0
        self._has_newer = transaction_version >= EPOCH_PER_TRANSACTION

    def random(self, who: str) -> Random:
        """The chance of one part, whatever the others do."""
        return Random(f"{self.options.seed} {who}")

    def topic(self, name: str) -> str:
        """A topic of this run."""
        return f"{self.name}-{name}"

    def places(self, name: str) -> list[Place]:
        """The partitions of a topic of this run."""
        return [(self.topic(name), index) for index in range(self.options.partitions)]

    def cluster(self) -> Cluster:
        """Connections of its own; closed with the run."""
        cluster = Cluster(
            self.options.bootstrap, client_id="barnabas-verify", timeout=REQUEST_TIMEOUT
        )
        self._clusters.append(cluster)
        return cluster

    def value(self, proc: str) -> str:
        """One that was never there before."""
        self._values += 1
        return f"{proc}:{self._values}"

    def transactor(
        self, cluster: Cluster, proc: str, transactional_id: str, number: int
    ) -> Transactor:
        """A producer; `number` shares the protocols out."""
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
        """Something kept a part of the run from going on; the end will show whether it mattered."""
        self.problems[text] += 1

    async def pause(self, seconds: float) -> bool:
        """Waits, at most until the run is to stop; whether it goes on."""
        try:
            async with asyncio.timeout(seconds):
                await self.stopping.wait()
        except TimeoutError:
            return True
        return False

    async def wait(self, seconds: float) -> None:
        """Waits, also after the run was to stop."""
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        """Closes every connection."""
        for cluster in self._clusters:
            await cluster.close()
