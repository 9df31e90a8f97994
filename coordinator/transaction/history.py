"""What happened to a transactional id of late, for people who ask why a reader stands still.

In memory, bounded, of this coordinator's time only: a diary, never a base for a decision.
"""

from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

EVENTS_PER_ID: Final = 32


class Event(NamedTuple):
    """Something that happened, at a wall-clock time in ms."""

    at_ms: int
    text: str


class History:
    """The latest events of each transactional id."""

    def __init__(self) -> None:
        self._events: dict[str, deque[Event]] = {}

    def note(self, transactional_id: str, at_ms: int, text: str) -> None:
        """Write an event down; the oldest one makes room."""
        events = self._events.get(transactional_id)
        if events is None:
            events = self._events[transactional_id] = deque(maxlen=EVENTS_PER_ID)
        events.append(Event(at_ms, text))

    def of(self, transactional_id: str) -> Iterator[Event]:
        """Oldest first."""
        return iter(self._events.get(transactional_id, ()))

    def forget(self, transactional_id: str) -> None:
        self._events.pop(transactional_id, None)
