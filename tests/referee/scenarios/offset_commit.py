"""OffsetCommit."""

from typing import Any

from barnabas.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.protocol.messages.offset_commit import API, OffsetCommitRequest
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest
from tests.referee import given
from tests.referee.given import commit
from tests.referee.scenario import Peer, Scenarios

scenario = Scenarios(API)

INSTANCE_IDS = 7


def fetched(group: str, to: given.Topic, *partitions: int) -> OffsetFetchRequest:
    return given.offset_fetch(10, group, (to, list(partitions) or [0]))


@scenario
def without_members(s: Peer) -> None:
    to, group = given.topic(s), s.name("g")
    s.ask(commit(group, to, 3, metadata="note"))
    s.ask(fetched(group, to))
    s.ask(commit(group, to, 2))
    s.ask(fetched(group, to))


@scenario
def as_a_member(s: Peer) -> None:
    to, me = given.topic(s), given.member(s)
    s.ask(commit(me.group, to, 7, member_id=me.id, generation=me.generation))
    s.ask(fetched(me.group, to))


@scenario
def as_another_client_of_a_group_with_members(s: Peer) -> None:
    to, me = given.topic(s), given.member(s)
    s.ask(commit(me.group, to, 7))
    s.ask(commit(me.group, to, 7, member_id="unknown", generation=me.generation))
    s.ask(fetched(me.group, to))


@scenario
def another_generation(s: Peer) -> None:
    to, me = given.topic(s), given.member(s)
    s.ask(commit(me.group, to, 7, member_id=me.id, generation=me.generation + 1))
    s.ask(commit(me.group, to, 7, member_id=me.id, generation=me.generation - 1))
    s.ask(fetched(me.group, to))


@scenario
def a_generation_of_an_unknown_group(s: Peer) -> None:
    to = given.topic(s)
    s.ask(commit(s.name("unknown"), to, 1, member_id="unknown", generation=4))


@scenario
def a_group_without_a_name(s: Peer) -> None:
    to = given.topic(s)
    s.ask(commit("", to, 1))
    s.ask(fetched("", to))


@scenario
def an_unknown_topic_and_partition(s: Peer) -> None:
    to, group = given.topic(s), s.name("g")
    s.ask(commit(group, given.Topic(s.name("unknown"), b"0123456789abcdef"), 1))
    s.ask(commit(group, to, 1, partition=9))
    s.ask(commit(group, to, 1))
    s.ask(fetched(group, to))


@scenario
def metadata_that_is_too_long(s: Peer) -> None:
    to, group = given.topic(s), s.name("g")
    s.ask(commit(group, to, 1, metadata="x" * 4097))
    s.ask(commit(group, to, 1, metadata="x" * 4096))
    s.ask(commit(group, to, 2, metadata=None))
    s.ask(fetched(group, to))


@scenario
def an_offset_below_zero(s: Peer) -> None:
    to, group = given.topic(s), s.name("g")
    s.ask(commit(group, to, -1))
    s.ask(fetched(group, to))


@scenario
def no_topics(s: Peer) -> None:
    s.ask(OffsetCommitRequest(group_id=s.name(), member_id="", topics=[]))


@scenario
def an_offset_beyond_the_log(s: Peer) -> None:
    to, group = given.topic(s, partitions=2), s.name("g")
    s.ask(commit(group, to, 1_000_000, partition=1))
    s.ask(fetched(group, to, 0, 1))


@scenario
def before_the_assignment(s: Peer) -> None:
    to, group = given.topic(s), s.name("g")
    joined = s.do(given.join(group, given.member_id(s, group)))
    s.ask(commit(group, to, 1, member_id=joined.member_id, generation=joined.generation_id))


@scenario
def while_the_group_rebalances(s: Peer) -> None:
    to, me = given.topic(s), given.member(s)
    s.post(given.join(me.group, given.member_id(s, me.group, on="other")), on="other")
    s.do(given.heartbeat(me), until=lambda r: r.error_code != 0)
    s.ask(commit(me.group, to, 1, member_id=me.id, generation=me.generation))
    s.ask(fetched(me.group, to))


@scenario(since=INSTANCE_IDS)
def a_static_member_that_was_replaced(s: Peer) -> None:
    to, me = given.topic(s), given.member(s, group_instance_id="one")
    mine: dict[str, Any] = {"member_id": me.id, "generation": me.generation}
    s.ask(commit(me.group, to, 1, group_instance_id="one", **mine))
    s.do(given.join(me.group, group_instance_id="one"))
    s.ask(commit(me.group, to, 2, group_instance_id="one", **mine))
    s.ask(commit(me.group, to, 3, group_instance_id="two", **mine))


def several(*commits: OffsetCommitRequest) -> OffsetCommitRequest:
    """Return one request with the topics of several."""
    whole = commits[0]
    whole.topics = [topic for each in commits for topic in each.topics]
    return whole


@scenario
def the_same_partition_twice(s: Peer) -> None:
    to, group = given.topic(s), s.name("g")
    s.ask(several(commit(group, to, 1), commit(group, to, 2)))
    s.ask(fetched(group, to))


@scenario
def several_topics_and_an_unknown_one(s: Peer) -> None:
    a, b, group = given.topic(s, "a"), given.topic(s, "b"), s.name("g")
    ghost = given.Topic(s.name("ghost"), b"0123456789abcdef")
    s.ask(several(commit(group, a, 1), commit(group, ghost, 2), commit(group, b, 3)))
    s.ask(given.offset_fetch(10, group, (a, [0]), (b, [0])))


@scenario
def a_partition_below_zero(s: Peer) -> None:
    to, group = given.topic(s), s.name("g")
    s.ask(commit(group, to, 1, partition=-1))
    s.ask(fetched(group, to))


@scenario
def a_member_without_a_generation(s: Peer) -> None:
    to, me = given.topic(s), given.member(s)
    s.ask(commit(me.group, to, 7, member_id=me.id))
    s.ask(commit(me.group, to, 7, generation=me.generation))
    s.ask(commit(s.name("new"), to, 7, member_id="unknown"))
    s.ask(fetched(me.group, to))


@scenario
def after_the_members_left(s: Peer) -> None:
    to, me = given.topic(s), given.member(s)
    s.do(LeaveGroupRequest(group_id=me.group, members=[MemberIdentity(member_id=me.id)]))
    s.ask(commit(me.group, to, 7, member_id=me.id, generation=me.generation))
    s.ask(commit(me.group, to, 8))
    s.ask(fetched(me.group, to))


@scenario(until=4)
def how_long_to_keep_it(s: Peer) -> None:
    to, group = given.topic(s), s.name("g")
    s.ask(commit(group, to, 1, retention_time_ms=1_000_000))
    s.ask(commit(group, to, 2, retention_time_ms=0))
    s.ask(fetched(group, to))
