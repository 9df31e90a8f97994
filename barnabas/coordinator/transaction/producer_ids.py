"""The source of fresh producer ids for decisions, which cannot wait."""

from collections.abc import Callable
from typing import Protocol

TakeProducerId = Callable[[], int]
"""Returns a fresh producer id; raises ProducerIdNeeded."""


class ProducerIdNeeded(Exception):
    """A decision needs a producer id and none is in memory: decide again after a refill."""


class ProducerIds(Protocol):
    """Fresh producer ids, unique in the cluster."""

    def take(self) -> int:
        """Return a producer id from memory; raises ProducerIdNeeded if memory has none."""
        ...

    async def refill(self) -> None:
        """Fetch more producer ids. Raises KafkaError if the metadata store is out of reach."""
        ...
