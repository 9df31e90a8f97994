"""OffsetFetch: one group, and since version 8 several."""

from typing import Any

from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.offset_fetch import (
    API,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.referee import given
from tests.referee.given import committed, offset_fetch
from tests.referee.scenario import Peer, Scenarios
from tests.referee.scenarios.txn_offset_commit import OLDER, is_stable, producer

scenario = Scenarios(API)

ALL_TOPICS = 2
STABLE = 7
ERROR_PER_GROUP = 8
BY_ID = 10


@scenario
def what_was_committed(s: Peer) -> None:
    to, group = given.topic(s, partitions=2), s.name("g")
    committed(s, group, to, 5)
    s.ask(offset_fetch(s.version, group, (to, [0, 1])))
    committed(s, group, to, 6, partition=1)
    s.ask(offset_fetch(s.version, group, (to, [1, 0])))


@scenario
def an_unknown_group(s: Peer) -> None:
    to = given.topic(s)
    s.ask(offset_fetch(s.version, s.name("unknown"), (to, [0])))


@scenario
def a_group_without_a_name(s: Peer) -> None:
    to = given.topic(s)
    s.ask(offset_fetch(s.version, "", (to, [0])))


@scenario
def an_unknown_topic_and_partition(s: Peer) -> None:
    to, group = given.topic(s), s.name("g")
    committed(s, group, to, 5)
    ghost = given.Topic(s.name("ghost"), b"0123456789abcdef")
    s.ask(offset_fetch(s.version, group, (ghost, [0])))
    s.ask(offset_fetch(s.version, group, (to, [0, 7])))


@scenario(since=ALL_TOPICS)
def all_topics(s: Peer) -> None:
    a, b, group = given.topic(s, "a"), given.topic(s, "b", partitions=2), s.name("g")
    s.ask(offset_fetch(s.version, group, None))
    committed(s, group, a, 1)
    committed(s, group, b, 2, partition=1)
    s.ask(offset_fetch(s.version, group, None))


@scenario
def no_topics(s: Peer) -> None:
    to, group = given.topic(s), s.name("g")
    committed(s, group, to, 5)
    s.ask(offset_fetch(s.version, group))


@scenario(since=7)
def stable_offsets_only(s: Peer) -> None:
    to, group = given.topic(s), s.name("g")
    committed(s, group, to, 5)
    s.ask(offset_fetch(s.version, group, (to, [0]), require_stable=True))


@scenario(since=ERROR_PER_GROUP)
def several_groups(s: Peer) -> None:
    to = given.topic(s)
    committed(s, s.name("a"), to, 1)
    committed(s, s.name("b"), to, 2)
    name, id = (to.name, bytes(16)) if s.version < BY_ID else ("", to.id)
    wanted = [OffsetFetchRequestTopics(name=name, topic_id=id, partition_indexes=[0])]
    groups: list[Any] = [
        OffsetFetchRequestGroup(group_id=s.name(suffix), topics=wanted) for suffix in "abc"
    ]
    s.ask(OffsetFetchRequest(groups=groups))


@scenario(since=9)
def as_a_member_of_a_classic_group(s: Peer) -> None:
    to, me = given.topic(s), given.member(s)
    request = offset_fetch(s.version, me.group, (to, [0]))
    request.groups[0].member_id = me.id
    request.groups[0].member_epoch = me.generation
    s.ask(request)
    request.groups[0].member_id = "unknown"
    s.ask(request)


@scenario
def a_group_with_members(s: Peer) -> None:
    to, me = given.topic(s), given.member(s)
    s.do(given.commit(me.group, to, 9, member_id=me.id, generation=me.generation))
    s.ask(offset_fetch(s.version, me.group, (to, [0])))


@scenario
def the_same_partition_twice(s: Peer) -> None:
    to, group = given.topic(s), s.name("g")
    committed(s, group, to, 5)
    s.ask(offset_fetch(s.version, group, (to, [0, 0]), (to, [0])))


@scenario
def after_the_topic_was_deleted(s: Peer) -> None:
    to, group = given.topic(s), s.name("g")
    committed(s, group, to, 5)
    gone = DeleteTopicsRequest(topics=[DeleteTopicState(name=to.name)], timeout_ms=10_000)
    s.do(gone)
    s.ask(
        given.list_offsets(to.name, (0, -1)), until=lambda r: r.topics[0].partitions[0].error_code
    )
    until = lambda r: -1 in offsets_of(r)  # noqa: E731
    s.ask(offset_fetch(s.version, group, (to, [0])), until=until if s.version < BY_ID else None)


def offsets_of(answer: Any) -> list[int]:
    topics = [*answer.topics, *(topic for group in answer.groups for topic in group.topics)]
    return [partition.committed_offset for topic in topics for partition in topic.partitions]


@scenario(since=ERROR_PER_GROUP)
def the_same_group_twice(s: Peer) -> None:
    to, group = given.topic(s), s.name("g")
    committed(s, group, to, 5)
    once = offset_fetch(s.version, group, (to, [0])).groups
    s.ask(OffsetFetchRequest(groups=[*once, *once]))


@scenario(since=ERROR_PER_GROUP)
def of_no_group(s: Peer) -> None:
    s.ask(OffsetFetchRequest(groups=[]))


@scenario
def an_open_transaction_and_its_end(s: Peer) -> None:
    to, x = given.topic(s), producer(s).joins()
    committed(s, x.group, to, 1)
    pending = x.commit((to, 0, 5))
    s.do(pending, version=OLDER, until=lambda r: r.topics[0].partitions[0].error_code == 0)
    s.ask(offset_fetch(s.version, x.group, (to, [0])))
    x.end()
    s.do(x.stable((to, [0])), until=is_stable)
    s.ask(offset_fetch(s.version, x.group, (to, [0])))


@scenario(since=STABLE)
def stable_offsets_beside_a_pending_one(s: Peer) -> None:
    to, other, x = given.topic(s, partitions=2), given.topic(s, "u"), producer(s).joins()
    committed(s, x.group, to, 1)
    committed(s, x.group, other, 2)
    pending = x.commit((to, 0, 5), (to, 1, 6))
    s.do(pending, version=OLDER, until=lambda r: r.topics[0].partitions[0].error_code == 0)
    wanted = ((to, [0, 1, 7]), (other, [0]))
    s.ask(offset_fetch(s.version, x.group, *wanted, require_stable=True))
    s.ask(offset_fetch(s.version, x.group, None, require_stable=True))
