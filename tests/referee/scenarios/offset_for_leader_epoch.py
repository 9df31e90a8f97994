"""OffsetForLeaderEpoch."""

from barnabas.protocol.messages.offset_for_leader_epoch import (
    API,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.referee import given
from tests.referee.scenario import Peer, Scenarios

scenario = Scenarios(API)


def ends(
    name: str, epoch: int, *, partition: int = 0, current: int = -1, replica_id: int = -1
) -> OffsetForLeaderEpochRequest:
    wanted = OffsetForLeaderPartition(
        partition=partition, leader_epoch=epoch, current_leader_epoch=current
    )
    topics = [OffsetForLeaderTopic(topic=name, partitions=[wanted])]
    return OffsetForLeaderEpochRequest(replica_id=replica_id, topics=topics)


@scenario
def the_current_epoch_grows_with_the_log(s: Peer) -> None:
    to = given.topic(s)
    s.ask(ends(to.name, 0))
    given.records(s, to, b"a", b"b")
    s.ask(ends(to.name, 0))
    given.records(s, to, b"c")
    s.ask(ends(to.name, 0))


@scenario
def an_epoch_of_the_future(s: Peer) -> None:
    to = given.topic(s)
    given.records(s, to, b"a")
    s.ask(ends(to.name, 5))


@scenario
def an_epoch_before_the_first(s: Peer) -> None:
    to = given.topic(s)
    given.records(s, to, b"a")
    s.ask(ends(to.name, -1))


@scenario
def the_clients_epoch_is_checked(s: Peer) -> None:
    to = given.topic(s)
    given.records(s, to, b"a")
    s.ask(ends(to.name, 0, current=0))
    s.ask(ends(to.name, 0, current=3))


@scenario
def an_unknown_topic_and_partition(s: Peer) -> None:
    to = given.topic(s)
    s.ask(ends(s.name("unknown"), 0))
    s.ask(ends(to.name, 0, partition=4))


@scenario
def as_a_replica_and_for_debugging(s: Peer) -> None:
    to = given.topic(s)
    given.records(s, to, b"a")
    s.ask(ends(to.name, 0, replica_id=1))
    s.ask(ends(to.name, 0, replica_id=-2))


@scenario
def the_same_partition_twice(s: Peer) -> None:
    to = given.topic(s)
    given.records(s, to, b"a")
    twice = ends(to.name, 0)
    twice.topics *= 2
    s.ask(twice)
