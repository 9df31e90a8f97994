"""The events of transactional ids: bounded, and kept for the latest ids."""

from barnabas.coordinator.transaction.events import EVENT_LENGTH, EVENTS_PER_ID, Event, EventHistory


def test_events_are_listed_oldest_first() -> None:
    history = EventHistory()
    history.note("x", 1, "a")
    history.came_from("x", "10.0.0.1")
    history.note("x", 2, "b")
    assert history.of("x", 7) == (7, [Event(1, "a"), Event(2, "b")], "10.0.0.1")
    assert history.of("y", None) == (None, [], None)


def test_full_history_of_an_id_drops_its_oldest_event() -> None:
    history = EventHistory()
    for at in range(EVENTS_PER_ID + 3):
        history.note("x", at, "again")
    assert [event.at_ms for event in history.of("x", None).events] == list(
        range(3, EVENTS_PER_ID + 3)
    )


def test_full_history_drops_id_whose_last_event_is_oldest() -> None:
    history = EventHistory(ids=2)
    history.note("x", 1, "a")
    history.note("y", 2, "b")
    history.came_from("x", "host")
    history.note("z", 3, "c")
    assert [len(history.of(each, None).events) for each in "xyz"] == [1, 0, 1]


def test_an_event_that_names_thousands_of_partitions_is_cut() -> None:
    history = EventHistory()
    history.note("x", 1, "begins " + ", ".join(f"t-{number}" for number in range(10_000)))
    (event,) = history.of("x", None).events
    assert len(event.text) == EVENT_LENGTH
    assert event.text.startswith("begins t-0, t-1")
    assert event.text.endswith("...")


def test_forgotten_id_has_no_events() -> None:
    history = EventHistory()
    history.note("x", 1, "a")
    history.forget("x")
    assert history.of("x", None).events == []
