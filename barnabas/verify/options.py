"""The options of a run."""

from dataclasses import dataclass, field
from typing import Final

from barnabas.client.connection import Connect

NEWER: Final = "newer"
OLDER: Final = "older"
BOTH: Final = "both"


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a run; times in s, sizes in bytes."""

    bootstrap: str
    workload: str = "queue"
    duration: float = 20.0
    seed: int = 0
    partitions: int = 6
    producers: int = 4
    protocol: str = BOTH
    """The transaction protocol: NEWER (an epoch for each), OLDER, or BOTH (half the producers)."""
    transaction_timeout: float = 10.0
    value_size: int = 100
    replication_factor: int = -1
    min_insync_replicas: int | None = None
    """The min.insync.replicas of the topics; None is the default of the brokers."""
    churn: bool = False
    """Whether topics, replicas and leaders change during the load."""
    recovery: float = 60.0
    """The time after the load until all partitions must have a leader and all replicas in sync."""
    delayed_ends: bool = False
    """Whether commits of the older protocol arrive a second time, late (KAFKA-17754)."""
    keep: bool = False
    """Whether the topics are kept."""
    client_id: str = "barnabas-verify"
    connect: Connect | None = field(default=None, repr=False)
    """Opens the connections; None is plain TCP."""
