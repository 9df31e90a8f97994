"""The broker's configuration of groups. Times in ms."""

from typing import Final, NamedTuple

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 300_000
"""The longest wait of a first JoinGroup: its client has no member id yet for heartbeats."""


class GroupSettings(NamedTuple):
    """Limits of groups and of committed offsets."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2**31 - 1
    offset_metadata_max_bytes: int = 4096
    offsets_retention_ms: int = 10_080 * 60_000
