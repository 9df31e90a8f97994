"""The records of consumer groups in `__consumer_offsets` are those that Apache Kafka writes.

Both brokers get the same heartbeats. Topic ids, the hash of the topics with them, versions of the
metadata and times differ by nature.
"""

from collections.abc import Callable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any

import pytest

from barnabas.coordinator.group.consumer.records import ConsumerGroupRecord
from barnabas.coordinator.group.records import GroupRecord, decode_record
from barnabas.protocol.messages.consumer_group_heartbeat import API
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.protocol.messages.list_offsets import ListOffsetsRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.records.batch import iter_headers
from barnabas.protocol.records.record import iter_records
from tests.referee import given
from tests.referee.brokers import Address, set_level
from tests.referee.consumers import beat, join, topic
from tests.referee.normalise import plain
from tests.referee.releases import referee
from tests.referee.scenario import Peer
from tests.referee.scenarios.mixed_groups import classic, options_of

pytestmark = [
    pytest.mark.xdist_group("referee"),
    pytest.mark.skipif(referee() < (4, 4), reason="older releases write other records"),
]

OFFSETS = "__consumer_offsets"
BY_NATURE = (
    "metadata_hash",
    "assignment_timestamp",
    "version",
    "timestamp",
    "current_state_timestamp",
)
"""Fields that are compared as there or not."""
IDS = ("member_id", "leader")
"""Fields with a member id, which may be drawn at random."""
Play = Callable[[Peer, str], None]


def shared(s: Peer, group: str) -> None:
    """Two members share a topic, and leave one after the other."""
    to = topic(s, partitions=3)
    s.do(join(group, "a", to))
    s.do(join(group, "b", to, rack_id="r", server_assignor="range"))
    s.do(beat(group, "b", 3))
    s.do(beat(group, "a", 2))
    s.do(beat(group, "a", 2, topic_partitions=[]))
    s.do(beat(group, "b", 3))
    s.do(beat(group, "a", -1))
    s.do(beat(group, "b", 3))
    s.do(beat(group, "b", -1))


def static(s: Peer, group: str) -> None:
    """A static member leaves for a while, comes back under another id, and leaves."""
    to = topic(s, partitions=2)
    s.do(join(group, "a", to, instance_id="i"))
    s.do(beat(group, "a", -2, instance_id="i"))
    s.do(join(group, "b", to, instance_id="i"))
    s.do(LeaveGroupRequest(group_id=group, members=[MemberIdentity(group_instance_id="i")]))


def deleted(s: Peer, group: str) -> None:
    """A group without topics is deleted."""
    s.do(join(group, "a"))
    s.do(beat(group, "a", 1, rebalance_timeout_ms=5, server_assignor="range"))
    s.do(beat(group, "a", -1))
    s.do(DeleteGroupsRequest(groups_names=[group]))


def expressions(s: Peer, group: str) -> None:
    """Members subscribe by an expression, and one takes another."""
    to = topic(s, partitions=2)
    fields = {"subscribed_topic_names": None, "subscribed_topic_regex": to.name}
    s.do(join(group, "a", **fields))
    s.do(beat(group, "a", 1), until=lambda r: r.member_epoch == 2)
    s.do(join(group, "b", **fields))
    s.do(beat(group, "b", 3, subscribed_topic_regex=""))
    s.do(beat(group, "a", -1))
    s.do(beat(group, "b", -1))
    s.do(DeleteGroupsRequest(groups_names=[group]))


def was_classic(s: Peer, group: str) -> None:
    """An empty classic group, and one with offsets alone, become consumer groups."""
    to = topic(s)
    joined = s.do(given.join(group, given.member_id(s, group)))
    s.do(given.sync(group, joined.generation_id, joined.member_id, {joined.member_id: b"x"}))
    members = [MemberIdentity(member_id=joined.member_id)]
    s.do(LeaveGroupRequest(group_id=group, members=members))
    s.do(join(group, "a", to))
    s.do(beat(group, "a", -1))
    s.do(given.join(group, given.member_id(s, group)))


def away(s: Peer, group: str) -> None:
    """A static member leaves while it gives up, and comes back with another assignor and topic."""
    to, other = topic(s, partitions=2), topic(s, "u")
    s.do(join(group, "a", to, instance_id="i", server_assignor="uniform"))
    s.do(join(group, "b", to))
    s.do(beat(group, "a", 2, instance_id="i"))
    s.do(beat(group, "a", -2, instance_id="i"))
    s.do(beat(group, "b", 3))
    s.do(beat(group, "b", -1))
    s.do(join(group, "c", other, instance_id="i", server_assignor="range"))
    s.do(beat(group, "c", -2, instance_id="i"))
    s.do(join(group, "c", other, instance_id="i"))


def again(s: Peer, group: str) -> None:
    """Members join again while they give up or wait, and one is removed twice."""
    to = topic(s, partitions=2)
    s.do(join(group, "a", to))
    s.do(join(group, "b", to))
    s.do(beat(group, "a", 2))
    s.do(beat(group, "a", 2))
    s.do(join(group, "a", to))
    s.do(join(group, "b", to))
    s.do(beat(group, "b", 3, subscribed_topic_names=[]))
    twice = [MemberIdentity(member_id="a")] * 2
    s.do(LeaveGroupRequest(group_id=group, members=twice))
    s.do(beat(group, "b", -1))


def upgraded(s: Peer, group: str) -> None:
    """A classic group is upgraded, and downgraded."""
    to = topic(s, partitions=2)
    old = classic(s, group, to, 0, 1)
    s.do(join(group, "a", to))
    s.do(given.join(group, old.id, **options_of(to)))
    s.do(beat(group, "a", 2))
    s.do(beat(group, "a", -1))
    s.do(given.join(group, old.id, **options_of(to)))


def classic_joins(s: Peer, group: str) -> None:
    """A classic member joins a consumer group, and is left alone in it."""
    to = topic(s, partitions=2)
    s.do(join(group, "a", to))
    s.do(given.join(group, "b", **options_of(to)))
    s.do(beat(group, "a", 2, topic_partitions=[]))
    s.do(given.join(group, "b", **options_of(to)))
    s.do(LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id="a")]))


def static_to_classic(s: Peer, group: str) -> None:
    """A classic member takes the place of the last one of the other protocol."""
    to = topic(s, partitions=2)
    s.do(join(group, "a", to, instance_id="i"))
    s.do(given.join(group, group_instance_id="i", **options_of(to)))


def static_to_classic_with_another_topic(s: Peer, group: str) -> None:
    """A classic member takes the place of the last one, and subscribes to another topic."""
    to, other = topic(s), topic(s, "u")
    s.do(join(group, "a", to, instance_id="i"))
    s.do(given.join(group, group_instance_id="i", **options_of(other)))


PLAYS = (
    shared,
    static,
    deleted,
    expressions,
    was_classic,
    away,
    again,
    upgraded,
    classic_joins,
    static_to_classic,
    static_to_classic_with_another_topic,
)


@pytest.mark.parametrize("play", PLAYS)
def test_records_equal_those_of_kafka(play: Play, kafka: Address, barnabas: Address) -> None:
    theirs, ours = written(play, kafka), written(play, barnabas)
    assert theirs
    assert in_order(ours) == in_order(theirs)


def in_order(written: list[Any]) -> list[Any]:
    """Sort records of one kind that follow each other: Kafka writes members in that of a hash."""
    runs = (run for _, run in groupby(written, itemgetter(0)))
    return [each for run in runs for each in sorted(run, key=itemgetter(1))]


def written(play: Play, broker: Address) -> list[Any]:
    """Play on a broker; return the records of the group, and of the topic's probe before."""
    set_level(broker, 0)
    with Peer(*broker, API, 1, f"records-{play.__name__}") as s:
        group = s.name("g")
        play(s, group)
        return [each for index in (0, 1) for each in records(s, index, group)]


def records(s: Peer, index: int, group: str) -> Iterator[Any]:
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=OFFSETS)])
    offsets = given.Topic(OFFSETS, s.do(asked).topics[0].topic_id)
    request = given.list_offsets(OFFSETS, (index, -1))
    assert isinstance(request, ListOffsetsRequest)
    end = s.do(request).topics[0].partitions[0].offset
    at, names = 0, dict[Any, str]()
    while at < end:
        answer = s.do(given.fetch(offsets, at, partition=index))
        data = bytes(answer.responses[0].partitions[0].records)
        for position, header in iter_headers(data):
            for record in () if header.is_control else iter_records(data, position, header):
                value = None if record.value is None else bytes(record.value)
                found = decode_record(bytes(record.key or b""), value)
                if isinstance(found, ConsumerGroupRecord) and found.group_id == group:
                    name = _name(found.name, names)
                    yield (found.kind, name, _plain(plain(found.value, 0), names))
                elif isinstance(found, GroupRecord) and _is_settled(found, group):
                    yield (2, "", _plain(plain(found.value, 3), names))
            at = header.next_offset


def _is_settled(record: GroupRecord, group: str) -> bool:
    """Return whether a classic group has a generation: Kafka logs it before it has one too."""
    return record.group_id == group and (record.value is None or record.value.generation > 0)


def _plain(value: Any, names: dict[Any, str]) -> Any:
    if isinstance(value, dict):
        return {
            key: bool(item)
            if key in BY_NATURE
            else _name(item, names)
            if key in IDS
            else _plain(item, names)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_plain(item, names) for item in value]
    if isinstance(value, bytes):
        return names.setdefault(value, f"#{len(names)}")
    return value


def _name(member_id: str | None, names: dict[Any, str]) -> str | None:
    return names.setdefault(member_id, f"#{len(names)}") if member_id else member_id
