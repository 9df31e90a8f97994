"""Metadata: brokers, topics by name and by id, and topics that the request creates."""

from typing import Any

from barnabas.protocol.codec import encode
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.metadata import API, MetadataRequest, MetadataRequestTopic
from tests.referee import given
from tests.referee.scenario import Peer, Scenarios

scenario = Scenarios(API)


def named(*names: str, create: bool = True, **options: Any) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=create, **options)


def identified(*ids: bytes) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=i) for i in ids])


def has_leaders(answer: Any) -> bool:
    return all(topic.error_code == 0 for topic in answer.topics)


@scenario
def a_topic_of_three_partitions(s: Peer) -> None:
    to = given.topic(s, partitions=3)
    s.ask(named(to.name))


@scenario
def all_topics(s: Peer) -> None:
    to = given.topic(s)

    def mine(answer: Any) -> Any:
        return [topic for topic in answer.topics if topic.name == to.name]

    s.ask(MetadataRequest(topics=None if s.version else []), pick=mine)


@scenario(since=1)
def a_byte_after_the_end(s: Peer) -> None:
    s.ask_bytes(encode(MetadataRequest(topics=[]), s.version) + b"\x00", s.version)


@scenario(since=1)
def no_topics(s: Peer) -> None:
    s.ask(MetadataRequest(topics=[]))


@scenario(until=3)
def the_request_creates_the_topic(s: Peer) -> None:
    name = s.name()
    s.ask(named(name))
    s.ask(named(name), until=has_leaders)
    given.wait_for_leaders(s, name)
    to = given.Topic(name, s.do(named(name)).topics[0].topic_id)
    s.ask(given.produce(to, given.batch(b"a")))
    s.ask(given.fetch(to))


@scenario(since=4)
def the_request_creates_the_topic_if_allowed(s: Peer) -> None:
    s.ask(named(s.name(), create=False))
    s.ask(named(s.name()))
    s.ask(named(s.name()), until=has_leaders)


@scenario(since=4)
def an_unknown_topic_that_must_not_be_created(s: Peer) -> None:
    s.ask(named(s.name(), create=False))


@scenario
def names_that_no_topic_may_have(s: Peer) -> None:
    s.ask(named("no/slash", "..", "x" * 250))


@scenario(since=4)
def a_name_without_characters(s: Peer) -> None:
    s.ask(named("", create=False))


@scenario
def the_same_topic_twice(s: Peer) -> None:
    to = given.topic(s)
    s.ask(named(to.name, to.name))


@scenario(since=4)
def known_and_unknown_topics_together(s: Peer) -> None:
    to = given.topic(s)
    s.ask(named(to.name, s.name("unknown"), create=False))


@scenario(since=8)
def authorized_operations_without_an_authorizer(s: Peer) -> None:
    to = given.topic(s)
    options = {"include_cluster_authorized_operations": True} if s.version <= 10 else {}
    s.ask(named(to.name, include_topic_authorized_operations=True, **options))


@scenario(since=12)
def a_topic_by_its_id(s: Peer) -> None:
    to = given.topic(s, partitions=2)
    s.ask(identified(to.id))
    s.do(DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=to.id)], timeout_ms=10_000))
    s.ask(identified(to.id), until=lambda r: r.topics[0].error_code != 0)


@scenario(since=12)
def an_unknown_id(s: Peer) -> None:
    s.ask(identified(b"0123456789abcdef"))


@scenario(since=10, until=11)
def an_id_before_ids_are_supported(s: Peer) -> None:
    to = given.topic(s)
    s.ask(MetadataRequest(topics=[MetadataRequestTopic(name=to.name, topic_id=to.id)]))


@scenario
def a_deleted_topic_is_gone(s: Peer) -> None:
    to = given.topic(s)
    s.ask(named(to.name))
    gone = DeleteTopicsRequest(topics=[DeleteTopicState(name=to.name)], timeout_ms=10_000)
    s.do(gone)
    s.do(named(to.name, create=False), until=lambda r: r.topics[0].error_code == 3)
    other = given.topic(s, "other")
    if s.version >= 4:
        s.ask(named(to.name, other.name, create=False))
    else:
        s.ask(named(other.name))


@scenario
def an_internal_topic_says_so(s: Peer) -> None:
    s.ask(named("__consumer_offsets"))


@scenario(since=12)
def neither_a_name_nor_an_id(s: Peer) -> None:
    s.ask(MetadataRequest(topics=[MetadataRequestTopic(name=None)]))


@scenario(since=12)
def a_name_and_an_id(s: Peer) -> None:
    to = given.topic(s)
    s.ask(MetadataRequest(topics=[MetadataRequestTopic(name=to.name, topic_id=to.id)]))


@scenario(since=12)
def some_ids_unknown_or_repeated(s: Peer) -> None:
    to, other = given.topic(s), given.topic(s, "other")
    s.ask(identified(to.id, b"0123456789abcdef", to.id, other.id))
