"""The diary of transactional ids: bounded, and of those that something happened to last."""

from barnabas.coordinator.transaction.history import EVENT_LENGTH, EVENTS_PER_ID, Event, History


def test_a_diary_has_what_was_noted_oldest_first() -> None:
    history = History()
    history.note("x", 1, "a")
    history.came_from("x", "10.0.0.1")
    history.note("x", 2, "b")
    assert history.of("x", 7) == (7, [Event(1, "a"), Event(2, "b")], "10.0.0.1")
    assert history.of("y", None) == (None, [], None)


def test_the_oldest_event_makes_room() -> None:
    history = History()
    for at in range(EVENTS_PER_ID + 3):
        history.note("x", at, "again")
    assert [event.at_ms for event in history.of("x", None).events] == list(
        range(3, EVENTS_PER_ID + 3)
    )


def test_the_diary_that_is_quiet_for_longest_makes_room() -> None:
    history = History(ids=2)
    history.note("x", 1, "a")
    history.note("y", 2, "b")
    history.came_from("x", "host")
    history.note("z", 3, "c")
    assert [len(history.of(each, None).events) for each in "xyz"] == [1, 0, 1]


def test_an_event_that_names_thousands_of_partitions_is_cut() -> None:
    history = History()
    history.note("x", 1, "begins " + ", ".join(f"t-{number}" for number in range(10_000)))
    (event,) = history.of("x", None).events
    assert len(event.text) == EVENT_LENGTH
    assert event.text.startswith("begins t-0, t-1")
    assert event.text.endswith("...")


def test_what_is_forgotten_is_gone() -> None:
    history = History()
    history.note("x", 1, "a")
    history.forget("x")
    assert history.of("x", None).events == []
