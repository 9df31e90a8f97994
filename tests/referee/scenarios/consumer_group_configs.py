"""ConsumerGroupHeartbeat of groups that have a configuration of their own."""

from typing import Any

from barnabas.protocol.messages.consumer_group_heartbeat import API
from tests.referee.consumers import beat, describe, join, owned, stable, topic
from tests.referee.scenario import Peer, Scenarios
from tests.referee.scenarios.incremental_alter_configs import DELETE, GROUP, SET, alter

scenario = Scenarios(API)

HEARTBEAT, INTERVAL = "consumer.heartbeat.interval.ms", "consumer.assignment.interval.ms"


def given_interval(interval_ms: int) -> Any:
    return lambda answer: answer.heartbeat_interval_ms == interval_ms


@scenario(since=1)
def the_heartbeat_interval_of_the_group(s: Peer) -> None:
    t, group = topic(s), s.name("g")
    s.ask(alter(GROUP, group, (HEARTBEAT, SET, "12000")))
    member = stable(s, group, "a", t)
    s.ask(beat(group, "a", member.member_epoch), until=given_interval(12_000))
    s.ask(alter(GROUP, group, (HEARTBEAT, SET, "7000")))
    s.ask(beat(group, "a", member.member_epoch), until=given_interval(7_000))
    s.ask(alter(GROUP, group, (HEARTBEAT, DELETE, None)))
    s.ask(beat(group, "a", member.member_epoch), until=given_interval(5_000))


@scenario(since=1)
def the_heartbeat_interval_of_another_group(s: Peer) -> None:
    t, group = topic(s), s.name("g")
    s.ask(alter(GROUP, s.name("other"), (HEARTBEAT, SET, "12000")))
    s.ask(join(group, "a", t))
    s.ask(beat(group, "a", 2))


@scenario(since=1)
def the_assignment_interval_of_the_group(s: Peer) -> None:
    t, group = topic(s, partitions=2), s.name("g")
    s.do(alter(GROUP, group, (INTERVAL, SET, "15000"), (HEARTBEAT, SET, "12000")))
    one = stable(s, group, "a", t)
    s.do(
        beat(group, "a", 2, topic_partitions=owned(one)),
        until=given_interval(12_000),
    )
    s.ask(join(group, "b", t))
    s.ask(beat(group, "a", 2))
    s.ask(describe(group))
    s.ask(alter(GROUP, group, (INTERVAL, SET, "0")))
    s.ask(beat(group, "b", 2), until=lambda r: r.member_epoch == 3)
    s.ask(beat(group, "a", 2))
