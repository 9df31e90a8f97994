"""Fetch: limits, waiting, errors, sessions, topic ids."""

from typing import Any

from barnabas.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.fetch import (
    API,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
)
from barnabas.protocol.records.compression import Compression
from tests.referee import given
from tests.referee.given import batch, fetch, produce
from tests.referee.scenario import Peer, Scenarios

scenario = Scenarios(API)

SESSIONS = 7


def written(s: Peer, partitions: int = 1) -> given.Topic:
    to = given.topic(s, partitions=partitions)
    for partition in range(partitions):
        given.records(s, to, b"a", b"b", partition=partition)
        given.records(s, to, b"c", partition=partition)
    return to


def read(topics: list[tuple[given.Topic, dict[int, int]]], **options: Any) -> FetchRequest:
    """Return the request that reads several partitions, each from its offset."""
    wanted = [
        FetchTopic(
            topic=to.name,
            topic_id=to.id,
            partitions=[
                FetchPartition(partition=p, fetch_offset=o, partition_max_bytes=1_000_000)
                for p, o in offsets.items()
            ],
        )
        for to, offsets in topics
    ]
    return FetchRequest(max_wait_ms=0, min_bytes=0, topics=wanted, **options)


@scenario
def from_the_start_the_middle_and_the_end(s: Peer) -> None:
    to = written(s)
    for offset in (0, 1, 2, 3):
        s.ask(fetch(to, offset))


@scenario
def outside_the_log(s: Peer) -> None:
    to = written(s)
    s.ask(fetch(to, 4))
    s.ask(fetch(to, -1))


@scenario
def an_unknown_topic_and_partition(s: Peer) -> None:
    to = written(s)
    s.ask(fetch(given.Topic(s.name("unknown"), b"0123456789abcdef")))
    s.ask(fetch(to, partition=6))


@scenario
def two_topics_of_two_partitions(s: Peer) -> None:
    a, b = given.topic(s, "a", partitions=2), given.topic(s, "b", partitions=2)
    given.records(s, a, b"a0")
    given.records(s, b, b"b1", partition=1)
    s.ask(read([(a, {0: 0, 1: 0}), (b, {0: 0, 1: 0})]))


@scenario
def a_batch_larger_than_the_limits_is_still_sent(s: Peer) -> None:
    to = given.topic(s)
    given.records(s, to, b"x" * 5000)
    given.records(s, to, b"y" * 5000)
    s.ask(fetch(to, partition_max_bytes=100))
    s.ask(fetch(to, max_bytes=100))


@scenario
def limits_cut_in_the_middle_of_the_second_batch(s: Peer) -> None:
    to = given.topic(s)
    given.records(s, to, b"x" * 500)
    given.records(s, to, b"y" * 500)
    s.ask(fetch(to, partition_max_bytes=900))
    s.ask(fetch(to, max_bytes=900))


@scenario
def the_limit_is_shared_by_partitions(s: Peer) -> None:
    to = given.topic(s, partitions=2)
    for partition in (0, 1):
        given.records(s, to, b"x" * 1000, partition=partition)
    s.ask(read([(to, {0: 0, 1: 0})], max_bytes=1200))


@scenario
def it_waits_until_there_is_enough(s: Peer) -> None:
    to = given.topic(s)
    s.post(fetch(to, max_wait_ms=15_000, min_bytes=1), on="reader")
    given.records(s, to, b"now")
    s.take(on="reader")


@scenario
def answers_wait_for_those_before_them(s: Peer) -> None:
    to = given.topic(s)
    s.post(fetch(to, max_wait_ms=60, min_bytes=1))
    s.post(given.list_offsets(to.name, (0, -1)))
    s.take()
    s.take()


@scenario
def it_waits_no_longer_than_asked(s: Peer) -> None:
    to = written(s)
    s.ask(fetch(to, 3, max_wait_ms=30, min_bytes=1))
    s.ask(fetch(to, 0, max_wait_ms=30, min_bytes=1_000_000))


@scenario
def committed_records_only(s: Peer) -> None:
    to = written(s)
    s.ask(fetch(to, isolation_level=1))
    s.ask(fetch(to, 3, isolation_level=1))


@scenario
def zstd_needs_version_10(s: Peer) -> None:
    to = given.topic(s)
    given.records(s, to, b"x" * 200, compression=Compression.ZSTD)
    s.ask(fetch(to))


@scenario
def the_topics_codec(s: Peer) -> None:
    to = given.topic(s, configs={"compression.type": "producer"})
    s.ask(produce(to, batch(b"x" * 200, compression=Compression.GZIP)))
    s.ask(fetch(to))


@scenario
def no_topics(s: Peer) -> None:
    s.ask(FetchRequest(max_wait_ms=0, min_bytes=0, topics=[]))


@scenario
def the_topic_was_deleted(s: Peer) -> None:
    to = written(s)
    s.ask(fetch(to))
    s.do(DeleteTopicsRequest(topics=[DeleteTopicState(name=to.name)], timeout_ms=10_000))
    s.ask(fetch(to), until=lambda r: r.responses[0].partitions[0].error_code != 0)


@scenario(since=9)
def the_clients_leader_epoch_is_checked(s: Peer) -> None:
    to = written(s)
    s.ask(fetch(to, current_leader_epoch=0))
    s.ask(fetch(to, current_leader_epoch=4))


@scenario(since=12)
def the_epoch_of_the_last_record_is_checked(s: Peer) -> None:
    to = written(s)
    s.ask(fetch(to, 3, current_leader_epoch=0, last_fetched_epoch=0))
    s.ask(fetch(to, 3, current_leader_epoch=0, last_fetched_epoch=2))


@scenario(since=SESSIONS)
def a_session_sends_what_changed(s: Peer) -> None:
    to = written(s, partitions=2)
    full = s.ask(read([(to, {0: 0, 1: 0})], session_epoch=0))
    in_session = {"session_id": full.session_id}
    s.ask(read([(to, {0: 3, 1: 3})], session_epoch=1, **in_session))
    given.records(s, to, b"new", partition=1)
    s.ask(read([], session_epoch=2, **in_session))
    s.ask(read([(to, {1: 4})], session_epoch=3, **in_session))
    s.ask(read([], session_epoch=4, **in_session))


@scenario(since=SESSIONS)
def a_session_forgets_partitions(s: Peer) -> None:
    to = written(s, partitions=2)
    full = s.ask(read([(to, {0: 3, 1: 3})], session_epoch=0))
    forgotten = [ForgottenTopic(topic=to.name, topic_id=to.id, partitions=[0])]
    in_session = {"session_id": full.session_id}
    s.ask(read([], session_epoch=1, forgotten_topics_data=forgotten, **in_session))
    given.records(s, to, b"unread", partition=0)
    s.ask(read([], session_epoch=2, **in_session))
    s.ask(read([(to, {0: 3})], session_epoch=3, **in_session))


@scenario(since=SESSIONS)
def a_session_that_does_not_exist(s: Peer) -> None:
    to = written(s)
    s.ask(read([(to, {0: 0})], session_id=12345, session_epoch=1))


@scenario(since=SESSIONS)
def an_epoch_that_is_not_the_next(s: Peer) -> None:
    to = written(s)
    full = s.ask(read([(to, {0: 0})], session_epoch=0))
    s.ask(read([], session_id=full.session_id, session_epoch=5))
    s.ask(read([], session_id=full.session_id, session_epoch=1))


@scenario(since=SESSIONS)
def a_session_ends(s: Peer) -> None:
    to = written(s)
    full = s.ask(read([(to, {0: 0})], session_epoch=0))
    s.ask(read([(to, {0: 0})], session_id=full.session_id, session_epoch=-1))
    s.ask(read([], session_id=full.session_id, session_epoch=1))


@scenario(since=SESSIONS)
def a_session_takes_new_partitions(s: Peer) -> None:
    to = written(s, partitions=2)
    full = s.ask(read([(to, {0: 3})], session_epoch=0))
    s.ask(read([(to, {1: 0})], session_id=full.session_id, session_epoch=1))
    s.ask(read([(to, {5: 0})], session_id=full.session_id, session_epoch=2))
    s.ask(read([], session_id=full.session_id, session_epoch=3))


@scenario(since=SESSIONS)
def an_unknown_topic_in_a_session(s: Peer) -> None:
    to = written(s)
    ghost = given.Topic(s.name("ghost"), b"0123456789abcdef")
    full = s.ask(read([(to, {0: 3}), (ghost, {0: 0})], session_epoch=0))
    s.ask(read([], session_id=full.session_id, session_epoch=1))


@scenario
def limits_too_small_for_any_record(s: Peer) -> None:
    to = written(s)
    s.ask(fetch(to, partition_max_bytes=0))
    s.ask(fetch(to, max_bytes=0))


@scenario
def limits_below_zero(s: Peer) -> None:
    to = written(s)
    s.ask(fetch(to, partition_max_bytes=-1))
    s.ask(fetch(to, max_bytes=-1))


@scenario
def a_wait_that_is_negative(s: Peer) -> None:
    to = written(s)
    s.ask(fetch(to, 3, max_wait_ms=-1, min_bytes=1))
    s.ask(fetch(to, 0, min_bytes=-1))


@scenario
def a_partition_below_zero(s: Peer) -> None:
    to = written(s)
    s.ask(fetch(to, partition=-1))


@scenario
def the_same_partition_twice(s: Peer) -> None:
    to = written(s)
    twice = read([(to, {0: 0}), (to, {0: 2})])
    s.ask(twice)


@scenario
def an_invalid_isolation_level(s: Peer) -> None:
    to = written(s)
    s.ask(fetch(to, isolation_level=2))
    s.ask(fetch(to, isolation_level=-1))


@scenario(until=14)
def a_client_that_claims_to_be_a_replica(s: Peer) -> None:
    to = written(s)
    s.ask(fetch(to, replica_id=7))
    s.ask(fetch(to, replica_id=-2))


@scenario
def the_log_was_cut_at_its_start(s: Peer) -> None:
    to = written(s)
    upto = DeleteRecordsPartition(partition_index=0, offset=2)
    cut = DeleteRecordsTopic(name=to.name, partitions=[upto])
    s.do(DeleteRecordsRequest(topics=[cut], timeout_ms=10_000))
    for offset in (0, 1, 2, 3):
        s.ask(fetch(to, offset))
