"""The JSON answers of `barnabas topics`."""

from typing import Any, Final, Literal

from barnabas.cli.answers.model import Answer


class Topic(Answer):
    """A topic of the cluster."""

    topic: str
    partitions: int
    replicas: int
    """The largest number of replicas of one of its partitions."""
    id: str
    """The topic id (KIP-516), in URL-safe base64."""


class Partition(Answer):
    """A partition of a topic; the offsets are null without a leader."""

    partition: int
    leader: int
    """Broker id; -1 without a leader."""
    epoch: int
    """The leader epoch."""
    replicas: list[int]
    isr: list[int]
    start: int | None
    """The first offset of the log."""
    end: int | None
    """The offset of the next record."""


class DescribedTopic(Answer):
    """A topic with its partitions."""

    topic: str
    id: str
    """The topic id (KIP-516), in URL-safe base64."""
    partitions: list[Partition]


class UnhealthyPartition(Answer):
    """A partition that filters match."""

    topic: str
    partition: int
    leader: int
    """Broker id; -1 without a leader."""
    replicas: list[int]
    isr: list[int]
    lacks: list[Literal["under-replicated", "under-min-isr", "at-min-isr", "unavailable"]]
    """The filters that match."""


class CreatedTopic(Answer):
    """A topic that was created, or that exists already."""

    topic: str
    created: bool
    id: str | None
    """The topic id (KIP-516), in URL-safe base64; null if the topic existed."""
    partitions: int | None
    """Null if the topic existed."""


class DeletedTopic(Answer):
    """A topic that was deleted."""

    topic: str
    deleted: Literal[True]


class AlteredTopic(Answer):
    """A topic that was altered."""

    topic: str
    altered: Literal[True]


class TrimmedPartition(Answer):
    """A partition whose records below an offset were deleted."""

    topic: str
    partition: int
    start: int
    """The first offset of the log."""


ANSWERS: Final[dict[str, Any]] = {
    "topics list": list[Topic],
    "topics describe": DescribedTopic | list[UnhealthyPartition],
    "topics create": CreatedTopic,
    "topics delete": DeletedTopic,
    "topics alter": AlteredTopic,
    "topics delete-records": TrimmedPartition,
}
