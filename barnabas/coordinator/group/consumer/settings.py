"""The settings of consumer groups."""

from enum import Enum
from typing import NamedTuple


class MigrationPolicy(Enum):
    """Whether a group may change its protocol while it has members."""

    DISABLED = "disabled"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    BIDIRECTIONAL = "bidirectional"


class ConsumerGroupSettings(NamedTuple):
    """The settings of one consumer group. Times in ms."""

    assignors: tuple[str, ...] = ("uniform", "range")
    """The assignors that members may choose; the first one is the default."""
    max_size: int = 2**31 - 1
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    """The least time between two assignments of a group (KIP-1263)."""
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
