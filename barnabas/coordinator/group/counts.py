"""The counts of offsets and rebalances since the broker started, for metrics."""

from dataclasses import dataclass


@dataclass(slots=True)
class GroupCounts:
    """The counts over all partitions that were ever led, taken at the time of the decision as in
    Kafka."""

    committed: int = 0
    """Offsets, in and outside of transactions."""
    expired: int = 0
    deleted: int = 0
    """By OffsetDelete."""
    classic_rebalances: int = 0
    """Assignments of classic groups that were committed."""
    consumer_rebalances: int = 0
    """Epochs that consumer groups began."""
