"""DeleteTopics, by name and since version 6 by id."""

from barnabas.protocol.messages.delete_topics import API, DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.types import ZERO_UUID
from tests.referee import given
from tests.referee.scenario import Peer, Scenarios
from tests.referee.scenarios.create_topics import create, describe, new

scenario = Scenarios(API)

HIGHEST_BY_NAME_ONLY = 5


def delete(s: Peer, *names: str) -> DeleteTopicsRequest:
    if s.version > HIGHEST_BY_NAME_ONLY:
        topics = [DeleteTopicState(name=name) for name in names]
        return DeleteTopicsRequest(topics=topics, timeout_ms=10_000)
    return DeleteTopicsRequest(topic_names=list(names), timeout_ms=10_000)


def delete_ids(*ids: bytes) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(
        topics=[DeleteTopicState(topic_id=i) for i in ids], timeout_ms=10_000
    )


@scenario
def a_topic_with_records(s: Peer) -> None:
    to = given.topic(s, partitions=2)
    given.records(s, to, b"a")
    s.ask(delete(s, to.name))
    s.ask(describe(to.name), until=lambda r: r.topics[0].error_code != 0)
    s.ask(
        given.list_offsets(to.name, (0, -1)), until=lambda r: r.topics[0].partitions[0].error_code
    )
    s.ask(delete(s, to.name))


@scenario
def created_again_it_is_empty(s: Peer) -> None:
    to = given.topic(s)
    given.records(s, to, b"a", b"b")
    s.ask(delete(s, to.name))
    s.do(describe(to.name), until=lambda r: r.topics[0].error_code != 0)
    s.ask(create(new(to.name)))
    given.wait_for_leaders(s, to.name)
    s.ask(given.list_offsets(to.name, (0, -1)))


@scenario
def an_unknown_topic(s: Peer) -> None:
    s.ask(delete(s, s.name()))


@scenario
def known_and_unknown_together(s: Peer) -> None:
    to = given.topic(s)
    s.ask(delete(s, to.name, s.name("unknown")))
    s.ask(describe(to.name), until=lambda r: r.topics[0].error_code != 0)


@scenario
def the_same_name_twice(s: Peer) -> None:
    to = given.topic(s)
    s.ask(delete(s, to.name, to.name))


@scenario
def names_that_no_topic_may_have(s: Peer) -> None:
    s.ask(delete(s, "no/slash", ""))


@scenario
def no_topics(s: Peer) -> None:
    s.ask(delete(s))


@scenario(since=6)
def a_topic_by_its_id(s: Peer) -> None:
    to = given.topic(s)
    s.ask(delete_ids(to.id))
    s.ask(describe(to.name), until=lambda r: r.topics[0].error_code != 0)
    s.ask(delete_ids(to.id))


@scenario(since=6)
def an_unknown_id(s: Peer) -> None:
    s.ask(delete_ids(b"0123456789abcdef"))


@scenario(since=6)
def name_and_id_together(s: Peer) -> None:
    to = given.topic(s)
    both = DeleteTopicState(name=to.name, topic_id=to.id)
    s.ask(DeleteTopicsRequest(topics=[both], timeout_ms=10_000))


@scenario(since=6)
def neither_name_nor_id(s: Peer) -> None:
    nothing = DeleteTopicState(name=None, topic_id=ZERO_UUID)
    s.ask(DeleteTopicsRequest(topics=[nothing], timeout_ms=10_000))


@scenario
def a_timeout_below_zero(s: Peer) -> None:
    to = given.topic(s)
    request = delete(s, to.name)
    request.timeout_ms = -1
    s.do(request)
    s.ask(describe(to.name))
