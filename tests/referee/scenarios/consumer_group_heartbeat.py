"""ConsumerGroupHeartbeat."""

from typing import Any

from barnabas.protocol.messages.consumer_group_heartbeat import API, TopicPartitions
from barnabas.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tests.referee import given
from tests.referee.consumers import beat, describe, join, name_topics, owned, stable, topic
from tests.referee.scenario import Peer, Scenarios

scenario = Scenarios(API)


# -- requests that are wrong -----------------------------------------------------------------------

JOIN: dict[str, Any] = {
    "subscribed_topic_names": [],
    "rebalance_timeout_ms": 1_000,
    "topic_partitions": [],
}
UNKNOWN_TOPIC = [TopicPartitions(topic_id=bytes(15) + b"\x07", partitions=[0])]
WRONG: dict[str, tuple[str, int, dict[str, Any]]] = {
    "joins_without_a_group": ("", 0, JOIN),
    "joins_with_a_blank_group": ("  ", 0, JOIN),
    "joins_without_a_timeout": ("g", 0, JOIN | {"rebalance_timeout_ms": -1}),
    "joins_with_a_negative_timeout": ("g", 0, JOIN | {"rebalance_timeout_ms": -2}),
    "joins_with_a_timeout_of_0": ("g", 0, JOIN | {"rebalance_timeout_ms": 0}),
    "joins_without_partitions": ("g", 0, JOIN | {"topic_partitions": None}),
    "joins_with_partitions": ("g", 0, JOIN | {"topic_partitions": UNKNOWN_TOPIC}),
    "joins_without_a_subscription": ("g", 0, JOIN | {"subscribed_topic_names": None}),
    "joins_with_an_empty_instance": ("g", 0, JOIN | {"instance_id": ""}),
    "joins_with_a_blank_instance": ("g", 0, JOIN | {"instance_id": " "}),
    "joins_with_an_empty_rack": ("g", 0, JOIN | {"rack_id": ""}),
    "joins_with_an_unknown_assignor": ("g", 0, JOIN | {"server_assignor": "none"}),
    "joins_with_an_empty_assignor": ("g", 0, JOIN | {"server_assignor": ""}),
    "joins_with_a_topic_twice": ("g", 0, JOIN | {"subscribed_topic_names": ["t", "t"]}),
    "joins_with_an_invalid_topic": ("g", 0, JOIN | {"subscribed_topic_names": ["a b", ""]}),
    "leaves_an_unknown_group": ("g", -1, {}),
    "leaves_as_a_static_member_without_instance": ("g", -2, {}),
    "leaves_an_unknown_group_as_a_static_member": ("g", -2, {"instance_id": "i"}),
    "has_an_epoch_of_minus_3": ("g", -3, {}),
    "has_the_lowest_epoch": ("g", -(2**31), {}),
    "lives_in_an_unknown_group": ("g", 1, {}),
    "lives_in_an_unknown_group_with_partitions": ("g", 5, {"topic_partitions": UNKNOWN_TOPIC}),
    "lives_as_an_unknown_static_member": ("g", 1, {"instance_id": "i"}),
    "lives_without_a_group": ("", 1, {}),
    "leaves_without_a_group": ("", -1, {}),
    "lives_with_an_unknown_assignor": ("g", 1, {"server_assignor": "none"}),
    "lives_with_an_empty_rack": ("g", 1, {"rack_id": ""}),
}


def _wrong(name: str, group: str, epoch: int, fields: dict[str, Any]) -> None:
    def play(s: Peer) -> None:
        named = s.name(group) if group.strip() else group
        s.ask(beat(named, "m", epoch, **fields))
        s.ask(beat(named, "m", epoch, **fields))
        s.ask(describe(named))

    play.__name__ = f"who_{name}"
    scenario(play)


for _name, _case in WRONG.items():
    _wrong(_name, *_case)


@scenario
def a_member_without_an_id(s: Peer) -> None:
    group = s.name("g")
    s.ask(join(group, ""), pick=lambda r: (r.error_code, bool(r.member_id), r.member_epoch))
    s.ask(beat(group, "", 1))
    s.ask(beat(group, "", -1))
    s.ask(beat(group, " ", 0, **JOIN))


# -- epochs and assignments ------------------------------------------------------------------------


@scenario
def the_first_member(s: Peer) -> None:
    to, group = topic(s, partitions=3), s.name("g")
    first = s.ask(join(group, "a", to))
    s.ask(describe(group))
    s.ask(beat(group, "a", first.member_epoch))
    s.ask(beat(group, "a", first.member_epoch, topic_partitions=owned(first)))


@scenario
def a_member_without_topics(s: Peer) -> None:
    group = s.name("g")
    s.ask(join(group, "a"))
    s.ask(describe(group))
    s.ask(beat(group, "a", 1))
    s.ask(beat(group, "a", 2))


@scenario
def a_member_of_a_topic_that_does_not_exist(s: Peer) -> None:
    group = s.name("g")
    s.ask(join(group, "a", s.name("none")))
    s.ask(describe(group))
    s.ask(beat(group, "a", 2))


@scenario
def a_second_member_waits_for_the_first(s: Peer) -> None:
    to, group = topic(s, partitions=4), s.name("g")
    first = stable(s, group, "a", to)
    s.ask(join(group, "b", to))
    s.ask(describe(group))
    s.ask(beat(group, "b", 3))
    fewer = s.ask(beat(group, "a", 2, topic_partitions=owned(first)))
    s.ask(beat(group, "a", 2))
    s.ask(beat(group, "a", 2, topic_partitions=owned(first)))
    s.ask(describe(group))
    s.ask(beat(group, "b", 3))
    s.ask(beat(group, "a", 2, topic_partitions=owned(fewer)))
    s.ask(beat(group, "b", 3))
    s.ask(beat(group, "b", 3))
    s.ask(describe(group))


@scenario
def a_member_that_has_nothing_gives_up_at_once(s: Peer) -> None:
    to, group = topic(s, partitions=2), s.name("g")
    stable(s, group, "a", to)
    stable(s, group, "b", to)
    s.ask(beat(group, "a", 2, topic_partitions=[]))
    s.ask(beat(group, "b", 3))
    s.ask(describe(group))


@scenario
def three_members_with_the_assignor_range(s: Peer) -> None:
    to, group = topic(s, partitions=6), s.name("g")
    for member in "abc":
        s.ask(join(group, member, to, server_assignor="range"))
    for member in "abcabc":
        s.ask(beat(group, member, 2, topic_partitions=[]))
        s.ask(beat(group, member, 4, topic_partitions=[]))
    s.ask(describe(group))


@scenario
def the_assignor_changes(s: Peer) -> None:
    to, group = topic(s, partitions=2), s.name("g")
    stable(s, group, "a", to)
    s.ask(describe(group))
    s.ask(beat(group, "a", 2, server_assignor="range"))
    s.ask(describe(group))


@scenario
def members_of_other_topics(s: Peer) -> None:
    one, two = topic(s, "one", partitions=2), topic(s, "two", partitions=3)
    group = s.name("g")
    name_topics(s, one, two)
    s.ask(join(group, "a", one))
    s.ask(join(group, "b", two))
    s.ask(beat(group, "a", 2))
    s.ask(beat(group, "b", 3))
    s.ask(describe(group))


@scenario
def the_subscription_changes(s: Peer) -> None:
    one, two = topic(s, "one", partitions=2), topic(s, "two", partitions=3)
    group = s.name("g")
    name_topics(s, one, two)
    stable(s, group, "a", one)
    s.ask(beat(group, "a", 2, subscribed_topic_names=[two.name]))
    s.ask(describe(group))
    s.ask(beat(group, "a", 2, topic_partitions=[]))
    s.ask(beat(group, "a", 3, topic_partitions=[]))
    s.ask(describe(group))


@scenario
def the_subscription_grows_and_ends(s: Peer) -> None:
    one, two = topic(s, "one"), topic(s, "two", partitions=2)
    group = s.name("g")
    name_topics(s, one, two)
    stable(s, group, "a", one)
    s.ask(beat(group, "a", 2, subscribed_topic_names=[one.name, two.name]))
    s.ask(beat(group, "a", 3, subscribed_topic_names=[two.name, one.name]))
    s.ask(beat(group, "a", 3, subscribed_topic_names=[]))
    s.ask(beat(group, "a", 3, topic_partitions=[]))
    s.ask(describe(group))


@scenario
def the_topic_gets_partitions(s: Peer) -> None:
    to, group = topic(s), s.name("g")
    stable(s, group, "a", to)
    more = CreatePartitionsTopic(name=to.name, count=3, assignments=None)
    s.do(CreatePartitionsRequest(topics=[more], timeout_ms=10_000, validate_only=False))
    s.ask(beat(group, "a", 2), until=lambda r: r.member_epoch == 3)
    s.ask(describe(group))


@scenario
def the_topic_is_created_later(s: Peer) -> None:
    group = s.name("g")
    stable(s, group, "a", s.name("t"))
    topic(s)
    s.ask(beat(group, "a", 2), until=lambda r: r.member_epoch == 3)
    s.ask(describe(group))


@scenario
def the_topic_is_deleted(s: Peer) -> None:
    to, group = topic(s), s.name("g")
    stable(s, group, "a", to)
    given.delete(s, to)
    s.ask(beat(group, "a", 2), until=lambda r: r.assignment is not None)
    s.ask(describe(group))
    s.ask(beat(group, "a", 2, topic_partitions=[]))
    s.ask(describe(group))


@scenario
def a_full_request_is_answered_in_full(s: Peer) -> None:
    to, group = topic(s), s.name("g")
    first = stable(s, group, "a", to)
    whole = {"subscribed_topic_names": [to.name], "rebalance_timeout_ms": 30_000}
    s.ask(beat(group, "a", 2, **whole, topic_partitions=owned(first)))
    s.ask(beat(group, "a", 2, **whole))
    s.ask(beat(group, "a", 2, topic_partitions=owned(first)))
    s.ask(beat(group, "a", 2, **whole, topic_partitions=[]))


@scenario
def the_rack_and_the_timeout_change(s: Peer) -> None:
    to, group = topic(s), s.name("g")
    stable(s, group, "a", to, rack_id="one")
    s.ask(describe(group))
    s.ask(beat(group, "a", 2, rack_id="two", rebalance_timeout_ms=5_000))
    s.ask(describe(group))


# -- fencing ---------------------------------------------------------------------------------------


@scenario
def an_unknown_member(s: Peer) -> None:
    group = s.name("g")
    stable(s, group, "a")
    for epoch in (1, 2, -1):
        s.ask(beat(group, "b", epoch))
    s.ask(beat(group, "b", -2, instance_id="i"))
    s.ask(beat(group, "b", 1, instance_id="i"))
    s.ask(describe(group))


@scenario
def epochs_that_are_wrong(s: Peer) -> None:
    to, group = topic(s, partitions=2), s.name("g")
    first = stable(s, group, "a", to)
    for epoch in (1, 3, 2**31 - 1):
        s.ask(beat(group, "a", epoch))
        s.ask(beat(group, "a", epoch, topic_partitions=owned(first)))
    s.ask(beat(group, "a", 2))


@scenario
def the_previous_epoch(s: Peer) -> None:
    to, group = topic(s, partitions=2), s.name("g")
    first = stable(s, group, "a", to)
    stable(s, group, "b", to)
    fewer = s.do(beat(group, "a", 2, topic_partitions=owned(first)))
    s.do(beat(group, "a", 2, topic_partitions=owned(fewer)))
    s.ask(beat(group, "a", 2))
    s.ask(beat(group, "a", 2, topic_partitions=owned(first)))
    s.ask(beat(group, "a", 2, topic_partitions=owned(fewer)))
    s.ask(beat(group, "a", 2, topic_partitions=[]))
    s.ask(beat(group, "a", 3))


@scenario
def a_known_member_joins_again(s: Peer) -> None:
    to, group = topic(s, partitions=2), s.name("g")
    stable(s, group, "a", to)
    s.ask(join(group, "a", to))
    stable(s, group, "b", to)
    s.ask(join(group, "a", to))
    s.ask(join(group, "b", to))
    s.ask(describe(group))


@scenario
def a_member_leaves(s: Peer) -> None:
    to, group = topic(s, partitions=2), s.name("g")
    stable(s, group, "a", to)
    stable(s, group, "b", to)
    s.ask(beat(group, "a", -1))
    s.ask(describe(group))
    s.ask(beat(group, "a", -1))
    s.ask(beat(group, "a", 2))
    s.ask(beat(group, "b", 3))
    s.ask(describe(group))


@scenario
def the_last_member_leaves_and_another_joins(s: Peer) -> None:
    to, group = topic(s), s.name("g")
    stable(s, group, "a", to)
    s.ask(beat(group, "a", -1))
    s.ask(describe(group))
    s.ask(beat(group, "a", 2))
    s.ask(join(group, "b", to))
    s.ask(describe(group))


@scenario
def a_group_is_deleted_and_begins_again(s: Peer) -> None:
    to, group = topic(s), s.name("g")
    stable(s, group, "a", to)
    s.ask(DeleteGroupsRequest(groups_names=[group]))
    s.do(beat(group, "a", -1))
    s.ask(DeleteGroupsRequest(groups_names=[group]))
    s.ask(describe(group))
    s.ask(beat(group, "a", 2))
    s.ask(join(group, "a", to))


@scenario
def a_member_leaves_by_the_older_request(s: Peer) -> None:
    to, group = topic(s, partitions=2), s.name("g")
    stable(s, group, "a", to)
    stable(s, group, "b", to, instance_id="i")
    identities = [
        MemberIdentity(member_id=member, group_instance_id=instance)
        for member, instance in (("none", None), ("a", None), ("x", "i"), ("", "none"), ("", "i"))
    ]
    s.ask(LeaveGroupRequest(group_id=group, members=identities))
    s.ask(describe(group))


# -- static members --------------------------------------------------------------------------------


@scenario
def a_static_member_comes_back(s: Peer) -> None:
    to, group = topic(s, partitions=2), s.name("g")
    stable(s, group, "a", to, instance_id="i")
    s.ask(join(group, "b", to, instance_id="i"))
    s.ask(beat(group, "a", -2, instance_id="i"))
    s.ask(describe(group))
    s.ask(join(group, "b", to, instance_id="i"))
    s.ask(describe(group))
    s.ask(beat(group, "a", 2, instance_id="i"))
    s.ask(beat(group, "a", 2))
    s.ask(beat(group, "b", 2, instance_id="i"))
    s.ask(beat(group, "b", 2))


@scenario
def a_static_member_comes_back_under_its_id(s: Peer) -> None:
    to, group = topic(s, partitions=2), s.name("g")
    stable(s, group, "a", to, instance_id="i")
    s.ask(beat(group, "a", -2, instance_id="i"))
    s.ask(beat(group, "a", 2, instance_id="i"))
    s.ask(join(group, "a", to, instance_id="i"))
    s.ask(describe(group))


@scenario
def a_static_member_joins_again_without_leaving(s: Peer) -> None:
    to, group = topic(s), s.name("g")
    stable(s, group, "a", to, instance_id="i")
    s.ask(join(group, "a", to, instance_id="i"))
    s.ask(describe(group))


@scenario
def a_static_member_leaves_for_good(s: Peer) -> None:
    to, group = topic(s), s.name("g")
    stable(s, group, "a", to, instance_id="i")
    s.ask(beat(group, "b", -1, instance_id="i"))
    s.ask(beat(group, "a", -1, instance_id="other"))
    s.ask(beat(group, "a", -1, instance_id="i"))
    s.ask(describe(group))
    s.ask(join(group, "b", to, instance_id="i"))


@scenario
def a_static_member_leaves_without_its_instance(s: Peer) -> None:
    group = s.name("g")
    stable(s, group, "a", instance_id="i")
    s.ask(beat(group, "a", -1))
    s.ask(describe(group))


@scenario
def a_member_becomes_static(s: Peer) -> None:
    group = s.name("g")
    stable(s, group, "a")
    s.ask(beat(group, "a", 1, instance_id="i"))
    s.ask(join(group, "a", instance_id="i"))
    s.ask(describe(group))


@scenario
def a_static_member_with_another_subscription(s: Peer) -> None:
    one, two = topic(s, "one"), topic(s, "two", partitions=2)
    group = s.name("g")
    name_topics(s, one, two)
    stable(s, group, "a", one, instance_id="i")
    s.do(beat(group, "a", -2, instance_id="i"))
    s.ask(join(group, "b", two, instance_id="i"))
    s.ask(describe(group))
    s.ask(beat(group, "b", 2, topic_partitions=[]))
    s.ask(beat(group, "b", 3, topic_partitions=[]))
    s.ask(describe(group))


@scenario
def a_static_member_while_others_live(s: Peer) -> None:
    to, group = topic(s, partitions=4), s.name("g")
    stable(s, group, "a", to, instance_id="i")
    stable(s, group, "b", to)
    s.do(beat(group, "a", 2, topic_partitions=[]))
    s.do(beat(group, "b", 3))
    s.do(beat(group, "a", -2, instance_id="i"))
    s.ask(beat(group, "b", 3))
    s.ask(join(group, "c", to, instance_id="i"))
    s.ask(beat(group, "b", 3))
    s.ask(describe(group))


@scenario
def a_static_member_with_another_assignor(s: Peer) -> None:
    to, group = topic(s, partitions=2), s.name("g")
    stable(s, group, "a", to, instance_id="i", server_assignor="uniform")
    s.do(beat(group, "a", -2, instance_id="i"))
    s.ask(join(group, "b", to, instance_id="i", server_assignor="range"))
    s.ask(describe(group))
    s.ask(beat(group, "b", 2, instance_id="i", topic_partitions=[]))
    s.ask(describe(group))


@scenario
def a_static_member_that_is_away_joins_without_its_instance(s: Peer) -> None:
    to, group = topic(s, partitions=2), s.name("g")
    stable(s, group, "a", to, instance_id="i")
    s.do(beat(group, "a", -2, instance_id="i"))
    s.ask(beat(group, "a", 1))
    s.ask(beat(group, "a", -2))
    s.ask(join(group, "a", to))
    s.ask(describe(group))
    s.ask(beat(group, "a", 2))


@scenario
def a_static_member_leaves_while_it_gives_up(s: Peer) -> None:
    to, group = topic(s, partitions=2), s.name("g")
    stable(s, group, "a", to, instance_id="i")
    stable(s, group, "b", to)
    s.do(beat(group, "a", 2, instance_id="i"))
    s.ask(beat(group, "a", -2, instance_id="i"))
    s.ask(describe(group))
    s.ask(beat(group, "b", 3))
    s.ask(join(group, "c", to, instance_id="i"))
    s.ask(describe(group))


@scenario
def a_member_joins_again_while_it_gives_up_or_waits(s: Peer) -> None:
    """KAFKA-19233."""
    to, group = topic(s, partitions=2), s.name("g")
    stable(s, group, "a", to)
    stable(s, group, "b", to)
    s.do(beat(group, "a", 2))
    s.ask(join(group, "a", to))
    s.ask(join(group, "b", to))
    s.ask(describe(group))
    s.ask(beat(group, "b", 3))
    s.ask(beat(group, "a", 3))
    s.ask(describe(group))


@scenario
def members_that_vote_for_assignors(s: Peer) -> None:
    to, group = topic(s, partitions=2), s.name("g")
    stable(s, group, "a", to)
    for assignor in ("uniform", "range", "uniform"):
        s.ask(beat(group, "a", 2, server_assignor=assignor))
        s.ask(describe(group))
    stable(s, group, "b", to, server_assignor="range")
    s.ask(describe(group))


# -- expressions -----------------------------------------------------------------------------------


def subscribe(group: str, member: str, expression: str, **fields: Any) -> Any:
    names = {"subscribed_topic_names": None, "subscribed_topic_regex": expression}
    return join(group, member, **names | fields)


@scenario(since=1)
def an_expression(s: Peer) -> None:
    to, group = topic(s, partitions=2), s.name("g")
    s.ask(subscribe(group, "a", f"{to.name[:-1]}."))
    s.ask(beat(group, "a", 1), until=lambda r: r.member_epoch == 2)
    s.ask(describe(group))


@scenario(since=1)
def an_expression_that_matches_nothing(s: Peer) -> None:
    group = s.name("g")
    s.ask(subscribe(group, "a", s.name("none")))
    s.ask(beat(group, "a", 1))
    s.ask(describe(group))


@scenario(since=1)
def an_expression_matches_whole_names(s: Peer) -> None:
    to, part, whole = topic(s), s.name("part"), s.name("whole")
    s.ask(subscribe(part, "a", to.name[:-1]))
    s.ask(subscribe(whole, "a", to.name))
    s.ask(beat(whole, "a", 1), until=lambda r: r.member_epoch == 2)
    # The expression of the other group was resolved before.
    s.ask(beat(part, "a", 1))
    for group in part, whole:
        s.ask(describe(group))


@scenario(since=1)
def an_expression_beside_names(s: Peer) -> None:
    one, two = topic(s, "one"), topic(s, "two", partitions=2)
    group = s.name("g")
    name_topics(s, one, two)
    s.ask(subscribe(group, "a", one.name, subscribed_topic_names=[two.name]))
    s.ask(beat(group, "a", 2), until=lambda r: r.member_epoch == 3)
    s.ask(describe(group))


@scenario(since=1)
def an_expression_that_another_member_has(s: Peer) -> None:
    to, group = topic(s, partitions=2), s.name("g")
    s.ask(subscribe(group, "a", to.name))
    s.ask(beat(group, "a", 1), until=lambda r: r.member_epoch == 2)
    s.ask(subscribe(group, "b", to.name))
    s.ask(describe(group))


@scenario(since=1)
def an_expression_ends(s: Peer) -> None:
    to, group = topic(s, partitions=2), s.name("g")
    s.do(subscribe(group, "a", to.name))
    s.do(beat(group, "a", 1), until=lambda r: r.member_epoch == 2)
    s.ask(beat(group, "a", 2, subscribed_topic_regex=""))
    s.ask(describe(group))
    s.ask(beat(group, "a", 2, topic_partitions=[]))
    s.ask(beat(group, "a", 3, topic_partitions=[]))
    s.ask(describe(group))


@scenario(since=1)
def expressions_that_are_wrong(s: Peer) -> None:
    group = s.name("g")
    for wrong in ("[", "*", "(", "a{2,1}", "(?=a)", r"\1", "a**"):
        s.ask(subscribe(group, "a", wrong))
    stable(s, group, "a")
    s.ask(beat(group, "a", 1, subscribed_topic_regex="["))
    s.ask(describe(group))


@scenario(since=1)
def an_empty_expression(s: Peer) -> None:
    group = s.name("g")
    s.ask(subscribe(group, "a", ""))
    s.ask(beat(group, "a", 1))
    s.ask(describe(group))


# -- the classic protocol --------------------------------------------------------------------------


@scenario
def a_group_with_offsets_only(s: Peer) -> None:
    to, group = topic(s), s.name("g")
    given.committed(s, group, to, 1)
    s.ask(beat(group, "a", 1))
    s.ask(beat(group, "a", -1))
    s.ask(join(group, "a", to))
    s.ask(describe(group))


@scenario
def an_empty_classic_group(s: Peer) -> None:
    me = given.member(s)
    s.do(LeaveGroupRequest(group_id=me.group, members=[MemberIdentity(member_id=me.id)]))
    s.ask(beat(me.group, "a", 1))
    s.ask(join(me.group, "a"))
    s.ask(describe(me.group))
