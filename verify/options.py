"""What a run is asked for."""

from dataclasses import dataclass
from typing import Final

NEWER: Final = "newer"
OLDER: Final = "older"
BOTH: Final = "both"


@dataclass(frozen=True, slots=True)
class Options:
    """Times in s, sizes in bytes."""

    bootstrap: str
    workload: str = "queue"
    duration: float = 20.0
    seed: int = 0
    partitions: int = 6
    producers: int = 4
    protocol: str = BOTH
    """Of transactions: with an epoch for each, or one for many; or half of the producers each."""
    transaction_timeout: float = 10.0
    value_size: int = 100
    replication_factor: int = -1
    min_insync_replicas: int | None = None
    """Of the topics; the brokers' default without."""
    churn: bool = False
    """Whether topics come and go, replicas move and leaders change beside the load."""
    recovery: float = 60.0
    """After the load every partition must have a leader and all its replicas in sync by then."""
    delayed_ends: bool = False
    """Whether commits of older clients arrive twice, the second time late (KAFKA-17754)."""
    keep: bool = False
    """Whether the topics stay."""
