"""What every workload has, and those who read beside it."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from barnabas.client.connection import BrokerUnreachable
from barnabas.protocol.errors import KafkaError
from barnabas.verify.context import Context
from barnabas.verify.history import Place
from barnabas.verify.wire.reader import Reader


class Topic(NamedTuple):
    """A topic that a workload needs."""

    name: str
    configs: Mapping[str, str] = {}

    @property
    def is_compacted(self) -> bool:
        return self.configs.get("cleanup.policy") == "compact"


class Stage(NamedTuple):
    """A group that reads one topic and writes another."""

    source: str
    target: str
    group: str


class Workload(Protocol):
    """`parts` run beside each other until the context says stop; `finish` comes after them."""

    topics: Sequence[Topic]
    stages: Sequence[Stage]

    def parts(self, context: Context) -> Sequence[Callable[[], Awaitable[None]]]: ...

    async def finish(self, context: Context) -> None: ...


async def read_on(
    context: Context, name: str, places: Sequence[Place], *, committed: bool, restless: bool = False
) -> None:
    """Reads until the run stops; a restless reader starts again somewhere, now and then."""
    chance = context.random(name)
    reader = Reader(context.history, context.cluster(), name, committed=committed)
    reader.assign(dict.fromkeys(places, 0))
    while not context.stopping.is_set():
        if restless and chance.random() < 0.1:
            reader.assign({at: chance.randint(0, end) for at, end in reader.positions.items()})
        try:
            await reader.poll()
        except (KafkaError, BrokerUnreachable, TimeoutError) as error:
            # A broker that is away for longer is seen at the end; readers promise nothing.
            context.problem(f"{name}: {error}")
        await context.pause(0.02)
