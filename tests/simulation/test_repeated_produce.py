"""Produce that repeats: each test runs a broker that remembers requests and one that does not, and
compares answers, states, metrics and files (`tests/simulation/repeats/twins.py`).

The tests take no fixtures, because they run again without each check of the fast path.
"""

import gc
import struct
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import TestCase
from unittest.mock import patch

import pytest

from barnabas.broker.handlers.produce import _append_again, again
from barnabas.broker.replication.partition import Partition, PendingAppend
from barnabas.broker.security import authorizer
from barnabas.broker.server.connection import Connection
from barnabas.broker.server.dispatch import Dispatcher
from barnabas.broker.server.repeats import Repeats
from barnabas.broker.transactions.produce_verification import RepeatedVerification
from barnabas.config.key import INT_MAX
from barnabas.protocol.codec import encode
from barnabas.protocol.compile import write_uvarint
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.header import encode_request_header
from barnabas.protocol.messages.produce import (
    API,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.records.batch import MAX_SEQUENCE, NO_TIMESTAMP
from barnabas.protocol.records.compression import Compression
from barnabas.protocol.template import Templates
from barnabas.security.acl.rules import AclBinding, AclOperation, ResourceType
from barnabas.storage.files.mem_files import Fault
from barnabas.storage.log.log import Log
from barnabas.storage.log.segment import Segment
from barnabas.storage.log.validator import is_sound
from barnabas.storage.producers.state import ProducerStateManager
from tests.simulation.repeats.produce import (
    AUTHORIZER,
    FRAMING,
    LINKED,
    ODD,
    TIME_MS,
    Producer,
    allow,
    batch,
    changed,
    codes,
    forbid,
    limit,
    quick,
    remembered,
    rule,
    trim,
    writing,
)
from tests.simulation.repeats.twins import Side, Twins, frame, twins
from tests.support.mutants import cases, finds, hunt

WRITE, ALL = AclOperation.WRITE, AclOperation.ALL
TOPIC, TRANSACTIONAL_ID = ResourceType.TOPIC, ResourceType.TRANSACTIONAL_ID
ADMINISTRATION = (
    rule(ALL, ResourceType.CLUSTER, "kafka-cluster"),
    rule(AclOperation.CREATE, TOPIC, "t"),
    rule(AclOperation.DESCRIBE, TOPIC, "t"),
)


LONG = batch(b"v" * 100)
PREPARE = ProducerStateManager.prepare
CODEC = "or (codec and codec_error(data, codec))"


# --- what is served


@finds(Partition.append, "log.high_watermark = log.log_end_offset", "pass", 9)
@pytest.mark.parametrize("version", range(7, 14))
def test_next_batch_of_a_connection_is_on_the_fast_path(version: int) -> None:
    with writing(version=version) as pair:
        topic_id = pair.ids["t"]
        for size in (1, 100, 127, 128, 129, 16_000, 16_400, 70_000):
            before = pair.served
            pair.produce(batch(b"x" * size), version=version, topic_id=topic_id)
            assert pair.served == before + 1
        assert pair.fast.partition().log.log_end_offset == 10


@finds(again, "version < REPEATS_SINCE or ", "", 5)
@pytest.mark.parametrize("version", range(3, 7))
def test_versions_with_other_rules_and_answers_are_not_served(version: int) -> None:
    with twins() as pair:
        pair.create()
        for _ in range(3):
            pair.produce(batch(), version=version)
        zstd = batch(compression=Compression.ZSTD)
        assert codes(pair, zstd, version=version) == ["UNSUPPORTED_COMPRESSION_TYPE"]
        assert not pair.served


def test_each_codec_is_served() -> None:
    with writing() as pair:
        for codec in Compression:
            assert quick(pair, batch(b"v" * 100, b"v" * 100, compression=codec))


def test_every_number_and_client_id_is_answered_as_given() -> None:
    with writing() as pair:
        for client_id in (None, b"", b"\xff\xfe\x00", b"caf\xc3\xa9", b"c" * 400):
            for number in (0, 1, -1, 2**31 - 1, -(2**31)):
                (answer,) = pair.exchange(frame(batch(), number=number, client_id=client_id))
                assert answer[:4] == struct.pack(">i", number)
        assert pair.served >= 5 * 4


def test_requests_in_one_write_are_answered_in_order() -> None:
    with writing() as pair:
        frames = [frame(batch(b"%d" % number), number=number) for number in range(40)]
        answers = pair.exchange(*frames)
        assert [struct.unpack(">i", each[:4])[0] for each in answers] == [*range(40)]
        assert pair.served == 41


@finds(Dispatcher.begin, "and response is not None and", "and")
def test_acks_without_an_answer_is_not_served() -> None:
    with writing() as pair:
        for _ in range(3):
            assert pair.exchange(frame(batch(), acks=0), answers=0) == []
        assert quick(pair)
        assert not quick(pair, acks=1)
        assert quick(pair, acks=1)
        assert pair.served == 3
        assert pair.fast.partition().log.log_end_offset == 8


@finds(Templates.find_with_records, "meaning is not None and ")
def test_another_partition_or_topic_is_another_one() -> None:
    with writing() as pair:
        pair.create("s")
        for _ in range(2):
            for topic, index in (("t", 1), ("t", 0), ("s", 0)):
                pair.produce(batch(topic.encode()), topic=topic, index=index)
        for topic, index in (("t", 7), ("u", 0)):
            assert codes(pair, batch(), topic=topic, index=index) == ["UNKNOWN_TOPIC_OR_PARTITION"]


@finds(Connection.trim, "self.repeats.clear()", "pass")
def test_silent_connection_remembers_nothing() -> None:
    with writing() as pair:
        assert remembered(pair) == 1
        pair.wait(30)
        assert not remembered(pair)
        assert not quick(pair)
        assert quick(pair)


def test_fault_of_the_fast_path_is_not_the_answer_to_a_request_that_has_been_served() -> None:
    """The producer would send the batch again. It happened to Fetch."""
    with twins() as pair:
        pair.create()
        with patch.object(Repeats, "learn", side_effect=ValueError("unexpected")):
            assert codes(pair, batch(), batch()) == ["NONE"] * 2
        assert not quick(pair)
        assert quick(pair)


# --- requests of another form


@finds(again, "or len(request.topic_data) != 1")
@finds(again, "or len(request.topic_data[0].partition_data) != 1")
def test_request_for_two_partitions_or_topics_is_not_served() -> None:
    with writing() as pair:
        pair.create("s")
        one, two = (PartitionProduceData(index=each, records=batch()) for each in (0, 1))
        for topics in ([("t", [one, two])], [("t", [one]), ("s", [one])], [("t", [])], []):
            data = [TopicProduceData(name=name, partition_data=some) for name, some in topics]
            request = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=data)
            body = encode_request_header(API.key, 9, 5, "client") + encode(request, 9)
            for _ in range(2):
                (answer,) = pair.exchange(body)
                assert answer[:5] == b"\0\0\0\5\0"
        assert quick(pair)


@finds(_append_again, "except CorruptRecordError:", "except ZeroDivisionError:")
def test_short_records_are_refused() -> None:
    with writing() as pair:
        codes(pair, *[b"r" * size for size in (1, 3, 4, 5, 20, 60, 61)])
        assert pair.served == 1


@finds(Templates.find_with_records, "if rest > MOST_LENGTH:", "if True:", "cut to -80", 9)
@finds(Templates.find_with_records, "and found == length", "", "longer by -3", 9)
@finds(Templates.find_with_records, "and found == length", "", "longer by -3", 8)
@finds(Templates.find_with_records, "and frame[behind:] == end", "", r"tags b'\x00\x00\x01'", 9)
@finds(Dispatcher.again, "len(frame) < _KEY.size or ", "", "cut to 3", 9)
@pytest.mark.parametrize("version", [8, 9])
@pytest.mark.parametrize("odd", ODD)
def test_request_of_other_bytes_is_left_to_the_handler(odd: str, version: int) -> None:
    with writing(version=version) as pair:
        records = batch()
        request = ODD[odd](frame(records, version=version), records, version)
        for _ in range(3):
            answers = pair.exchange(request)
            assert not odd.startswith("cut") or answers == []
        assert pair.served == 1
        quick(pair, version=version)
        assert quick(pair, version=version)


def test_batch_behind_the_request_is_no_batch_of_the_request() -> None:
    """The remembered bytes must end where the records begin. They would end within them here, just
    before bytes that have the form of another batch."""
    size, behind = 400, 100
    inner = changed(batch()[:61] + bytes(size - 61), length=size - 12)
    length = write_uvarint(size + 1)
    padding = b"?" * (behind - 61 - len(length))
    outer = batch()[:61] + padding + length + inner[: size - behind]
    # The header is as if the batch had its offset already, which becomes part of the beginning.
    request = frame(changed(outer, length=size - 12, leader_epoch=0))
    assert inner[size - behind :][:3] == request[-3:] == bytes(3)
    request += inner[size - behind :][3:] + bytes(3)
    with twins() as pair:
        pair.create()
        for _ in range(3):
            assert len(pair.exchange(request)) == 1
        assert not pair.served


# --- the topic and the leader


@finds(again, "basis = *known[1:4], ", "basis = known[1], known[3], ")
def test_leader_that_changes_is_asked_for() -> None:
    with writing() as pair:
        epoch = pair.fast.partition().leader_epoch
        pair.lead(leader=99, leader_epoch=epoch + 1, replicas=[0, 99], isr=[0, 99])
        assert codes(pair, batch(), batch()) == ["NOT_LEADER_OR_FOLLOWER"] * 2
        pair.lead(leader=0, leader_epoch=epoch + 2, replicas=[0], isr=[0])
        assert not quick(pair), "the first batch of an epoch"
        assert quick(pair)
        entries = pair.fast.partition().log.epochs.entries
        assert [entry.epoch for entry in entries] == [epoch, epoch + 2]


def resign(pair: Twins) -> None:
    pair.each(lambda side: side.broker._replication.replicas.resign_all())


def delete(pair: Twins) -> None:
    pair.delete()
    pair.wait(2)


def follow(pair: Twins) -> None:
    pair.lead(replicas=[0, 1], isr=[0, 1])


def leave(pair: Twins) -> None:
    pair.lead(isr=[])


@cases(
    "change, expected, of_leader",
    (resign, "NOT_LEADER_OR_FOLLOWER", False, (Partition.resign, "self._stand()", "pass")),
    (delete, "UNKNOWN_TOPIC_OR_PARTITION", False, (_append_again, "partition is None or ")),
    (leave, "NOT_ENOUGH_REPLICAS", True, (Partition._stand, ">= self._min_isr", ">= 0")),
    (
        follow, "REQUEST_TIMED_OUT", True,
        (_append_again, "or standing is not partition.standing"),
        (again, " or not partition.standing.is_prompt"),
        (Partition._stand, "not (isr.followers or self.flushes_first)", "not self.flushes_first"),
    ),
)  # fmt: skip
def test_changed_standing_holds_for_the_next_request(
    change: Callable[[Twins], None], expected: str, of_leader: bool
) -> None:
    with writing() as pair:
        change(pair)
        assert codes(pair, batch(), batch()) == [expected] * 2
        of_acks_1 = "NONE" if of_leader else expected
        assert codes(pair, batch(), batch(), acks=1) == [of_acks_1] * 2
        assert pair.served == 1


@finds(_append_again, "or standing is not partition.standing", "", 13)
@pytest.mark.parametrize("version", [12, 13])
def test_topic_that_is_made_anew_is_another_one(version: int) -> None:
    with writing(version=version) as pair:
        old = pair.ids["t"]
        delete(pair)
        gone = pair.produce(batch(), version=version, topic_id=old)
        assert pair.served == 1
        new = pair.create()
        assert new != old
        for _ in range(3):
            answer = pair.produce(batch(b"new"), version=version, topic_id=new)
            assert answer != gone
        served = pair.served
        assert served >= 2
        late = pair.produce(batch(b"late"), version=version, topic_id=old)
        assert (late == gone) == (version == 13)
        assert pair.fast.partition().log.log_end_offset == (3 if version == 13 else 4)


def test_topic_that_is_made_anew_begins_a_segment() -> None:
    with writing() as pair:
        delete(pair)
        pair.create()
        assert not quick(pair), "the first batch of a segment"
        assert quick(pair)


def test_deleted_records_change_the_log_start() -> None:
    with writing() as pair:
        before = pair.produce(batch())
        trim(pair, 2)
        after = pair.produce(batch())
        assert pair.served == 3
        assert before != after
        assert struct.pack(">q", 2) in after


@cases(
    "configs, records, expected",
    ({"max_message_bytes": "80"}, LONG, "MESSAGE_TOO_LARGE", "or size > rules.max_batch_bytes"),
    ({"cleanup_policy": "compact"}, batch(), "INVALID_RECORD"),
    ({"message_timestamp_type": "LogAppendTime"}, batch(), "NONE", "or rules.log_append_time"),
    ({"compression_type": "gzip"}, LONG, "NONE"),
    ({"flush_messages": "1"}, batch(), "NONE"),
    ({"flush_messages": "3"}, batch(), "NONE"),
    ({"segment_bytes": "1048576"}, LONG, "NONE"),
    ({"message_timestamp_before_max_ms": "1"}, batch(at_ms=5), "INVALID_TIMESTAMP"),
    of=is_sound,
)
def test_changed_configuration_holds_for_the_next_request(
    configs: dict[str, str], records: bytes, expected: str
) -> None:
    with writing() as pair:
        pair.configure(**configs)
        for _ in range(3):
            assert codes(pair, records) == [expected]


@finds(Partition._stand, "at_once and not self.log.rules.looks_inside", "at_once")
def test_batch_whose_records_are_read_is_left_to_the_handler() -> None:
    """It would hold the event loop."""
    keyed = batch(key=b"k")
    with twins() as pair:
        pair.create(cleanup_policy="compact")
        for _ in range(3):
            assert not quick(pair, keyed)


@finds(Partition.config_changed, "self._stand()", "pass")
@finds(Partition.append, "not alone or log.log_end_offset >= self._flush_messages", "False")
def test_append_that_is_flushed_before_its_answer_fails_with_the_disk() -> None:
    fault = Fault("sync", ".log", from_then_on=True)
    with writing() as pair:
        pair.configure(flush_messages="1")
        assert codes(pair, batch(), batch()) == ["NONE"] * 2
        pair.each(lambda side: side.files.faults.append(fault))
        assert codes(pair, batch()) != ["NONE"]


@finds(_append_again, "or partition.appends")
def test_batch_waits_behind_one_that_is_queued() -> None:
    waiting: dict[bool, PendingAppend] = {}

    async def queue(side: Side) -> None:
        append = waiting[side.fast] = PendingAppend(b"", None, 0, {})
        side.partition().appends.append(append)

    async def proceed(side: Side) -> None:
        side.partition().appends.clear()
        waiting[side.fast].done.cancel()

    with writing() as pair:
        pair.both(queue)
        assert pair.exchange(frame(batch())) == []
        pair.both(proceed)
        assert pair.served == 1


def test_full_disk_refuses_this_batch_and_the_next_ones() -> None:
    with writing() as pair:
        pair.each(lambda side: side.files.faults.append(Fault("append", ".log", written=10)))
        answers = pair.exchange(*[frame(batch(), number=number) for number in range(3)])
        assert len(answers) == 3
        assert pair.served == 1
        assert all(each[4:] == answers[0][4:] for each in answers)
        assert codes(pair, batch()) == ["KAFKA_STORAGE_ERROR"]


# --- segments


@cases(
    "configs, batches, segments, entries",
    (
        {"segment_bytes": "1048576", "index_interval_bytes": "2000000"},
        [batch(b"v" * (200_000 + number)) for number in range(12)],
        3, 0, (Log.append, "segment.size + len(data) > most or "),
    ),
    (
        {"segment_index_bytes": "48", "index_interval_bytes": "0"},
        [batch(at_ms=TIME_MS + number) for number in range(20)],
        6, 4, (Segment._indexes_changed, "self.bounds = NO_BOUNDS", "pass"),
    ),
    (
        {"index_interval_bytes": "300"},
        [
            batch(b"v" * (number * 13 % 90), at_ms=TIME_MS + (number * 7) % 11)
            for number in range(40)
        ],
        1, 11,
    ),
)  # fmt: skip
def test_full_segment_or_index_rolls(
    configs: dict[str, str], batches: list[bytes], segments: int, entries: int
) -> None:
    with writing(**configs) as pair:
        for each in batches:
            pair.produce(each)
        found = list(pair.fast.partition().log.segments)
        assert (len(found), found[0].offset_index.entries) == (segments, entries)
        assert pair.served > len(batches) / 2


@finds(Log.append, "<= latest", "", TIME_MS, TIME_MS + 10_001, 2)
@finds(Log.append, "0 <= newest", "newest", TIME_MS, NO_TIMESTAMP, 2)
@pytest.mark.parametrize(
    ("first", "second", "segments"),
    [
        (TIME_MS, TIME_MS + 10_000, 1),
        (TIME_MS, TIME_MS + 10_001, 2),
        (TIME_MS, TIME_MS - 50_000, 1),
        (NO_TIMESTAMP, 5, 2),
        (TIME_MS, NO_TIMESTAMP, 2),
    ],
)
def test_old_segment_rolls(first: int, second: int, segments: int) -> None:
    with twins() as pair:
        pair.create(
            segment_ms="10000", segment_jitter_ms="0", message_timestamp_after_max_ms="99999999"
        )
        for _ in range(2):
            assert codes(pair, batch(at_ms=first)) == ["NONE"]
        # The connection stays awake.
        pair.wait(6)
        assert quick(pair, batch(at_ms=first))
        pair.wait(6)
        assert codes(pair, batch(at_ms=second)) == ["NONE"]
        assert len(list(pair.fast.partition().log.segments)) == segments


def test_closed_segment_is_opened_again() -> None:
    with writing() as pair:
        for side in pair.sides:
            side.partition().log.segments.active.active_file = None
        assert quick(pair)
        assert quick(pair)


@finds(Log.append, " or last_offset > end")
def test_segment_has_no_more_offsets_than_its_index_can_tell() -> None:
    with writing() as pair:
        for log in [side.partition().log for side in pair.sides]:
            log.log_end_offset = log.segments.active.next_offset = INT_MAX
            log.producers.map_end_offset = INT_MAX
        assert quick(pair)
        assert quick(pair)
        assert [each.base_offset for each in pair.fast.partition().log.segments] == [0, INT_MAX + 1]


def test_many_batches_are_found_as_ever() -> None:
    with writing() as pair:
        for _ in range(150):
            pair.produce(batch())
        assert pair.served == 151


# --- batches


CHECKSUM = (
    "or crc32c((data if type(data) is memoryview else memoryview(data))[ATTRIBUTES_AT:]) != crc"
)


@cases(
    "records, expected",
    (changed(batch(), base_offset=1), "INVALID_RECORD", "base or "),
    (changed(batch(), magic=1), "INVALID_RECORD"),
    (changed(batch(), magic=3), "CORRUPT_MESSAGE"),
    (changed(LONG, length=60), "INVALID_RECORD", "size != LOG_OVERHEAD + length or "),
    (batch() + batch(), "INVALID_RECORD"),
    (changed(batch(), count=2), "INVALID_RECORD"),
    (changed(batch(), delta=1), "INVALID_RECORD", "or count != delta + 1"),
    (changed(batch(), count=0, delta=-1), "INVALID_RECORD"),
    (changed(batch(), count=-1, delta=-2), "INVALID_RECORD", "not 0 < count", "not count"),
    (
        changed(batch(), count=1000, delta=999), "INVALID_RECORD",
        "count * MIN_RECORD <= size - HEADER_SIZE", "count",
    ),
    (changed(batch(), attributes=0x20), "INVALID_RECORD", "or attributes & ~_OF_CLIENT"),
    (changed(batch(), attributes=0x08), "INVALID_TIMESTAMP"),
    (changed(batch(), attributes=0x40), "NONE"),
    (changed(batch(), attributes=-0x8000), "NONE"),
    (changed(batch(), attributes=5), "UNSUPPORTED_COMPRESSION_TYPE"),
    (changed(batch(), attributes=7), "UNSUPPORTED_COMPRESSION_TYPE", CODEC),
    (changed(batch(), attributes=4, count=100, delta=99), "NONE"),
    (LINKED, "INVALID_RECORD", CODEC, "or codec > 4"),
    (FRAMING, "INVALID_RECORD"),
    (changed(batch(), base_ms=TIME_MS * 2), "INVALID_TIMESTAMP"),
    (changed(batch(), max_ms=TIME_MS * 2), "INVALID_TIMESTAMP"),
    (changed(batch(), base_ms=NO_TIMESTAMP, max_ms=NO_TIMESTAMP), "NONE"),
    (batch()[:-1] + b"?", "CORRUPT_MESSAGE", CHECKSUM),
    (changed(batch(), attributes=0x10), "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"),
    *((records, "INVALID_RECORD") for records in (b"", None, b"short", bytes(70))),
    of=is_sound,
)  # fmt: skip
def test_bad_or_odd_batch_is_judged_as_ever(records: bytes | None, expected: str) -> None:
    with writing() as pair:
        assert codes(pair, records) == [expected]
        assert pair.served == 1 + (expected == "NONE")
        assert quick(pair)


@cases(
    "base_ms, max_ms",
    (5, TIME_MS, "or not earliest <= base_ms <= latest"),
    (TIME_MS, 5, "or not earliest <= max_ms <= latest"),
    of=is_sound,
)
def test_each_timestamp_has_to_be_in_range(base_ms: int, max_ms: int) -> None:
    with writing(message_timestamp_before_max_ms="3600000") as pair:
        records = changed(batch(), base_ms=base_ms, max_ms=max_ms)
        assert codes(pair, records) == ["INVALID_TIMESTAMP"]


# --- producers


def test_idempotent_producer_goes_on() -> None:
    with writing() as pair:
        producer = Producer(pair, None)
        assert not producer.quick(), "a new producer"
        for _ in range(8):
            assert producer.quick(producer.batch(b"a", b"b"))
        entry = pair.fast.partition().log.producers.entry(producer.producer_id)
        assert entry is not None
        assert (entry.last_sequence, len(entry.batches)) == (16, 5)


@finds(_append_again, "if not duplicate:", "if True:")
@finds(PREPARE, "and sequence == known[-1][0] + 1")
def test_repeated_batch_or_gap_is_found() -> None:
    with writing() as pair:
        producer = Producer(pair, None)
        first, second, third = (producer.batch() for _ in range(3))
        assert producer.send(first) == "NONE"
        assert producer.send(third) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
        assert producer.send(second) == "NONE"
        assert producer.send(second) == producer.send(first) == "NONE"
        assert producer.send(third) == "NONE"
        assert pair.fast.partition().log.log_end_offset == 5


@finds(PREPARE, "& MAX_SEQUENCE, first + delta", ", first + delta")
def test_sequence_wraps() -> None:
    with writing() as pair:
        producer = Producer(pair, None)
        start = MAX_SEQUENCE - 3
        assert producer.send(producer.batch(b"a", b"b", base_sequence=start)) == "NONE"
        assert producer.send(producer.batch(b"a", b"b", b"c", base_sequence=start + 2)) == "NONE"
        assert producer.send(producer.batch(base_sequence=1)) == "NONE"
        assert producer.quick(producer.batch(base_sequence=2))


@finds(PREPARE, "and epoch == entry.producer_epoch and", "and")
def test_fenced_producer_is_refused() -> None:
    with writing() as pair:
        producer = Producer(pair, None)
        assert producer.send() == "NONE"
        assert producer.quick()
        newer = producer.batch(producer_epoch=1, base_sequence=0)
        assert producer.send(newer) == "NONE"
        assert producer.send(producer.batch(base_sequence=1)) == "INVALID_PRODUCER_EPOCH"
        assert producer.send(producer.batch(producer_epoch=1, base_sequence=2)) != "NONE"
        assert producer.quick(producer.batch(producer_epoch=1, base_sequence=1))


@finds(PREPARE, "(known := entry.batches)", "((known := entry.batches) or True)")
def test_producer_without_batches_of_its_epoch_begins_anew() -> None:
    """A marker of the newer protocol raises the epoch: there is no last batch then."""
    with writing() as pair:
        producer = begun(pair, 12)
        assert producer.end() == 0
        producer_id = producer.producer_id
        entry = pair.fast.partition().log.producers.entry(producer_id)
        assert entry is not None
        assert not entry.batches
        idempotent = producer.batch(transactional=False)
        assert codes(pair, idempotent) == ["NONE"]


@finds(is_sound, "producer >= 0 else attributes & TRANSACTIONAL)", "producer >= 0 else False)")
def test_transaction_needs_a_producer() -> None:
    """The log does not rely on the checks of the request."""
    records = changed(batch(), attributes=0x10)
    with writing() as pair:
        for log in [side.partition().log for side in pair.sides]:
            with pytest.raises(KafkaError, match="INVALID_RECORD"):
                log.append(bytearray(records), 0, TIME_MS)


@finds(is_sound, "first < 0 or ", "", {"base_sequence": -1})
@finds(is_sound, "or epoch < 0", "", {"producer_epoch": -1})
@pytest.mark.parametrize("fields", [{"base_sequence": -1}, {"producer_epoch": -1}])
def test_producer_without_a_sequence_or_an_epoch_is_refused(fields: dict[str, int]) -> None:
    with writing() as pair:
        producer = Producer(pair, None)
        assert producer.send() == "NONE"
        assert producer.quick()
        assert codes(pair, producer.batch(**fields)) == ["INVALID_RECORD"]


@finds(_append_again, "if producer_id >= 0 and entry is None:", "if False:")
def test_expected_producer_that_is_new_is_counted() -> None:
    """A client id may begin with so many new producers (`producer.ids.max.per.connection`)."""

    async def expire(side: Side) -> int:
        return sum(side.partition().log.producers.expire(TIME_MS * 2, 1))

    with writing() as pair:
        producer = begun(pair, 9)
        assert producer.end() == 0
        assert pair.both(expire) == 1
        assert producer.add(0) == 0
        assert not producer.quick(producer.batch(base_sequence=0))


# --- transactions


def begun(
    pair: Twins, version: int, transactional_id: str = "x", *, repeats: bool = True
) -> Producer:
    """Return a producer whose transaction has batches in partition 0, of which the last repeats."""
    producer = Producer(pair, transactional_id, version=version)
    if version < 12:
        assert producer.add(0) == 0
    for _ in range(1 + repeats):
        assert producer.send() == "NONE"
    assert not repeats or producer.quick()
    return producer


@pytest.mark.parametrize("version", [7, 9, 12])
def test_batches_of_an_open_transaction_are_served(version: int) -> None:
    with writing() as pair:
        producer = begun(pair, version)
        assert producer.send() == "NONE"
        for _ in range(3):
            assert producer.quick()
        assert producer.end(commit=True) == 0
        if version < 12:
            assert producer.add(0) == 0
        # The partition of the older protocol was told, the leader of the newer one adds it.
        assert producer.quick()
        assert producer.quick()
        assert producer.end(commit=False) == 0


def test_batch_after_its_transaction_is_refused() -> None:
    with writing() as pair:
        producer = begun(pair, 9)
        assert producer.end() == 0
        assert producer.send() != "NONE"
        assert pair.served == 3


def test_fenced_transactional_producer_is_refused() -> None:
    with writing() as pair:
        producer = begun(pair, 9)
        late = producer.batch()
        Producer(pair, "x", version=9)
        assert producer.send(late) == "INVALID_PRODUCER_EPOCH"


@finds(
    RepeatedVerification.guard,
    "guard if self._verifier.add_again(added, producer) else None",
    "guard",
)
@finds(RepeatedVerification.guard, "except KafkaError:", "except ZeroDivisionError:")
def test_first_batch_of_a_fenced_producer_of_the_newer_protocol_is_refused() -> None:
    with writing() as pair:
        producer = begun(pair, 12)
        older = producer.batch(base_sequence=0)
        for _ in range(2):
            assert producer.end() == 0
            assert producer.quick()
        assert producer.end() == 0
        assert producer.send(older) == "INVALID_PRODUCER_EPOCH"
        Producer(pair, "x", version=12)
        assert producer.send() == "INVALID_PRODUCER_EPOCH"


@finds(
    PREPARE,
    "(0 if (txn_first := entry.current_txn_first_offset) is None else TRANSACTIONAL)",
    "(txn_first := entry.current_txn_first_offset, attributes & _KIND)[1]",
)
def test_plain_batch_in_a_transaction_is_refused() -> None:
    with writing() as pair:
        producer = begun(pair, 9)
        quick(pair)
        assert quick(pair)
        records = producer.batch(transactional=False)
        assert codes(pair, records) == ["INVALID_TXN_STATE"]
        assert codes(pair, batch(), transactional_id="x") == ["NONE"]


@finds(_append_again, "elif opened != opener: return None")
def test_transaction_of_another_id_is_not_joined() -> None:
    with writing() as pair:
        mine, other = begun(pair, 9, "x"), begun(pair, 9, "y")
        assert other.send() == "NONE"
        assert other.quick()
        assert mine.send(mine.batch(), transactional_id="y") == "INVALID_PRODUCER_ID_MAPPING"
        assert mine.send(mine.batch(), transactional_id=None) == (
            "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
        )


def test_transaction_of_the_newer_protocol_is_not_joined_by_the_older() -> None:
    with writing() as pair:
        producer = begun(pair, 12)
        for _ in range(3):
            producer.send(version=11)


def test_expected_batch_without_its_id_is_refused() -> None:
    with writing() as pair:
        producer = begun(pair, 9)
        assert producer.end() == 0
        assert producer.add(0) == 0
        quick(pair)
        assert quick(pair)
        assert producer.send(transactional_id=None) == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"


@finds(_append_again, "if guard is None: return None", "pass")
def test_coordinator_is_asked_about_a_transaction_of_an_unknown_owner() -> None:
    """A broker that has started again does not know who has opened a transaction."""

    with writing() as pair:
        mine, other = begun(pair, 9, "x"), begun(pair, 9, "y")
        assert other.send() == "NONE"
        for producers in [side.partition().log.producers for side in pair.sides]:
            for entry in list(producers):
                known = entry.with_verification(entry.verification, None)
                producers.entries[entry.producer_id] = known
        records = mine.batch()
        assert mine.send(records, transactional_id="y") == "INVALID_PRODUCER_ID_MAPPING"
        assert mine.send(records) == "NONE"


def test_transaction_without_verification_is_not_joined_without_its_id() -> None:
    with twins(transaction_partition_verification_enable="false") as pair:
        pair.create()
        for _ in range(2):
            pair.produce(batch())
        producer = begun(pair, 9, repeats=False)
        assert producer.send() == "NONE"
        quick(pair)
        assert quick(pair)
        assert producer.send(transactional_id=None) == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"


# --- rights and quotas


@contextmanager
def guarded(*rules: AclBinding, **keys: str) -> Iterator[Twins]:
    """Run twins with an authorizer; the client has the rules, and those of an administrator."""
    with twins(**AUTHORIZER, **keys) as pair:
        allow(pair, *ADMINISTRATION, *rules)
        pair.create()
        yield pair


MAY_WRITE = rule(WRITE, TOPIC, "t")
MAY_USE_X = rule(WRITE, TRANSACTIONAL_ID, "x")


@finds(Repeats.serve, "self._asker.standing() is not self._standing", "False")
@finds(authorizer.Authorizer._changed, "self._standing = object()", "pass")
def test_rule_that_is_taken_away_holds_for_the_next_request() -> None:
    with guarded(MAY_WRITE) as pair:
        assert not quick(pair)
        assert quick(pair)
        forbid(pair, TOPIC, "t")
        assert codes(pair, batch(), batch()) == ["TOPIC_AUTHORIZATION_FAILED"] * 2
        allow(pair, MAY_WRITE)
        assert not quick(pair)
        assert quick(pair)


@finds(again, "answer.error_code or ")
def test_refused_request_is_not_remembered() -> None:
    with guarded() as pair:
        assert codes(pair, *[batch()] * 3) == ["TOPIC_AUTHORIZATION_FAILED"] * 3
        allow(pair, MAY_WRITE)
        assert codes(pair, batch()[:-1] + b"?") == ["CORRUPT_MESSAGE"]
        assert not remembered(pair)


def test_rule_of_another_resource_costs_one_request() -> None:
    with guarded(MAY_WRITE) as pair:
        quick(pair)
        assert quick(pair)
        allow(pair, rule(WRITE, TOPIC, "other"))
        assert not quick(pair)
        assert quick(pair)


@finds(again, " and begins_transactional(records)")
def test_right_to_a_transaction_is_not_taken_from_a_plain_batch() -> None:
    """The right to a transactional id is asked for where a batch has a transaction: a request that
    names the id for a plain batch tells nothing about it."""
    with guarded(MAY_WRITE, MAY_USE_X) as pair:
        producer = begun(pair, 9)
        forbid(pair, TRANSACTIONAL_ID, "x")
        assert codes(pair, batch(), batch(), transactional_id="x") == ["NONE"] * 2
        assert producer.send() == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
        assert pair.served == 3


@finds(Repeats._learn_request, "found[0][2] == repeat.basis", "True")
def test_transaction_is_remembered_after_a_plain_batch_too() -> None:
    with guarded(MAY_WRITE, MAY_USE_X) as pair:
        producer = Producer(pair, "x", version=9)
        assert producer.add(0) == 0
        assert codes(pair, batch(), transactional_id="x") == ["NONE"]
        assert producer.send() == "NONE"
        assert producer.quick()


@finds(Repeats.learn, "if asker is not None and standing is None:", "if False:", 0)
@finds(authorizer.Authorizer.standing, "None if _is_logged(logging.DEBUG) else ", "", 2)
@pytest.mark.parametrize("known", [0, 2])
def test_audit_log_has_each_allowed_request(known: int) -> None:
    with guarded(MAY_WRITE) as pair:
        for _ in range(known):
            pair.produce(batch())
        with TestCase().assertLogs(authorizer.__name__, "DEBUG") as audit:
            for _ in range(3):
                pair.produce(batch())
        writes = [line for line in audit.output if "allowed" in line and "Write" in line]
        assert len(writes) == 3 * len(pair.sides)
        assert quick(pair) is bool(known), "the rules are the same as before"
        assert quick(pair)


def test_rules_of_the_past_are_not_kept_by_what_is_remembered() -> None:
    with guarded(MAY_WRITE) as pair:
        quick(pair)
        quick(pair)
        (gate,) = [
            repeats._asker._authorizer
            for _, repeats in pair.fast.wires[0].transport.peer.get_protocol().repeats.values()
        ]
        old = weakref.ref(gate._matcher)
        allow(pair, rule(WRITE, TOPIC, "other"))
        gc.collect()
        assert old() is None


@finds(Dispatcher.again, " or (quotas is not None and quotas.limits)")
def test_quota_that_is_set_holds_for_the_next_request() -> None:
    with writing() as pair:
        free = pair.produce(batch(b"v" * 50_000))
        limit(pair, 1000.0)
        throttled = pair.produce(batch(b"v" * 50_000))
        assert free[:-5] != throttled[:-5]
        before = pair.fast.loop.time()
        pair.produce(batch())
        assert pair.fast.loop.time() > before + 1
        limit(pair, None)
        pair.wait(60)
        pair.produce(batch())
        assert quick(pair)


test_missing_check_is_found = hunt(globals())
