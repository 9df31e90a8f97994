"""The events of transactional ids: bounded, and kept for the latest ids."""

import pytest

from barnabas.coordinator.transaction.events import (
    EVENT_LENGTH,
    EVENTS_PER_ID,
    EventHistory,
    TransactionEvent,
    events_of,
)
from barnabas.coordinator.transaction.transactional_id import TransactionalId

X, Y, Z = map(TransactionalId, "xyz")


@pytest.fixture(autouse=True)
def _without_events() -> None:
    for each in (X, Y, Z):
        each.events = None


def test_events_are_listed_oldest_first() -> None:
    history = EventHistory()
    history.note(X, 1, "a")
    history.came_from(X, "10.0.0.1")
    history.note(X, 2, "b")
    assert events_of(X, 7) == (7, [TransactionEvent(1, "a"), TransactionEvent(2, "b")], "10.0.0.1")
    assert events_of(Y, None) == (None, [], None)


def test_full_history_of_an_id_drops_its_oldest_event() -> None:
    history = EventHistory()
    for at in range(EVENTS_PER_ID + 3):
        history.note(X, at, "again")
    assert [event.at_ms for event in events_of(X, None).events] == list(range(3, EVENTS_PER_ID + 3))


def test_full_history_drops_id_whose_last_event_is_oldest() -> None:
    history = EventHistory(ids=2)
    history.note(X, 1, "a")
    history.note(Y, 2, "b")
    history.came_from(X, "host")
    history.note(Z, 3, "c")
    assert [len(events_of(each, None).events) for each in (X, Y, Z)] == [1, 0, 1]


def test_an_event_that_names_thousands_of_partitions_is_cut() -> None:
    history = EventHistory()
    history.note(X, 1, "begins " + ", ".join(f"t-{number}" for number in range(10_000)))
    (event,) = events_of(X, None).events
    assert len(event.text) == EVENT_LENGTH
    assert event.text.startswith("begins t-0, t-1")
    assert event.text.endswith("...")


def test_forgotten_id_has_no_events() -> None:
    history = EventHistory()
    history.note(X, 1, "a")
    history.forget(X)
    assert events_of(X, None).events == []
