"""What has become of offsets here since the broker started, for metrics."""

from dataclasses import dataclass


@dataclass(slots=True)
class OffsetCounts:
    """Counted when it is decided, as Kafka does, over all partitions that were ever led."""

    committed: int = 0
    """In and outside of transactions."""
    expired: int = 0
    deleted: int = 0
    """By OffsetDelete."""
