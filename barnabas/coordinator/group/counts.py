"""The counts of committed, expired and deleted offsets since the broker started, for metrics."""

from dataclasses import dataclass


@dataclass(slots=True)
class OffsetCounts:
    """The counts over all partitions that were ever led, taken at the time of the decision as in
    Kafka."""

    committed: int = 0
    """In and outside of transactions."""
    expired: int = 0
    deleted: int = 0
    """By OffsetDelete."""
