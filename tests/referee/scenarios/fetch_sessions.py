"""Fetch sessions (KIP-227): their epochs, their ends, and the connections that may use them."""

from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.fetch import API, ForgottenTopic
from tests.referee import given
from tests.referee.scenario import Peer, Scenarios
from tests.referee.scenarios.fetch import SESSIONS, read, written

scenario = Scenarios(API)

LAST_WITH_NAMES = 12
FIRST_WITH_IDS = 13


def forget(to: given.Topic, *partitions: int) -> list[ForgottenTopic]:
    return [ForgottenTopic(topic=to.name, topic_id=to.id, partitions=list(partitions))]


@scenario(since=SESSIONS)
def epochs_outside_of_any_session(s: Peer) -> None:
    to = written(s)
    for epoch in (-1, -2, 1, 5, 2**31 - 1, -(2**31)):
        s.ask(read([(to, {0: 3})], session_epoch=epoch))


@scenario(since=SESSIONS)
def epochs_of_a_session_that_are_not_the_next(s: Peer) -> None:
    to = written(s)
    mine = s.ask(read([(to, {0: 3})], session_epoch=0)).session_id
    for epoch in (2, 2**31 - 1, -2, -(2**31)):
        s.ask(read([], session_id=mine, session_epoch=epoch))
    s.ask(read([], session_id=mine, session_epoch=1))
    s.ask(read([], session_id=mine, session_epoch=1))


@scenario(since=SESSIONS)
def a_session_begins_again(s: Peer) -> None:
    to = written(s)
    first = s.ask(read([(to, {0: 3})], session_epoch=0)).session_id
    second = s.ask(read([(to, {0: 3})], session_id=first, session_epoch=0)).session_id
    s.ask(read([], session_id=first, session_epoch=1))
    s.ask(read([], session_id=second, session_epoch=1))


@scenario(since=SESSIONS)
def a_session_ends_twice(s: Peer) -> None:
    to = written(s)
    mine = s.ask(read([(to, {0: 3})], session_epoch=0)).session_id
    s.ask(read([], session_id=mine, session_epoch=-1))
    s.ask(read([], session_id=mine, session_epoch=-1))
    s.ask(read([(to, {0: 3})], session_id=mine, session_epoch=1))


@scenario(since=SESSIONS)
def a_session_without_partitions(s: Peer) -> None:
    s.ask(read([], session_epoch=0))
    s.ask(read([], session_id=1, session_epoch=0))


@scenario(since=SESSIONS)
def the_last_partition_is_forgotten(s: Peer) -> None:
    to = written(s)
    mine = s.ask(read([(to, {0: 3})], session_epoch=0)).session_id
    s.ask(read([], session_id=mine, session_epoch=1, forgotten_topics_data=forget(to, 0)))
    s.ask(read([(to, {0: 3})], session_id=mine, session_epoch=2))


@scenario(since=SESSIONS)
def a_partition_that_was_never_fetched_is_forgotten(s: Peer) -> None:
    to = written(s)
    mine = s.ask(read([(to, {0: 3})], session_epoch=0)).session_id
    s.ask(read([], session_id=mine, session_epoch=1, forgotten_topics_data=forget(to, 7, -1)))
    s.ask(read([], session_id=mine, session_epoch=2))


@scenario(since=SESSIONS)
def a_partition_is_wanted_and_forgotten_at_once(s: Peer) -> None:
    to = written(s, partitions=2)
    mine = s.ask(read([(to, {0: 3})], session_epoch=0)).session_id
    both = read([(to, {0: 0, 1: 0})], session_id=mine, session_epoch=1)
    both.forgotten_topics_data = forget(to, 1)
    s.ask(both)
    s.ask(read([(to, {0: 3})], session_id=mine, session_epoch=2))


@scenario(since=SESSIONS)
def another_connection_continues_the_session(s: Peer) -> None:
    to = written(s)
    mine = s.ask(read([(to, {0: 3})], session_epoch=0)).session_id
    s.ask(read([(to, {0: 1})], session_id=mine, session_epoch=1), on="another")
    s.ask(read([], session_id=mine, session_epoch=2))
    s.ask(read([], session_id=mine, session_epoch=2), on="another")


@scenario(since=SESSIONS)
def the_offset_moves_outside_of_the_log_and_back(s: Peer) -> None:
    to = written(s)
    mine = s.ask(read([(to, {0: 0})], session_epoch=0)).session_id
    s.ask(read([(to, {0: 9})], session_id=mine, session_epoch=1))
    s.ask(read([], session_id=mine, session_epoch=2))
    s.ask(read([(to, {0: 1})], session_id=mine, session_epoch=3))
    s.ask(read([(to, {0: 3})], session_id=mine, session_epoch=4))


@scenario(since=SESSIONS, until=LAST_WITH_NAMES)
def a_session_with_ids_is_not_continued_with_names(s: Peer) -> None:
    to = written(s)
    mine = s.do(read([(to, {0: 3})], session_epoch=0)).session_id
    s.ask(read([(to, {0: 3})], session_id=mine, session_epoch=1))
    s.ask(read([], session_id=mine, session_epoch=1))


@scenario(since=FIRST_WITH_IDS)
def a_topic_of_a_session_is_deleted(s: Peer) -> None:
    to, other = written(s), given.topic(s, "other")
    mine = s.ask(read([(to, {0: 3}), (other, {0: 0})], session_epoch=0)).session_id
    s.do(DeleteTopicsRequest(topics=[DeleteTopicState(name=to.name)], timeout_ms=10_000))
    s.do(
        read([(to, {0: 3})]),
        until=lambda r: r.responses[0].partitions[0].error_code == 100,
    )
    s.ask(read([], session_id=mine, session_epoch=1))
    s.ask(read([], session_id=mine, session_epoch=2))
    s.ask(read([], session_id=mine, session_epoch=3, forgotten_topics_data=forget(to, 0)))
