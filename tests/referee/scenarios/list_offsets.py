"""ListOffsets: earliest, latest, by timestamp, and the special timestamps of newer versions."""

from barnabas.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.protocol.messages.list_offsets import (
    API,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.records.compression import Compression
from tests.referee import given
from tests.referee.given import NOW, list_offsets
from tests.referee.scenario import Peer, Scenarios
from tests.referee.scenarios.incremental_alter_configs import SET, TOPIC, alter, is_now

scenario = Scenarios(API)

RECORD_LIMIT = "max.decompressed.message.bytes"
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = range(-1, -7, -1)


def two_batches(s: Peer) -> given.Topic:
    to = given.topic(s, partitions=2)
    given.records(s, to, b"a", b"b", b"c")
    given.records(s, to, b"d", b"e")
    return to


@scenario
def earliest_and_latest(s: Peer) -> None:
    to = two_batches(s)
    s.ask(list_offsets(to.name, (0, EARLIEST), (1, EARLIEST)))
    s.ask(list_offsets(to.name, (0, LATEST), (1, LATEST)))
    given.records(s, to, b"f")
    s.ask(list_offsets(to.name, (0, LATEST)))


@scenario
def by_timestamp(s: Peer) -> None:
    to = two_batches(s)
    for timestamp in (0, NOW, NOW + 1, NOW + 2, NOW + 3):
        s.ask(list_offsets(to.name, (0, timestamp), (1, timestamp)))


@scenario
def after_records_were_deleted(s: Peer) -> None:
    to = two_batches(s)
    gone = DeleteRecordsTopic(
        name=to.name, partitions=[DeleteRecordsPartition(partition_index=0, offset=2)]
    )
    s.ask(DeleteRecordsRequest(topics=[gone], timeout_ms=10_000))
    s.ask(list_offsets(to.name, (0, EARLIEST)))
    s.ask(list_offsets(to.name, (0, NOW)))


@scenario
def an_unknown_topic_and_partition(s: Peer) -> None:
    to = two_batches(s)
    s.ask(list_offsets(s.name("unknown"), (0, LATEST)))
    s.ask(list_offsets(to.name, (5, LATEST), (0, LATEST)))


@scenario
def the_same_partition_twice(s: Peer) -> None:
    to = two_batches(s)
    s.ask(list_offsets(to.name, (0, LATEST), (0, EARLIEST)))


@scenario(since=2)
def committed_records_only(s: Peer) -> None:
    to = two_batches(s)
    s.ask(list_offsets(to.name, (0, LATEST), isolation_level=1))
    s.ask(list_offsets(to.name, (0, NOW), isolation_level=1))


@scenario(since=4)
def leader_epochs_of_the_past_and_the_future(s: Peer) -> None:
    to = two_batches(s)
    for epoch in (0, 1):
        partition = ListOffsetsPartition(
            partition_index=0, timestamp=LATEST, current_leader_epoch=epoch
        )
        topics = [ListOffsetsTopic(name=to.name, partitions=[partition])]
        s.ask(ListOffsetsRequest(replica_id=-1, topics=topics))


@scenario
def the_record_with_the_largest_timestamp(s: Peer) -> None:
    to = two_batches(s)
    s.ask(list_offsets(to.name, (0, MAX_TIMESTAMP), (1, MAX_TIMESTAMP)))
    given.records(s, to, *(b"x" for _ in range(5)))
    s.ask(list_offsets(to.name, (0, MAX_TIMESTAMP)))


@scenario
def the_largest_timestamp_of_a_log_without_times(s: Peer) -> None:
    to = given.topic(s)
    s.ask(list_offsets(to.name, (0, MAX_TIMESTAMP)))
    given.records(s, to, b"a", since=-1)
    given.records(s, to, b"b", since=-1)
    s.ask(list_offsets(to.name, (0, MAX_TIMESTAMP)))
    s.ask(list_offsets(to.name, (0, 0)))
    given.records(s, to, b"c")
    s.ask(list_offsets(to.name, (0, MAX_TIMESTAMP)))


@scenario
def offsets_of_tiers(s: Peer) -> None:
    to = two_batches(s)
    s.ask(list_offsets(to.name, (0, EARLIEST_LOCAL)))
    s.ask(list_offsets(to.name, (0, LATEST_TIERED)))
    s.ask(list_offsets(to.name, (0, EARLIEST_PENDING)))


@scenario
def an_unknown_special_timestamp(s: Peer) -> None:
    to = two_batches(s)
    s.ask(list_offsets(to.name, (0, -7)))


@scenario
def as_a_replica_and_for_debugging(s: Peer) -> None:
    to = two_batches(s)
    partitions = [ListOffsetsPartition(partition_index=0, timestamp=LATEST)]
    for replica_id in (-2, 1, 5):
        topics = [ListOffsetsTopic(name=to.name, partitions=partitions)]
        s.ask(ListOffsetsRequest(replica_id=replica_id, topics=topics))


@scenario(since=2)
def an_invalid_isolation_level(s: Peer) -> None:
    to = given.topic(s)
    s.ask(given.list_offsets(to.name, (0, -1), isolation_level=2))
    s.ask(given.list_offsets(to.name, (0, -1), isolation_level=-1))


@scenario
def no_topics_and_no_partitions(s: Peer) -> None:
    s.ask(ListOffsetsRequest(replica_id=-1, topics=[]))
    s.ask(list_offsets(given.topic(s).name))


@scenario
def a_partition_below_zero(s: Peer) -> None:
    s.ask(list_offsets(given.topic(s).name, (-1, LATEST)))


@scenario(key=RECORD_LIMIT)
def a_record_that_is_larger_than_its_topic_allows(s: Peer) -> None:
    for codec in Compression:
        to = given.topic(s, codec.name)
        given.records(s, to, b"x" * 20_000, compression=codec)
        s.do(alter(TOPIC, to.name, (RECORD_LIMIT, SET, "100")))
        is_now(s, TOPIC, to.name, RECORD_LIMIT, "100")
        refused = lambda r: r.topics[0].partitions[0].error_code != 0  # noqa: E731
        until = refused if codec is not Compression.NONE else None
        # Kafka describes the new value a moment before the log has it.
        s.ask(list_offsets(to.name, (0, NOW)), until=until)
        s.ask(list_offsets(to.name, (0, MAX_TIMESTAMP)))
        s.ask(list_offsets(to.name, (0, LATEST)))
        s.ask(given.fetch(to))
