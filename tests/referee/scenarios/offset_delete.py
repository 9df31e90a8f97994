"""OffsetDelete."""

from barnabas.protocol.messages.offset_delete import (
    API,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tests.referee import given
from tests.referee.given import committed, offset_fetch, subscription
from tests.referee.scenario import Peer, Scenarios

scenario = Scenarios(API)


def delete(group: str, *wanted: tuple[str, list[int]]) -> OffsetDeleteRequest:
    topics = [
        OffsetDeleteRequestTopic(
            name=name,
            partitions=[OffsetDeleteRequestPartition(partition_index=p) for p in partitions],
        )
        for name, partitions in wanted
    ]
    return OffsetDeleteRequest(group_id=group, topics=topics)


@scenario
def one_of_two_offsets(s: Peer) -> None:
    to, group = given.topic(s, partitions=2), s.name("g")
    committed(s, group, to, 1)
    committed(s, group, to, 2, partition=1)
    s.ask(delete(group, (to.name, [1])))
    s.ask(offset_fetch(10, group, (to, [0, 1])))


@scenario
def the_last_offset_ends_the_group(s: Peer) -> None:
    to, group = given.topic(s), s.name("g")
    committed(s, group, to, 1)
    s.ask(delete(group, (to.name, [0])))
    s.ask(offset_fetch(10, group, (to, [0])))
    s.ask(delete(group, (to.name, [0])))


@scenario
def an_unknown_group(s: Peer) -> None:
    to = given.topic(s)
    s.ask(delete(s.name("unknown"), (to.name, [0])))


@scenario
def a_group_without_a_name(s: Peer) -> None:
    to = given.topic(s)
    s.ask(delete("", (to.name, [0])))


@scenario
def an_offset_that_was_never_committed(s: Peer) -> None:
    to, group = given.topic(s, partitions=2), s.name("g")
    committed(s, group, to, 1)
    s.ask(delete(group, (to.name, [1])))


@scenario
def an_unknown_topic_and_partition(s: Peer) -> None:
    to, group = given.topic(s), s.name("g")
    committed(s, group, to, 1)
    s.ask(delete(group, (s.name("unknown"), [0]), (to.name, [8, 0])))


@scenario
def a_topic_that_members_subscribe_to(s: Peer) -> None:
    to, other = given.topic(s), given.topic(s, "other")
    me = given.member(s, protocols={"range": subscription(to.name)})
    for topic in (to, other):
        s.do(given.commit(me.group, topic, 1, member_id=me.id, generation=me.generation))
    s.ask(delete(me.group, (to.name, [0]), (other.name, [0])))
    s.ask(offset_fetch(10, me.group, (to, [0]), (other, [0])))


@scenario
def a_group_of_another_protocol_with_members(s: Peer) -> None:
    to, me = given.topic(s), given.member(s, protocol_type="connect")
    s.do(given.commit(me.group, to, 1, member_id=me.id, generation=me.generation))
    s.ask(delete(me.group, (to.name, [0])))


@scenario
def no_topics(s: Peer) -> None:
    to, group = given.topic(s), s.name("g")
    committed(s, group, to, 1)
    s.ask(delete(group))
