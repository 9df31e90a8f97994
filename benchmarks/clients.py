"""CPU time of our client beside three others, each in a process of its own, on one broker of ours.

The figures are the client's. All read the same batches, those of our producer.
"""

import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks import client_load, raw
from benchmarks.child import driven
from benchmarks.measures import Round
from benchmarks.systems import BEFORE, OURS, Barnabas, create_topics
from tests.support.brokers.process import ROOT

SIZES: Final = (100, 1000)
_PARTITIONS: Final = 2


class Library(NamedTuple):
    """A client library, and the checkout of ours."""

    name: str
    library: str
    root: Path = ROOT


def libraries(before: Path | None) -> list[Library]:
    """Return all libraries, ours first, and perhaps ours of another checkout."""
    found = [Library(name, name) for name in client_load.LOADS]
    return found if before is None else [*found, Library(BEFORE, OURS, before)]


def versions() -> str:
    """Return the versions of the other libraries."""
    return ", ".join(f"{each} {version(each)}" for each in client_load.LOADS if each != OURS)


def loads(broker: Barnabas, count: int) -> list[Callable[[Library], Round]]:
    """Return the loads of one round."""
    written: dict[int, str] = {}
    """The last topic of our producer with records of each size."""

    def driven_by(client: Library, direction: str, topic: str, size: int) -> Round:
        load = {"servers": broker.servers, "topic": topic, "count": count, "size": size}
        how = {"library": client.library, "direction": direction, "root": client.root}
        return {f"{direction} {size:,} B": driven("client_load.run", **load, **how)}

    def produce(client: Library, size: int) -> Round:
        stale = topic = f"records-{time.time_ns()}"
        create_topics(broker.servers, {topic: _PARTITIONS})
        found = driven_by(client, "produce", topic, size)
        if client.name == OURS:
            stale, written[size] = written.get(size, ""), topic
        if stale:
            with raw.connect(broker.port) as connection:
                raw.delete_topic(connection, stale)
        return found

    def consume(client: Library, size: int) -> Round:
        return driven_by(client, "consume", written[size], size)

    return [partial(load, size=size) for load, size in product((produce, consume), SIZES)]
