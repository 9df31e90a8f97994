"""Produce: acks, refusals, idempotent producers."""

import struct
from typing import Any

from lz4 import frame

from barnabas.protocol.messages.produce import (
    API,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.records.batch import HEADER_SIZE
from barnabas.protocol.records.compression import Compression
from barnabas.protocol.records.record import Record, build_batch
from tests.referee import given
from tests.referee.given import NOW, batch, fetch, list_offsets, produce
from tests.referee.scenario import Peer, Scenarios
from tests.support.planted import batch_of

scenario = Scenarios(API)

LATEST = -1
CRC_AT = 17
MAGIC_AT = 16
RECORD_COUNT_AT = 57
LAST_OFFSET_DELTA_AT = 23


def damaged(data: bytes, at: int, value: bytes) -> bytes:
    return data[:at] + value + data[at + len(value) :]


def resealed(data: bytes, at: int, value: bytes) -> bytes:
    """Return a batch with changed bytes and a matching CRC."""
    from crc32c import crc32c

    changed = damaged(data, at, value)
    return damaged(changed, CRC_AT, struct.pack(">I", crc32c(changed[CRC_AT + 4 :])))


@scenario
def acknowledged_by_the_leader_and_by_all(s: Peer) -> None:
    to = given.topic(s)
    s.ask(produce(to, batch(b"a"), acks=1))
    s.ask(produce(to, batch(b"b", b"c"), acks=-1))
    s.ask(fetch(to))


@scenario
def without_acknowledgement(s: Peer) -> None:
    to = given.topic(s)
    s.post(produce(to, batch(b"a"), acks=0), answered=False)
    s.ask(list_offsets(to.name, (0, LATEST)))
    s.ask(fetch(to))


@scenario
def without_acknowledgement_an_error_closes_the_connection(s: Peer) -> None:
    to = given.Topic(s.name("unknown"), b"0123456789abcdef")
    s.post(produce(to, batch(b"a"), acks=0), answered=False)
    s.ask(list_offsets(to.name, (0, LATEST)))
    s.ask(list_offsets(to.name, (0, LATEST)))


@scenario
def many_requests_before_the_first_answer(s: Peer) -> None:
    to = given.topic(s)
    for value in (b"a", b"b", b"c"):
        s.post(produce(to, batch(value)))
    s.post(fetch(to, 2, max_wait_ms=10_000, min_bytes=1))
    s.post(list_offsets(to.name, (0, LATEST)))
    for _ in range(5):
        s.take()


@scenario
def acks_that_do_not_exist(s: Peer) -> None:
    to = given.topic(s)
    s.ask(produce(to, batch(b"a"), acks=2))
    s.ask(produce(to, batch(b"a"), acks=-2))
    s.ask(fetch(to))


@scenario
def an_unknown_topic_and_partition(s: Peer) -> None:
    to = given.topic(s)
    s.ask(produce(given.Topic(s.name("unknown"), b"0123456789abcdef"), batch(b"a")))
    s.ask(produce(to, batch(b"a"), partition=3))


@scenario
def two_topics_in_one_request(s: Peer) -> None:
    a, b = given.topic(s, "a", partitions=2), given.topic(s, "b")
    data = [PartitionProduceData(index=i, records=batch(b"%d" % i)) for i in (0, 1, 2)]
    request = ProduceRequest(
        acks=-1,
        timeout_ms=10_000,
        topic_data=[
            TopicProduceData(name=a.name, topic_id=a.id, partition_data=data),
            TopicProduceData(name=b.name, topic_id=b.id, partition_data=data[:1]),
        ],
    )
    s.ask(request)
    s.ask(fetch(a, partition=1))
    s.ask(fetch(b))


@scenario
def no_topics(s: Peer) -> None:
    s.ask(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[]))


@scenario
def a_wrong_checksum(s: Peer) -> None:
    to = given.topic(s)
    s.ask(produce(to, damaged(batch(b"a"), CRC_AT, b"\x00\x00\x00\x01")))
    s.ask(list_offsets(to.name, (0, LATEST)))
    s.ask(produce(to, batch(b"a")))


@scenario
def a_record_count_that_does_not_fit(s: Peer) -> None:
    to = given.topic(s)
    s.ask(produce(to, resealed(batch(b"a", b"b"), RECORD_COUNT_AT, struct.pack(">i", 3))))
    s.ask(list_offsets(to.name, (0, LATEST)))


@scenario
def a_last_offset_that_does_not_fit(s: Peer) -> None:
    to = given.topic(s)
    s.ask(produce(to, resealed(batch(b"a", b"b"), LAST_OFFSET_DELTA_AT, struct.pack(">i", 7))))
    s.ask(list_offsets(to.name, (0, LATEST)))


@scenario
def an_old_message_format(s: Peer) -> None:
    to = given.topic(s)
    s.ask(produce(to, damaged(batch(b"a"), MAGIC_AT, b"\x01")))
    s.ask(list_offsets(to.name, (0, LATEST)))


@scenario
def two_batches_for_one_partition(s: Peer) -> None:
    to = given.topic(s)
    s.ask(produce(to, batch(b"a"), batch(b"b")))
    s.ask(list_offsets(to.name, (0, LATEST)))


@scenario
def no_batch_for_a_partition(s: Peer) -> None:
    to = given.topic(s)
    s.ask(produce(to))
    s.ask(list_offsets(to.name, (0, LATEST)))


@scenario
def control_records_from_a_client(s: Peer) -> None:
    to = given.topic(s)
    marker = build_batch(
        [Record(0, NOW, b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00\x00", ())],
        control=True,
        transactional=True,
        producer_id=1,
        producer_epoch=0,
    )
    s.ask(produce(to, marker))
    s.ask(list_offsets(to.name, (0, LATEST)))


@scenario
def each_codec(s: Peer) -> None:
    to = given.topic(s)
    for codec in (Compression.GZIP, Compression.SNAPPY, Compression.LZ4):
        s.ask(produce(to, batch(b"x" * 100, b"y" * 100, compression=codec)))
    s.ask(list_offsets(to.name, (0, LATEST)))
    s.ask(fetch(to))


@scenario
def streams_that_java_clients_cannot_read(s: Peer) -> None:
    to = given.topic(s)
    linked = frame.compress(bytes(100_000), block_linked=True, block_size=4)
    framing = b"\xff\x06\0\0sNaPpY" + bytes(9)
    for codec, body in ((Compression.LZ4, linked), (Compression.SNAPPY, framing)):
        stamps = {"base_timestamp": NOW, "max_timestamp": NOW}
        s.ask(produce(to, batch_of(body, 1, codec, **stamps)))
    s.ask(list_offsets(to.name, (0, LATEST)))


@scenario
def zstd_needs_version_7(s: Peer) -> None:
    to = given.topic(s)
    s.ask(produce(to, batch(b"x" * 100, compression=Compression.ZSTD)))
    s.ask(list_offsets(to.name, (0, LATEST)))


@scenario
def a_batch_that_is_too_large(s: Peer) -> None:
    to = given.topic(s, configs={"max.message.bytes": "200"})
    s.ask(produce(to, batch(b"x" * 300)))
    s.ask(produce(to, batch(b"x" * 50)))
    s.ask(list_offsets(to.name, (0, LATEST)))


@scenario
def a_compacted_topic_needs_keys(s: Peer) -> None:
    to = given.topic(s, configs={"cleanup.policy": "compact"})
    s.ask(produce(to, batch(b"a", b"b")))
    s.ask(produce(to, batch(b"a", key=b"k")))
    s.ask(list_offsets(to.name, (0, LATEST)))


@scenario
def the_broker_stamps_the_time(s: Peer) -> None:
    to = given.topic(s, configs={"message.timestamp.type": "LogAppendTime"})
    s.ask(produce(to, batch(b"a", b"b")))
    s.ask(fetch(to))


@scenario
def timestamps_too_far_away(s: Peer) -> None:
    limits = {
        "message.timestamp.before.max.ms": "600000",
        "message.timestamp.after.max.ms": "600000",
    }
    to = given.topic(s, configs=limits)
    for away in (-3_600_000, 3_600_000, 0):
        s.ask(produce(to, build_batch([Record(0, NOW + away, None, b"a", ())])))
    s.ask(list_offsets(to.name, (0, LATEST)))


@scenario
def a_timestamp_too_far_away_inside_a_batch(s: Peer) -> None:
    to = given.topic(s, configs={"message.timestamp.before.max.ms": "3000000"})
    times = (NOW, NOW - 3_600_000, NOW)
    late = build_batch([Record(i, time, None, b"a", ()) for i, time in enumerate(times)])
    s.ask(produce(to, late))
    s.ask(list_offsets(to.name, (0, LATEST)))


@scenario
def invalid_records(s: Peer) -> None:
    to = given.topic(s)
    s.ask(produce(to, resealed(batch(b"a", b"b"), HEADER_SIZE, b"\xff\xff\xff\xff")))
    s.ask(list_offsets(to.name, (0, LATEST)))


@scenario
def a_transaction_that_was_never_begun(s: Peer) -> None:
    to, me = given.topic(s), idempotent(s)
    data = batch(b"a", base_sequence=0, transactional=True, **me)
    s.ask(produce(to, data, transactional_id=s.name("x")))
    s.ask(list_offsets(to.name, (0, LATEST)))


@scenario
def the_offsets_topic_is_not_for_clients(s: Peer) -> None:
    s.ask(produce(given.Topic("__consumer_offsets", bytes(16)), batch(b"a", key=b"k")))


def idempotent(s: Peer) -> dict[str, Any]:
    producer_id, epoch = given.producer_id(s)
    return {"producer_id": producer_id, "producer_epoch": epoch}


@scenario
def a_repeated_batch_is_written_once(s: Peer) -> None:
    to, me = given.topic(s), idempotent(s)
    first = batch(b"a", b"b", base_sequence=0, **me)
    s.ask(produce(to, first))
    s.ask(produce(to, batch(b"c", base_sequence=2, **me)))
    s.ask(produce(to, first))
    s.ask(list_offsets(to.name, (0, LATEST)))


@scenario
def a_duplicate_older_than_five_batches(s: Peer) -> None:
    to, me = given.topic(s), idempotent(s)
    for sequence in range(6):
        s.ask(produce(to, batch(b"x", base_sequence=sequence, **me)))
    s.ask(produce(to, batch(b"x", base_sequence=1, **me)))
    s.ask(produce(to, batch(b"x", base_sequence=0, **me)))
    s.ask(list_offsets(to.name, (0, LATEST)))


@scenario
def a_gap_in_the_sequence(s: Peer) -> None:
    to, me = given.topic(s), idempotent(s)
    s.ask(produce(to, batch(b"a", base_sequence=0, **me)))
    s.ask(produce(to, batch(b"b", base_sequence=2, **me)))
    s.ask(produce(to, batch(b"b", base_sequence=1, **me)))
    s.ask(list_offsets(to.name, (0, LATEST)))


@scenario
def half_of_a_repeated_batch(s: Peer) -> None:
    to, me = given.topic(s), idempotent(s)
    s.ask(produce(to, batch(b"a", b"b", base_sequence=0, **me)))
    s.ask(produce(to, batch(b"b", b"c", base_sequence=1, **me)))
    s.ask(list_offsets(to.name, (0, LATEST)))


@scenario
def a_producer_the_partition_has_not_seen_starts_anywhere(s: Peer) -> None:
    to, me = given.topic(s), idempotent(s)
    s.ask(produce(to, batch(b"a", base_sequence=17, **me)))
    s.ask(produce(to, batch(b"b", base_sequence=18, **me)))


@scenario
def epochs_go_up_and_start_at_zero(s: Peer) -> None:
    to = given.topic(s)
    id, epoch = given.producer_id(s)

    def write(epoch: int, sequence: int) -> None:
        options: dict[str, Any] = {
            "producer_id": id,
            "producer_epoch": epoch,
            "base_sequence": sequence,
        }
        s.ask(produce(to, batch(b"a", **options)))

    write(epoch, 0)
    write(epoch + 2, 4)
    write(epoch + 2, 0)
    write(epoch, 1)
    s.ask(list_offsets(to.name, (0, LATEST)))


@scenario
def sequences_wrap(s: Peer) -> None:
    to, me = given.topic(s), idempotent(s)
    highest = 2**31 - 1
    s.ask(produce(to, batch(b"a", b"b", base_sequence=highest - 2, **me)))
    straddling = batch(b"c", b"d", base_sequence=highest, **me)
    s.ask(produce(to, straddling))
    s.ask(produce(to, batch(b"e", base_sequence=1, **me)))
    s.ask(produce(to, straddling))
    s.ask(list_offsets(to.name, (0, LATEST)))


@scenario
def producer_fields_that_contradict_each_other(s: Peer) -> None:
    to = given.topic(s)
    s.ask(produce(to, batch(b"a", producer_id=7, producer_epoch=0, base_sequence=-1)))
    s.ask(produce(to, batch(b"a", producer_id=7, producer_epoch=-1, base_sequence=0)))
    s.ask(list_offsets(to.name, (0, LATEST)))


def counted(data: bytes, count: int) -> bytes:
    """Return a batch whose header counts other records than it has."""
    delta = resealed(data, LAST_OFFSET_DELTA_AT, struct.pack(">i", count - 1))
    return resealed(delta, RECORD_COUNT_AT, struct.pack(">i", count))


@scenario
def more_records_than_the_bytes_can_hold(s: Peer) -> None:
    to = given.topic(s)
    for codec in (Compression.NONE, Compression.GZIP, Compression.LZ4):
        for count in (2**31 - 1, 10_000_000):
            s.ask(produce(to, counted(batch(b"a", b"b", compression=codec), count)))
    s.ask(list_offsets(to.name, (0, LATEST)))


@scenario
def records_that_cannot_be_read(s: Peer) -> None:
    """On a compacted topic, because there both look at every record."""
    to = given.topic(s, configs={"cleanup.policy": "compact"})
    good = batch(b"a", key=b"k")
    s.ask(produce(to, counted(batch(b"a" * 20, key=b"k"), 2)))
    for at, value in ((HEADER_SIZE, b"\x7e"), (HEADER_SIZE, b"\x01"), (HEADER_SIZE + 4, b"\x7e")):
        s.ask(produce(to, resealed(good, at, value)))
    s.ask(list_offsets(to.name, (0, LATEST)))
