"""The log of a broker's latest events: bounds, sequence numbers, and the lines of the log."""

import json
import logging
from typing import Any

import pytest

from barnabas.broker.observability.events import (
    BROKER_STARTED,
    FAULT_SET,
    FEW,
    GROUP_REBALANCE,
    ISR_CHANGED,
    KINDS,
    LEADER_ELECTED,
    LONGEST_NAME,
    LONGEST_TEXT,
    MOST_BYTES,
    MOST_EVENTS,
    EventLog,
)
from barnabas.broker.observability.logging import get_logger
from barnabas.protocol.topic_partition import TopicPartition

LOG = get_logger(__name__)


class Clock:
    def __init__(self) -> None:
        self.ms = 1_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1000


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def events(clock: Clock) -> EventLog:
    return EventLog(7, clock)


def after(events: EventLog, sequence: int = 0) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(events.after(sequence))
    return answer


def rebalance(events: EventLog, group: str = "g", reason: str = "why") -> None:
    events.add(LOG, GROUP_REBALANCE, group=group, protocol="classic", reason=reason)


def test_event_has_sequence_time_kind_subject_and_text(events: EventLog, clock: Clock) -> None:
    events.add(LOG, ISR_CHANGED, topic="t", partition=0, before=[1, 2], now=[1])
    clock.ms = 2_000
    events.add(LOG, BROKER_STARTED, last_run="clean")
    assert after(events) == {
        "broker": 7,
        "run": "1000",
        "dropped": 0,
        "events": [
            {
                "sequence": 1,
                "time_ms": 1_000,
                "kind": "isr_changed",
                "subject": {"topic": "t", "partition": 0},
                "text": "ISR changed: before [1, 2], now [1]",
            },
            {
                "sequence": 2,
                "time_ms": 2_000,
                "kind": "broker_started",
                "subject": {"broker": 7},
                "text": "broker started: last_run clean",
            },
        ],
    }


def test_event_is_a_line_of_the_log_of_its_caller(
    events: EventLog, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        events.add(LOG, ISR_CHANGED, topic="t", partition=0, before=[1, 2], now=[1])
        rebalance(events)
    assert [(each.name, each.levelname, each.getMessage()) for each in caplog.records] == [
        (__name__, "INFO", "ISR changed topic='t' partition=0 before=[1, 2] now=[1]"),
        (__name__, "DEBUG", "group rebalances group='g' protocol='classic' reason='why'"),
    ]


def test_only_later_events_are_returned(events: EventLog) -> None:
    for _ in range(5):
        rebalance(events)
    assert [each["sequence"] for each in after(events, 3)["events"]] == [4, 5]
    assert after(events, 5)["events"] == []
    # That of a follower of an earlier run.
    assert after(events, 99) == {"broker": 7, "run": "1000", "dropped": 0, "events": []}


def test_many_events_of_a_kind_drop_none_of_another(events: EventLog) -> None:
    events.add(LOG, LEADER_ELECTED, topic="t", partition=0, leader=1)
    for _ in range(MOST_EVENTS + 10):
        rebalance(events)
    answer = after(events)
    assert answer["dropped"] == 10
    kinds = [each["kind"] for each in answer["events"]]
    assert kinds == ["leader_elected"] + ["group_rebalance"] * MOST_EVENTS
    sequences = [each["sequence"] for each in answer["events"]]
    assert sequences == sorted(sequences)
    # Of those that were not read before.
    assert after(events, 6)["dropped"] == 5


def test_event_has_the_values_of_its_time(events: EventLog) -> None:
    now = [1, 2]
    events.add(LOG, ISR_CHANGED, topic="t", partition=0, before=[1], now=now)
    now.remove(2)
    assert after(events)["events"][0]["text"] == "ISR changed: before [1], now [1, 2]"


def test_events_that_were_read_are_dropped_before_later_ones(events: EventLog) -> None:
    for _ in range(3):
        rebalance(events)
    assert len(after(events)["events"]) == 3
    for _ in range(MOST_EVENTS - 1):
        rebalance(events)
    answer = after(events)
    assert [each["sequence"] for each in answer["events"]] == [*range(3, MOST_EVENTS + 3)]
    assert answer["dropped"] == 2


def test_names_and_texts_of_clients_take_bounded_memory(events: EventLog) -> None:
    for _ in range(MOST_EVENTS):
        rebalance(events, "\x00é" * 20_000, "\U0001f600" * 20_000)
    answer = events.after(0)
    assert len(answer) < MOST_BYTES * 1.1
    event = json.loads(answer)["events"][-1]
    assert len(event["subject"]["group"]) == LONGEST_NAME
    assert len(event["text"]) == LONGEST_TEXT
    assert len(json.loads(answer)["events"]) > 5


def test_decision_about_many_partitions_adds_the_first_and_a_count(events: EventLog) -> None:
    with events.of_partitions(LOG) as add:
        for number in range(FEW + 3):
            add(LEADER_ELECTED, TopicPartition("t", number), leader=1)
        add(ISR_CHANGED, TopicPartition("t", 0), before=[1, 2], now=[1])
    answer = after(events)["events"]
    assert [each["subject"].get("partition") for each in answer] == [*range(FEW), 0, None]
    assert (answer[-1]["kind"], answer[-1]["text"]) == (
        "leader_elected",
        "leader elected: more_partitions 3",
    )


def test_internal_topics_hide_no_partition_of_a_decision(events: EventLog) -> None:
    with events.of_partitions(LOG) as add:
        for number in range(FEW):
            add(LEADER_ELECTED, TopicPartition("__consumer_offsets", number), leader=1)
        add(LEADER_ELECTED, TopicPartition("t", 5), leader=1)
    subjects = [each["subject"] for each in after(events)["events"]]
    assert subjects[0] == {"topic": "t", "partition": 5}
    assert len(subjects) == FEW + 1


def test_names_of_kinds_differ() -> None:
    names = [each.name for each in KINDS]
    assert FAULT_SET in KINDS
    assert len({*names}) == len(names)
    assert len({each.text for each in KINDS}) == len(names)
