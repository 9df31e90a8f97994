"""DeleteRecords: the log start offset moves up."""

from barnabas.protocol.messages.delete_records import (
    API,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tests.referee import given
from tests.referee.scenario import Peer, Scenarios

scenario = Scenarios(API)


def delete(name: str, *wanted: tuple[int, int]) -> DeleteRecordsRequest:
    partitions = [DeleteRecordsPartition(partition_index=p, offset=o) for p, o in wanted]
    topics = [DeleteRecordsTopic(name=name, partitions=partitions)]
    return DeleteRecordsRequest(topics=topics, timeout_ms=10_000)


def five_records(s: Peer) -> given.Topic:
    to = given.topic(s)
    given.records(s, to, *(b"%d" % i for i in range(5)))
    return to


@scenario
def in_the_middle_of_a_batch(s: Peer) -> None:
    to = five_records(s)
    s.ask(delete(to.name, (0, 3)))
    s.ask(given.list_offsets(to.name, (0, -2)))
    s.ask(given.fetch(to, 3))
    s.ask(given.fetch(to, 2))


@scenario
def up_to_the_high_watermark(s: Peer) -> None:
    to = five_records(s)
    s.ask(delete(to.name, (0, -1)))
    s.ask(given.fetch(to, 5))
    given.records(s, to, b"more")
    s.ask(given.fetch(to, 5))


@scenario
def above_the_high_watermark(s: Peer) -> None:
    to = five_records(s)
    s.ask(delete(to.name, (0, 6)))
    s.ask(given.list_offsets(to.name, (0, -2)))


@scenario
def an_offset_below_zero(s: Peer) -> None:
    to = five_records(s)
    s.ask(delete(to.name, (0, -2)))


@scenario
def backwards_and_again(s: Peer) -> None:
    to = five_records(s)
    s.ask(delete(to.name, (0, 4)))
    s.ask(delete(to.name, (0, 2)))
    s.ask(delete(to.name, (0, 4)))
    s.ask(given.list_offsets(to.name, (0, -2)))


@scenario
def an_unknown_topic_and_partition(s: Peer) -> None:
    to = five_records(s)
    s.ask(delete(s.name("unknown"), (0, 0)))
    s.ask(delete(to.name, (7, 0), (0, 1)))


@scenario
def a_compacted_topic(s: Peer) -> None:
    to = given.topic(s, configs={"cleanup.policy": "compact"})
    s.ask(given.produce(to, given.batch(b"v", key=b"k")))
    s.ask(delete(to.name, (0, 1)))
    s.ask(given.list_offsets(to.name, (0, -2)))


@scenario
def an_empty_log(s: Peer) -> None:
    to = given.topic(s)
    s.ask(delete(to.name, (0, 0)))
    s.ask(delete(to.name, (0, -1)))


@scenario
def the_offsets_topic(s: Peer) -> None:
    s.ask(delete("__consumer_offsets", (0, 0)))


@scenario
def the_same_partition_twice(s: Peer) -> None:
    to = five_records(s)
    s.ask(delete(to.name, (0, 2), (0, 3)))
    s.ask(given.list_offsets(to.name, (0, -2)))


@scenario
def no_topics(s: Peer) -> None:
    s.ask(DeleteRecordsRequest(topics=[], timeout_ms=10_000))
    s.ask(delete(five_records(s).name))


@scenario
def names_that_no_topic_may_have(s: Peer) -> None:
    s.ask(delete("no/slash", (0, 1)))
    s.ask(delete("", (0, 1)))
