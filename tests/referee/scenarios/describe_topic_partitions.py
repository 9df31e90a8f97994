"""DescribeTopicPartitions: topics in pages."""

from typing import Any

from barnabas.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.describe_topic_partitions import (
    API,
    CursorInRequest,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from tests.referee import given
from tests.referee.scenario import Peer, Scenarios

scenario = Scenarios(API)


def describe(
    *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> DescribeTopicPartitionsRequest:
    at = None
    if cursor is not None:
        at = CursorInRequest(topic_name=cursor[0], partition_index=cursor[1])
    topics = [TopicRequest(name=name) for name in names]
    return DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=limit, cursor=at)


def three_topics(s: Peer) -> list[str]:
    return [given.topic(s, suffix, partitions=3).name for suffix in "abc"]


@scenario
def topics_in_the_order_of_their_names(s: Peer) -> None:
    names = three_topics(s)
    s.ask(describe(*reversed(names)))


@scenario
def an_unknown_topic_between_known_ones(s: Peer) -> None:
    names = three_topics(s)
    s.ask(describe(names[0], s.name("aa"), names[1]))


@scenario
def page_by_page(s: Peer) -> None:
    names = three_topics(s)
    cursor: tuple[str, int] | None = None
    for _ in range(5):
        page: Any = s.ask(describe(*names, limit=2, cursor=cursor))
        if page.next_cursor is None:
            break
        cursor = page.next_cursor.topic_name, page.next_cursor.partition_index


@scenario
def a_page_that_ends_with_a_topic(s: Peer) -> None:
    names = three_topics(s)
    s.ask(describe(*names, limit=3))
    s.ask(describe(*names, limit=3, cursor=(names[1], 0)))
    s.ask(describe(*names, limit=9))


@scenario
def a_cursor_at_a_topic_that_was_deleted(s: Peer) -> None:
    names = three_topics(s)
    s.do(DeleteTopicsRequest(topics=[DeleteTopicState(name=names[1])], timeout_ms=10_000))
    gone = describe(names[1])
    s.do(gone, until=lambda r: r.topics[0].error_code != 0)
    s.ask(describe(*names, cursor=(names[1], 1)))
    s.ask(describe(names[0], names[2], cursor=(names[1], 1)))


@scenario
def a_cursor_behind_the_last_partition(s: Peer) -> None:
    names = three_topics(s)
    s.ask(describe(*names, cursor=(names[0], 9)))
    s.ask(describe(*names, cursor=(names[2], 3)))


@scenario
def a_cursor_that_is_not_possible(s: Peer) -> None:
    names = three_topics(s)
    s.ask(describe(*names, cursor=(names[0], -1)))


@scenario
def limits_that_are_not_possible(s: Peer) -> None:
    names = three_topics(s)
    s.ask(describe(*names, limit=0))
    s.ask(describe(*names, limit=-1))


@scenario
def after_partitions_were_added(s: Peer) -> None:
    to = given.topic(s)
    s.ask(describe(to.name))
    grown = CreatePartitionsTopic(name=to.name, count=2, assignments=None)
    s.do(CreatePartitionsRequest(topics=[grown], timeout_ms=10_000, validate_only=False))
    given.wait_for_leaders(s, to.name, 2)
    s.ask(describe(to.name), until=lambda r: len(r.topics[0].partitions) == 2)


@scenario
def names_that_no_topic_may_have(s: Peer) -> None:
    s.ask(describe("no/slash", ""))
