"""CreatePartitions: a topic can grow, and cannot shrink."""

from typing import Any

from barnabas.protocol.messages.create_partitions import (
    API,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from tests.referee import given
from tests.referee.scenario import Peer, Scenarios
from tests.referee.scenarios.create_topics import describe

scenario = Scenarios(API)


def grow(
    name: str, count: int, assignments: list[list[int]] | None = None
) -> CreatePartitionsTopic:
    placed = None
    if assignments is not None:
        placed = [CreatePartitionsAssignment(broker_ids=brokers) for brokers in assignments]
    return CreatePartitionsTopic(name=name, count=count, assignments=placed)


def request(*topics: CreatePartitionsTopic, validate_only: bool = False) -> CreatePartitionsRequest:
    return CreatePartitionsRequest(
        topics=list(topics), timeout_ms=10_000, validate_only=validate_only
    )


def has(count: int) -> Any:
    return lambda answer: len(answer.topics[0].partitions) == count


@scenario
def from_one_to_three(s: Peer) -> None:
    to = given.topic(s)
    s.ask(request(grow(to.name, 3)))
    given.wait_for_leaders(s, to.name, 3)
    s.ask(describe(to.name), until=has(3))
    s.ask(given.produce(to, given.batch(b"a"), partition=2))
    s.ask(given.fetch(to, partition=2))


@scenario
def the_same_count_and_fewer(s: Peer) -> None:
    to = given.topic(s, partitions=2)
    s.ask(request(grow(to.name, 2)))
    s.ask(request(grow(to.name, 1)))
    s.ask(describe(to.name))


@scenario
def an_unknown_topic(s: Peer) -> None:
    s.ask(request(grow(s.name(), 3)))


@scenario
def a_count_that_is_not_possible(s: Peer) -> None:
    to = given.topic(s)
    s.ask(request(grow(to.name, 0)))
    s.ask(request(grow(to.name, -1)))


@scenario
def validate_only_changes_nothing(s: Peer) -> None:
    to = given.topic(s)
    s.ask(request(grow(to.name, 4), validate_only=True))
    s.ask(request(grow(s.name("unknown"), 4), validate_only=True))
    s.ask(describe(to.name))


@scenario
def new_partitions_placed_by_hand(s: Peer) -> None:
    to = given.topic(s)
    s.ask(request(grow(to.name, 3, [[1], [1]])))
    given.wait_for_leaders(s, to.name, 3)
    s.ask(describe(to.name), until=has(3))


@scenario
def placements_that_are_not_possible(s: Peer) -> None:
    to = given.topic(s)
    s.ask(request(grow(to.name, 3, [[1]])))
    s.ask(request(grow(to.name, 2, [[9]])))
    s.ask(request(grow(to.name, 2, [[1, 1]])))
    s.ask(request(grow(to.name, 2, [[]])))
    s.ask(describe(to.name))


@scenario
def the_same_topic_twice_in_one_request(s: Peer) -> None:
    to = given.topic(s)
    other = given.topic(s, "other")
    s.ask(request(grow(to.name, 2), grow(to.name, 3), grow(other.name, 2)))
    given.wait_for_leaders(s, other.name, 2)
    s.ask(describe(other.name), until=has(2))


@scenario
def no_topics(s: Peer) -> None:
    s.ask(request())


@scenario
def names_that_no_topic_may_have(s: Peer) -> None:
    s.ask(request(grow("no/slash", 2), grow("", 2)))
