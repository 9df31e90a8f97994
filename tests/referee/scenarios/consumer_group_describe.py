"""ConsumerGroupDescribe, and the other requests for consumer groups."""

from typing import Any

from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.protocol.messages.consumer_group_describe import API
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.list_groups import ListGroupsRequest
from barnabas.protocol.messages.offset_commit import OffsetCommitRequest
from barnabas.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.referee import given
from tests.referee.consumers import beat, describe, stable, topic
from tests.referee.scenario import Peer, Scenarios

scenario = Scenarios(API)


@scenario
def a_group_with_members(s: Peer) -> None:
    to, group = topic(s, partitions=3), s.name("g")
    stable(s, group, "a", to, instance_id="i", rack_id="r")
    stable(s, group, "b", to)
    s.ask(describe(group))
    s.ask(describe(group, include_authorized_operations=True))


@scenario
def an_empty_group(s: Peer) -> None:
    group = s.name("g")
    stable(s, group, "a")
    s.do(beat(group, "a", -1))
    s.ask(describe(group))


@scenario
def unknown_groups(s: Peer) -> None:
    group = s.name("g")
    stable(s, group, "a")
    s.ask(describe(s.name("none"), group, ""))
    s.ask(describe())


@scenario
def a_classic_group(s: Peer) -> None:
    me = given.member(s)
    s.ask(describe(me.group))


@scenario
def a_group_with_offsets_only(s: Peer) -> None:
    to, group = topic(s), s.name("g")
    given.committed(s, group, to, 1)
    s.ask(describe(group))


@scenario
def the_older_request_does_not_know_the_group(s: Peer) -> None:
    group = s.name("g")
    stable(s, group, "a")
    for version in (0, 5, 6):
        s.ask(DescribeGroupsRequest(groups=[group]), version=version)


@scenario
def a_group_in_lists(s: Peer) -> None:
    to, group = topic(s, partitions=2), s.name("g")
    stable(s, group, "a", to)

    def ask(states: list[str], types: list[str]) -> None:
        request = ListGroupsRequest(states_filter=states, types_filter=types)
        s.ask(request, pick=lambda r: [each for each in r.groups if each.group_id == group])

    for states, types in (
        ([], []),
        (["stable"], []),
        (["Stable"], ["Consumer"]),
        (["empty"], ["consumer"]),
        ([], ["classic"]),
        (["reconciling", "assigning"], []),
    ):
        ask(states, types)
    stable(s, group, "b", to)
    ask(["reconciling"], [])
    s.do(beat(group, "a", -1))
    s.do(beat(group, "b", -1))
    ask([], [])


@scenario
def a_group_with_members_is_not_deleted(s: Peer) -> None:
    group = s.name("g")
    stable(s, group, "a")
    s.ask(DeleteGroupsRequest(groups_names=[group]))
    s.do(beat(group, "a", -1))
    s.ask(DeleteGroupsRequest(groups_names=[group]))
    s.ask(DeleteGroupsRequest(groups_names=[group]))
    s.ask(describe(group))


# -- offsets ---------------------------------------------------------------------------------------


def commit(group: str, to: given.Topic, member: str, epoch: int, *indexes: int) -> Any:
    request = given.commit(group, to, 7)
    request.member_id, request.generation_id_or_member_epoch = member, epoch
    (topic,) = request.topics
    (partition,) = topic.partitions
    topic.partitions = [
        type(partition)(
            partition_index=index,
            committed_offset=7,
            committed_leader_epoch=-1,
            committed_metadata="",
        )
        for index in indexes or (0,)
    ]
    assert isinstance(request, OffsetCommitRequest)
    return request


@scenario
def commits_of_members(s: Peer) -> None:
    to, group = topic(s, partitions=2), s.name("g")
    stable(s, group, "a", to)
    for member, epoch in (("a", 2), ("a", 1), ("a", 3), ("a", -1), ("", -1), ("b", 2), ("", 2)):
        for version in (8, 9, 10):
            s.ask(commit(group, to, member, epoch), version=version)


@scenario
def commits_of_earlier_epochs(s: Peer) -> None:
    to, group = topic(s, partitions=3), s.name("g")
    stable(s, group, "a", to)
    stable(s, group, "b", to)
    s.do(beat(group, "a", 2, topic_partitions=[]))
    s.do(beat(group, "b", 3))
    for epoch in (1, 2, 3, 4):
        for indexes in ((0,), (1,), (2,), (0, 1), (0, 2), (0, 1, 2)):
            s.ask(commit(group, to, "a", epoch, *indexes), version=9)
            s.ask(commit(group, to, "b", epoch, *indexes), version=9)


@scenario
def commits_while_partitions_are_given_up(s: Peer) -> None:
    to, group = topic(s, partitions=2), s.name("g")
    stable(s, group, "a", to)
    stable(s, group, "b", to)
    s.do(beat(group, "a", 2))
    s.ask(commit(group, to, "a", 2, 0, 1), version=9)
    s.ask(commit(group, to, "a", 1, 0, 1), version=9)
    s.ask(commit(group, to, "a", 0, 1), version=9)


@scenario
def commits_to_an_empty_group(s: Peer) -> None:
    to, group = topic(s), s.name("g")
    stable(s, group, "a", to)
    s.do(beat(group, "a", -1))
    for member, epoch in (("", -1), ("a", -1), ("a", 2), ("", 0)):
        s.ask(commit(group, to, member, epoch), version=9)


@scenario
def offsets_are_fetched_by_members(s: Peer) -> None:
    to, group = topic(s), s.name("g")
    stable(s, group, "a", to)
    s.do(commit(group, to, "a", 2))
    for member, epoch in (
        (None, -1),
        ("a", 2),
        ("a", 1),
        ("a", 3),
        ("a", -1),
        ("b", 2),
        ("", -1),
    ):
        for version in (8, 9, 10):
            asked = OffsetFetchRequestGroup(
                group_id=group, member_id=member, member_epoch=epoch, topics=None
            )
            s.ask(OffsetFetchRequest(groups=[asked]), version=version)


@scenario
def offsets_of_subscribed_topics_are_kept(s: Peer) -> None:
    one, two = topic(s, "one"), topic(s, "two")
    group = s.name("g")
    given.committed(s, group, one, 1)
    given.committed(s, group, two, 1)
    stable(s, group, "a", one)
    partitions = [OffsetDeleteRequestPartition(partition_index=0)]
    topics = [OffsetDeleteRequestTopic(name=n, partitions=partitions) for n in (one.name, two.name)]
    s.ask(OffsetDeleteRequest(group_id=group, topics=topics))
    s.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)]))
    s.do(beat(group, "a", -1))
    s.ask(OffsetDeleteRequest(group_id=group, topics=topics))
    s.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)]))


@scenario
def offsets_in_transactions(s: Peer) -> None:
    to, group, tid = topic(s, partitions=3), s.name("g"), s.name("tid")
    stable(s, group, "a", to)
    stable(s, group, "b", to)
    s.do(beat(group, "a", 2, topic_partitions=[]))
    producer = s.do(
        InitProducerIdRequest(transactional_id=tid, transaction_timeout_ms=60_000),
        until=lambda r: r.error_code == 0,
        version=5,
    )
    s.do(
        AddOffsetsToTxnRequest(
            transactional_id=tid,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            group_id=group,
        ),
        until=lambda r: r.error_code == 0,
    )
    for member, epoch in (("a", 3), ("a", 2), ("a", 1), ("a", 4), ("b", 3), ("none", 3), ("", -1)):
        for version in (0, 3, 4):
            partition = TxnOffsetCommitRequestPartition(
                partition_index=0, committed_offset=1, committed_metadata=""
            )
            s.ask(
                TxnOffsetCommitRequest(
                    transactional_id=tid,
                    group_id=group,
                    producer_id=producer.producer_id,
                    producer_epoch=producer.producer_epoch,
                    generation_id=epoch if version else -1,
                    member_id=member if version else "",
                    topics=[TxnOffsetCommitRequestTopic(name=to.name, partitions=[partition])],
                ),
                version=version,
            )


# -- the classic protocol --------------------------------------------------------------------------


@scenario
def classic_requests_to_a_member(s: Peer) -> None:
    to, group = topic(s), s.name("g")
    stable(s, group, "a", to)
    s.ask(given.sync(group, 2, "a"))
    s.ask(given.heartbeat(given.Member(group, "a", 2)))
    s.ask(given.heartbeat(given.Member(group, "none", 2)))


@scenario
def an_empty_group_takes_classic_members(s: Peer) -> None:
    to, group = topic(s), s.name("g")
    stable(s, group, "a", to)
    s.do(commit(group, to, "a", 2))
    s.do(beat(group, "a", -1))
    joined = s.do(given.join(group, given.member_id(s, group)))
    s.ask(describe(group))
    s.do(given.sync(group, joined.generation_id, joined.member_id, {joined.member_id: b"x"}))
    s.ask(DescribeGroupsRequest(groups=[group]))
    s.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)]))
