"""DescribeLogDirs."""

from typing import Any

from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.describe_log_dirs import (
    API,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from tests.referee import given
from tests.referee.scenario import Peer, Scenarios

scenario = Scenarios(API)


def describe(*wanted: tuple[str, list[int]]) -> DescribeLogDirsRequest:
    topics = [DescribableLogDirTopic(topic=name, partitions=list(p)) for name, p in wanted]
    return DescribeLogDirsRequest(topics=topics)


@scenario
def the_size_of_a_partition(s: Peer) -> None:
    to = given.topic(s, partitions=2)
    s.ask(describe((to.name, [0, 1])))
    given.records(s, to, b"a" * 100)
    s.ask(describe((to.name, [0, 1])))
    given.records(s, to, b"b" * 1000)
    s.ask(describe((to.name, [0])))


@scenario
def all_topics(s: Peer) -> None:
    to = given.topic(s)
    given.records(s, to, b"a")

    def mine(answer: Any) -> Any:
        return [t for dir in answer.results for t in dir.topics if t.name == to.name]

    s.ask(DescribeLogDirsRequest(topics=None), pick=mine)


@scenario
def no_topics(s: Peer) -> None:
    s.ask(describe())


@scenario
def an_unknown_topic_and_partition(s: Peer) -> None:
    to = given.topic(s)
    s.ask(describe((s.name("unknown"), [0])))
    s.ask(describe((to.name, [0, 8])))


@scenario
def a_deleted_topic_is_gone(s: Peer) -> None:
    to = given.topic(s)
    given.records(s, to, b"a")
    s.ask(describe((to.name, [0])))
    s.do(DeleteTopicsRequest(topics=[DeleteTopicState(name=to.name)], timeout_ms=10_000))
    s.ask(describe((to.name, [0])), until=lambda r: not r.results[0].topics)


@scenario
def the_same_partition_twice(s: Peer) -> None:
    to = given.topic(s)
    s.ask(describe((to.name, [0, 0])))
