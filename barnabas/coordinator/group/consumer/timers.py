"""The names of the timers of a consumer group's members."""

from collections.abc import Iterator
from typing import Final

from barnabas.coordinator.decision import TimerKey

SESSION: Final = "consumer session"
REBALANCE: Final = "consumer rebalance"
JOIN: Final = "consumer join"
"""A classic member was asked to join again."""
SYNC: Final = "consumer sync"
"""A classic member has joined, and has to ask for its assignment."""


def timers_of(group_id: str, member_id: str) -> Iterator[TimerKey]:
    """Yield the timers of a member."""
    for kind in (SESSION, REBALANCE, JOIN, SYNC):
        yield (kind, group_id, member_id)
