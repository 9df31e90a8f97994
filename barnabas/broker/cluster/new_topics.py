"""The request to create a topic, and its result, as values."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

USE_DEFAULT = -1


class NewTopic(NamedTuple):
    """A topic to create. A count of -1 selects the broker's default, or manual assignments."""

    name: str
    num_partitions: int = USE_DEFAULT
    replication_factor: int = USE_DEFAULT
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    """Pairs of a partition and its broker ids, the preferred leader first."""
    configs: Mapping[str, str | None] = MappingProxyType({})
    internal: bool = False
    """Whether a broker creates an internal topic; clients cannot use those names."""


class CreatedTopic(NamedTuple):
    """The properties of a created topic."""

    topic_id: bytes
    num_partitions: int
    replication_factor: int
