"""The latest events of each transactional id, which explain why a read_committed consumer is stuck.

They are in memory, bounded, and of this coordinator's time only. No decision is based on them.
"""

from collections import OrderedDict, deque
from collections.abc import Collection
from heapq import nsmallest
from typing import Final, NamedTuple, Protocol

from barnabas.protocol.topic_partition import TopicPartition

EVENTS_PER_ID: Final = 32
EVENT_LENGTH: Final = 200
"""The number of characters that are kept of an event."""
FEW: Final = 8
"""The partitions of an event that are kept as they are. The text of more is made at once, because
it is shorter than they are."""
IDS: Final = 5_000
"""Transactional ids whose events are kept, the latest ones: some 60 MB at the most."""


class TransactionEvent(NamedTuple):
    """An event at a wall-clock time in ms."""

    at_ms: int
    text: str


class TransactionEvents(NamedTuple):
    """The events of one transactional id."""

    time_left_ms: int | None
    """The time until the open transaction is aborted; None if none is open, or it has no
    timeout."""
    events: list[TransactionEvent]
    """Oldest first."""
    client_host: str | None
    """The address of the latest InitProducerId."""


class Events:
    """The latest events of an id, as they were noted."""

    __slots__ = ("client_host", "noted")

    def __init__(self) -> None:
        self.client_host: str | None = None
        self.noted: deque[_Noted] = deque(maxlen=EVENTS_PER_ID)


_Noted = tuple[int, str, Collection[TopicPartition]]
"""An event whose text is made when an operator asks for it: time, beginning, and partitions."""


class HasEvents(Protocol):
    """A transactional id."""

    events: Events | None


class EventHistory:
    """The transactional ids that have events: the latest ones."""

    def __init__(self, ids: int = IDS) -> None:
        self._ids = ids
        self._latest: OrderedDict[HasEvents, None] = OrderedDict()
        """Ordered by the latest event, oldest first."""

    def note(
        self,
        of: HasEvents,
        at_ms: int,
        text: str,
        partitions: Collection[TopicPartition] = (),
    ) -> deque[_Noted]:
        """Add an event, which may name partitions, and drop the oldest one if there are too many;
        return the events."""
        if len(partitions) > FEW or len(text) > EVENT_LENGTH:
            text, partitions = _shown(text, partitions), ()
        events = of.events
        if events is None:
            events = self._begin(of)
        else:
            self._latest.move_to_end(of)
        noted = events.noted
        noted.append((at_ms, text, partitions))
        return noted

    def came_from(self, of: HasEvents, client_host: str) -> None:
        """Note the address of a client that asks for the producer id."""
        (of.events or self._begin(of)).client_host = client_host
        self._latest.move_to_end(of)

    def forget(self, of: HasEvents) -> None:
        of.events = None
        self._latest.pop(of, None)

    def _begin(self, of: HasEvents) -> Events:
        if len(self._latest) >= self._ids:
            self._latest.popitem(last=False)[0].events = None
        events = of.events = Events()
        self._latest[of] = None
        return events


def events_of(of: HasEvents | None, time_left_ms: int | None) -> TransactionEvents:
    """Return the known events of an id, which may be none."""
    if of is None or of.events is None:
        return TransactionEvents(time_left_ms, [], None)
    noted = [TransactionEvent(at_ms, _shown(text, named)) for at_ms, text, named in of.events.noted]
    return TransactionEvents(time_left_ms, noted, of.events.client_host)


def _shown(text: str, partitions: Collection[TopicPartition]) -> str:
    """Return the text of an event; it may name thousands of partitions, and is cut off."""
    if partitions:
        first = nsmallest(EVENT_LENGTH // len("t-0, "), partitions)
        text = f"{text} {', '.join(f'{topic}-{partition}' for topic, partition in first)}"
    return text if len(text) <= EVENT_LENGTH else text[: EVENT_LENGTH - 3] + "..."
