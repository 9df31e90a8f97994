"""What happened to a transactional id of late, for people who ask why a reader stands still.

In memory, bounded, of this coordinator's time only: a diary, never a base for a decision.
"""

from collections import OrderedDict, deque
from typing import Final, NamedTuple

EVENTS_PER_ID: Final = 32
EVENT_LENGTH: Final = 200
"""Characters of an event that are kept."""
IDS: Final = 5_000
"""Transactional ids with a diary, those that something happened to last: some 60 MB at the most."""


class Event(NamedTuple):
    """Something that happened, at a wall-clock time in ms."""

    at_ms: int
    text: str


class Diary(NamedTuple):
    """What is told of one transactional id."""

    time_left_ms: int | None
    """Until the open transaction is aborted; None where none is open."""
    events: list[Event]
    """Oldest first."""
    client_host: str | None
    """Who asked for the producer id last."""


class _Pages:
    __slots__ = ("client_host", "events")

    def __init__(self) -> None:
        self.client_host: str | None = None
        self.events: deque[Event] = deque(maxlen=EVENTS_PER_ID)


class History:
    """The latest events of each transactional id."""

    def __init__(self, ids: int = IDS) -> None:
        self._ids = ids
        self._pages: OrderedDict[str, _Pages] = OrderedDict()
        """Last the one that something happened to last."""

    def note(self, transactional_id: str, at_ms: int, text: str) -> None:
        """Write an event down; the oldest one makes room."""
        # It may name thousands of partitions.
        shown = text if len(text) <= EVENT_LENGTH else text[: EVENT_LENGTH - 3] + "..."
        self._touch(transactional_id).events.append(Event(at_ms, shown))

    def came_from(self, transactional_id: str, client_host: str) -> None:
        """A client at this address asks for the producer id."""
        self._touch(transactional_id).client_host = client_host

    def of(self, transactional_id: str, time_left_ms: int | None) -> Diary:
        """What is known, which may be nothing."""
        pages = self._pages.get(transactional_id)
        if pages is None:
            return Diary(time_left_ms, [], None)
        return Diary(time_left_ms, list(pages.events), pages.client_host)

    def forget(self, transactional_id: str) -> None:
        self._pages.pop(transactional_id, None)

    def _touch(self, transactional_id: str) -> _Pages:
        pages = self._pages.get(transactional_id)
        if pages is None:
            if len(self._pages) >= self._ids:
                self._pages.popitem(last=False)
            pages = self._pages[transactional_id] = _Pages()
        else:
            self._pages.move_to_end(transactional_id)
        return pages
