"""DescribeProducers: the producers of a partition, and the starts of open transactions."""

from barnabas.protocol.messages.describe_producers import (
    API,
    DescribeProducersRequest,
    TopicRequest,
)
from tests.referee import given
from tests.referee.scenario import LEVELS, Peer, Scenarios
from tests.referee.transactions import markers, producer

scenario = Scenarios(API, LEVELS)


def of(name: str, *partitions: int) -> DescribeProducersRequest:
    topic = TopicRequest(name=name, partition_indexes=list(partitions or (0,)))
    return DescribeProducersRequest(topics=[topic])


@scenario
def no_producer(s: Peer) -> None:
    to = given.topic(s)
    s.ask(of(to.name))
    given.records(s, to, b"a")
    s.ask(of(to.name))


@scenario
def an_idempotent_producer(s: Peer) -> None:
    to = given.topic(s)
    id, epoch = given.producer_id(s)
    given.records(s, to, b"a", b"b", producer_id=id, producer_epoch=epoch, base_sequence=0)
    s.ask(of(to.name))


@scenario
def an_open_transaction(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    given.records(s, to, b"plain")
    x.write(to, b"a").write(to, b"b")
    s.ask(of(to.name))


@scenario
def a_partition_that_was_added_alone(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.do(x.add(to))
    s.ask(of(to.name))


@scenario
def after_a_commit_and_an_abort(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.write(to).finish()
    s.ask(of(to.name))
    x.write(to).finish(committed=False)
    s.ask(of(to.name))


@scenario
def a_newer_epoch(s: Peer) -> None:
    to = given.topic(s)
    producer(s).write(to)
    s.ask(of(to.name))
    producer(s).write(to)
    s.ask(of(to.name))


@scenario
def several_producers(s: Peer) -> None:
    to, x, y = given.topic(s), producer(s), producer(s, "y")
    x.write(to).finish()
    y.write(to)
    s.ask(of(to.name))


@scenario
def epochs_of_coordinators(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    s.do(markers(x, to, coordinator_epoch=5))
    s.ask(of(to.name))


@scenario
def several_partitions_and_unknown_ones(s: Peer) -> None:
    to, x = given.topic(s, partitions=2), producer(s)
    x.write(to, partition=1)
    s.ask(of(to.name, 0, 1, 7, -1))
    s.ask(of(s.name("unknown")))
    s.ask(DescribeProducersRequest(topics=[]))
    s.ask(DescribeProducersRequest(topics=[TopicRequest(name=to.name, partition_indexes=[])]))


@scenario
def names_that_no_topic_may_have(s: Peer) -> None:
    s.ask(of("a/b"))
    s.ask(of(""))


@scenario
def records_that_are_deleted(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.write(to, b"a", b"b").finish()
    s.do(given.delete_records(to, -1))
    s.ask(of(to.name))


@scenario
def the_same_topic_twice(s: Peer) -> None:
    to = given.topic(s, partitions=2)
    given.records(s, to, b"a")
    twice = DescribeProducersRequest(
        topics=[TopicRequest(name=to.name, partition_indexes=[each]) for each in (0, 1)]
    )
    s.ask(twice)


@scenario
def the_same_partition_twice(s: Peer) -> None:
    to = given.topic(s)
    id, epoch = given.producer_id(s)
    given.records(s, to, b"a", producer_id=id, producer_epoch=epoch, base_sequence=0)
    again = TopicRequest(name=to.name, partition_indexes=[0])
    s.ask(DescribeProducersRequest(topics=[again, again]))
