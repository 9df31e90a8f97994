"""Fresh producer ids, as a decision takes them: at once or not at all."""

from collections.abc import Callable
from typing import Protocol

TakeProducerId = Callable[[], int]
"""A fresh producer id; raises ProducerIdNeeded."""


class ProducerIdNeeded(Exception):
    """A decision needs a fresh producer id and none is at hand: ask again when there is one."""


class ProducerIds(Protocol):
    """Producer ids that nobody had before, unique in the cluster."""

    def take(self) -> int:
        """One that is at hand; raises ProducerIdNeeded where more must be fetched first."""
        ...

    async def refill(self) -> None:
        """Have some at hand. Raises KafkaError where the metadata store is out of reach."""
        ...
