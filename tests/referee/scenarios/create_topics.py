"""CreateTopics."""

from collections.abc import Mapping
from typing import Any

from barnabas.protocol.messages.create_topics import (
    API,
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.referee import given
from tests.referee.scenario import Peer, Scenarios

scenario = Scenarios(API)


def new(
    name: str,
    partitions: int = 1,
    replicas: int = 1,
    assignments: Mapping[int, list[int]] | None = None,
    **configs: str | None,
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
            for index, brokers in (assignments or {}).items()
        ],
        configs=[
            CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )


def create(*topics: CreatableTopic, **options: Any) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=list(topics), timeout_ms=10_000, **options)


def describe(*names: str) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False)


@scenario
def a_topic_of_three_partitions(s: Peer) -> None:
    s.ask(create(new(s.name(), partitions=3)))
    given.wait_for_leaders(s, s.name(), 3)
    s.ask(describe(s.name()))


@scenario
def created_written_and_read(s: Peer) -> None:
    s.ask(create(new(s.name())))
    given.wait_for_leaders(s, s.name())
    to = given.Topic(s.name(), s.do(describe(s.name())).topics[0].topic_id)
    s.ask(given.produce(to, given.batch(b"a", b"b")))
    s.ask(given.fetch(to))


@scenario
def a_topic_that_exists(s: Peer) -> None:
    s.ask(create(new(s.name())))
    given.wait_for_leaders(s, s.name())
    s.ask(create(new(s.name(), partitions=5)))
    s.ask(describe(s.name()))


@scenario
def several_of_which_one_exists(s: Peer) -> None:
    old = given.topic(s)
    s.ask(create(new(s.name("a")), new(old.name), new(s.name("b"))))
    given.wait_for_leaders(s, s.name("a"))
    given.wait_for_leaders(s, s.name("b"))
    s.ask(describe(s.name("a"), old.name, s.name("b")))


@scenario
def the_same_name_twice_in_one_request(s: Peer) -> None:
    s.ask(create(new(s.name()), new(s.name(), partitions=2), new(s.name("other"))))
    given.wait_for_leaders(s, s.name("other"))
    s.ask(describe(s.name(), s.name("other")))


@scenario
def validate_only_creates_nothing(s: Peer) -> None:
    s.ask(create(new(s.name(), partitions=2), validate_only=True))
    s.ask(describe(s.name()))
    s.ask(create(new(s.name(), partitions=2)))


@scenario
def names_that_no_topic_may_have(s: Peer) -> None:
    s.ask(create(*(new(name) for name in ("", ".", "..", "no/slash", "x" * 250, "späh"))))


@scenario
def a_name_that_collides_in_metrics(s: Peer) -> None:
    name = s.name("under_score")
    s.ask(create(new(name)))
    given.wait_for_leaders(s, name)
    s.ask(create(new(name.replace("_", "."))))
    s.ask(describe(name, name.replace("_", ".")))


@scenario
def counts_that_are_not_possible(s: Peer) -> None:
    s.ask(create(new(s.name("a"), partitions=0), new(s.name("b"), partitions=-2)))


@scenario
def more_replicas_than_brokers(s: Peer) -> None:
    s.ask(create(new(s.name(), replicas=3)))


@scenario
def replication_factors_that_are_not_possible(s: Peer) -> None:
    s.ask(create(new(s.name("a"), replicas=0), new(s.name("b"), replicas=-2)))


@scenario(since=4)
def the_brokers_defaults(s: Peer) -> None:
    s.ask(create(new(s.name(), partitions=-1, replicas=-1)))
    given.wait_for_leaders(s, s.name())
    s.ask(describe(s.name()))


@scenario(until=3)
def the_brokers_defaults_before_they_are_supported(s: Peer) -> None:
    s.ask(create(new(s.name(), partitions=-1, replicas=-1)))


@scenario
def replicas_assigned_by_hand(s: Peer) -> None:
    s.ask(create(new(s.name(), -1, -1, assignments={0: [1], 1: [1]})))
    given.wait_for_leaders(s, s.name(), 2)
    s.ask(describe(s.name()))


@scenario
def assignments_that_are_not_possible(s: Peer) -> None:
    s.ask(create(new(s.name("gap"), -1, -1, assignments={0: [1], 2: [1]})))
    s.ask(create(new(s.name("unknown"), -1, -1, assignments={0: [7]})))
    s.ask(create(new(s.name("twice"), -1, -1, assignments={0: [1, 1]})))
    s.ask(create(new(s.name("none"), -1, -1, assignments={0: []})))


@scenario
def assignments_and_counts_together(s: Peer) -> None:
    s.ask(create(new(s.name("a"), 2, -1, assignments={0: [1], 1: [1]})))
    s.ask(create(new(s.name("b"), -1, 1, assignments={0: [1]})))


@scenario
def configs_take_effect(s: Peer) -> None:
    s.ask(create(new(s.name(), cleanup_policy="compact", max_message_bytes="300")))
    given.wait_for_leaders(s, s.name())
    to = given.Topic(s.name(), s.do(describe(s.name())).topics[0].topic_id)
    s.ask(given.produce(to, given.batch(b"no key")))
    s.ask(given.produce(to, given.batch(b"x" * 400, key=b"k")))
    s.ask(given.produce(to, given.batch(b"x", key=b"k")))


@scenario
def configs_that_do_not_exist_or_fit(s: Peer) -> None:
    s.ask(create(new(s.name("a"), no_such_key="1")))
    s.ask(create(new(s.name("b"), retention_ms="soon")))
    s.ask(create(new(s.name("c"), cleanup_policy="burn")))
    s.ask(create(new(s.name("d"), segment_bytes="1")))
    s.ask(describe(s.name("a"), s.name("b"), s.name("c"), s.name("d")))


@scenario
def a_config_without_a_value(s: Peer) -> None:
    s.ask(create(new(s.name(), retention_ms=None)))


@scenario
def no_topics(s: Peer) -> None:
    s.ask(create())


@scenario
def internal_topics_exist_already(s: Peer) -> None:
    s.ask(create(new("__consumer_offsets")))


@scenario
def more_partitions_than_one_may_ask_for(s: Peer) -> None:
    s.ask(create(new(s.name("a"), partitions=2**31 - 1)))
    s.ask(create(new(s.name("b"), partitions=6_000), new(s.name("c"), partitions=6_000)))
    s.ask(create(new(s.name("no/slash")), new(s.name("d"), partitions=20_000)))
    s.ask(describe(s.name("a")))


@scenario
def a_timeout_below_zero(s: Peer) -> None:
    request = create(new(s.name()))
    request.timeout_ms = -1
    s.ask(request, pick=lambda answer: answer.topics[0].name)
