"""The configuration of a consumer group. Times in ms."""

from typing import NamedTuple


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
    regex_refresh_interval_ms: int = 600_000
