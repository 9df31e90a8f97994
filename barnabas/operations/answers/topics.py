"""The answers of `barnabas topics`."""

from dataclasses import dataclass
from typing import Any, Final, Literal

from barnabas.operations.answers.model import Answer

Lack = Literal["under-replicated", "under-min-isr", "at-min-isr", "unavailable"]
"""The reason why a partition is not healthy, by the name of its filter."""


@dataclass(frozen=True, slots=True)
class Topic(Answer):
    """A topic of the cluster."""

    topic: str
    partitions: int
    replicas: int
    """The largest number of replicas of one of its partitions."""
    id: str
    """The topic id (KIP-516), in URL-safe base64."""


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class DescribedTopic(Answer):
    """A topic with its partitions."""

    topic: str
    id: str
    """The topic id (KIP-516), in URL-safe base64."""
    partitions: list[Partition]


@dataclass(frozen=True, slots=True)
class FrequentKey(Answer):
    """A key of several records of a sample."""

    key: str
    """Bytes that are not UTF-8 are escaped by a backslash."""
    records: int


@dataclass(frozen=True, slots=True)
class SampledPartition(Answer):
    """The sample of a partition."""

    partition: int
    records: int
    records_per_s: float | None
    """Null if all timestamps are equal."""
    batches: int
    stored_bytes: int
    """The size of the batches, as they are compressed."""
    distinct_keys: int


@dataclass(frozen=True, slots=True)
class AnalyzedTopic(Answer):
    """The figures of a topic's newest committed records; those without records are null."""

    topic: str
    records: int
    """The size of the sample."""
    first_at_ms: int | None
    last_at_ms: int | None
    records_per_s: float | None
    """By the timestamps, the sum of all partitions."""
    bytes_per_s: int | None
    """Stored bytes."""
    value_bytes_p50: int | None
    value_bytes_p99: int | None
    value_bytes_max: int | None
    key_bytes_p50: int | None
    key_bytes_max: int | None
    without_key: int
    tombstones: int
    distinct_keys: int
    frequent_keys: list[FrequentKey]
    """At most five, the most frequent first."""
    batches: int
    records_per_batch_p50: int | None
    bytes_per_batch_p50: int | None
    codecs: dict[str, int]
    """The number of batches by codec: none, gzip, snappy, lz4 or zstd."""
    transactional_batches: int
    stored_to_payload: float | None
    """The size of the batches by that of keys, values and headers."""
    partitions: list[SampledPartition]


@dataclass(frozen=True, slots=True)
class UnhealthyPartition(Answer):
    """A partition that filters match."""

    topic: str
    partition: int
    leader: int
    """Broker id; -1 without a leader."""
    replicas: list[int]
    isr: list[int]
    lacks: list[Lack]
    """The filters that match."""


@dataclass(frozen=True, slots=True)
class CreatedTopic(Answer):
    """A topic that was created, or that exists already."""

    topic: str
    created: bool
    id: str | None
    """The topic id (KIP-516), in URL-safe base64; null if the topic existed."""
    partitions: int | None
    """Null if the topic existed."""


@dataclass(frozen=True, slots=True)
class DeletedTopic(Answer):
    """A topic that was deleted."""

    topic: str
    deleted: Literal[True]


@dataclass(frozen=True, slots=True)
class AlteredTopic(Answer):
    """A topic that was altered."""

    topic: str
    altered: Literal[True]


@dataclass(frozen=True, slots=True)
class TrimmedPartition(Answer):
    """A partition whose records below an offset were deleted."""

    topic: str
    partition: int
    start: int
    """The first offset of the log."""


ANSWERS: Final[dict[str, Any]] = {
    "topics list": list[Topic],
    "topics describe": DescribedTopic | list[UnhealthyPartition],
    "topics analyze": AnalyzedTopic,
    "topics create": CreatedTopic,
    "topics delete": DeletedTopic,
    "topics alter": AlteredTopic,
    "topics delete-records": TrimmedPartition,
}
