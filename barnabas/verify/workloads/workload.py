"""The interface of a workload, and the readers of most workloads."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from barnabas.client.connection import BrokerUnreachable
from barnabas.protocol.errors import KafkaError
from barnabas.verify.context import Context
from barnabas.verify.history import Partition
from barnabas.verify.wire.reader import Reader


class Topic(NamedTuple):
    """A topic of a workload."""

    name: str
    configs: Mapping[str, str] = {}

    @property
    def is_compacted(self) -> bool:
        return self.configs.get("cleanup.policy") == "compact"


class Stage(NamedTuple):
    """A stage of a pipeline: a group that reads one topic and writes another."""

    source: str
    target: str
    group: str


class Workload(Protocol):
    """A workload: its parts run concurrently until the run stops, then `finish` is called."""

    topics: Sequence[Topic]
    stages: Sequence[Stage]

    def parts(self, context: Context) -> Sequence[Callable[[], Awaitable[None]]]: ...

    async def finish(self, context: Context) -> None: ...


async def read_continuously(
    context: Context,
    name: str,
    partitions: Sequence[Partition],
    *,
    committed: bool,
    restless: bool = False,
) -> None:
    """Read until the run stops; a restless reader sometimes seeks to random offsets."""
    chance = context.random(name)
    reader = Reader(context.history, context.cluster(), name, committed=committed)
    reader.assign(dict.fromkeys(partitions, 0))
    while not context.stopping.is_set():
        if restless and chance.random() < 0.1:
            reader.assign({at: chance.randint(0, end) for at, end in reader.positions.items()})
        try:
            await reader.poll()
        except (KafkaError, BrokerUnreachable, TimeoutError) as error:
            # Readers may fail; a broker that stays away is found at the end.
            context.problem(f"{name}: {error}")
        await context.pause(0.02)
