"""The configuration of a consumer group. Times in ms."""

from enum import Enum
from typing import NamedTuple


class MigrationPolicy(Enum):
    """The conversions that groups with members may go through."""

    DISABLED = "disabled"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def upgrades(self) -> bool:
        """Whether a classic group becomes a consumer group with its first such member."""
        return self in (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def downgrades(self) -> bool:
        """Whether a consumer group becomes a classic group when its last such member leaves."""
        return self in (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)


class ConsumerGroupSettings(NamedTuple):
    """The broker's values, and those of the group's own configuration."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    offloads_assignment: bool = True
    """Whether assignments are computed outside of the event loop."""
    assignors: tuple[str, ...] = ("uniform", "range")
    """The names that members may choose; the first one is the default."""
    max_size: int = 2**31 - 1
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    regex_refresh_interval_ms: int = 600_000
