"""Produce that repeats: histories of a broker that remembers requests and of one that does not.

The append is the same for both; `tests/unit/storage/test_sound_batches.py` has its checks.
"""

import gc
import struct
import weakref
from dataclasses import replace
from typing import Any
from unittest import TestCase
from unittest.mock import patch

import pytest

from barnabas.broker.handlers.produce import _append_again, again
from barnabas.broker.replication.partition import Partition, PendingAppend
from barnabas.broker.security import authorizer
from barnabas.broker.server import repeats
from barnabas.broker.server.connection import Connection
from barnabas.broker.server.dispatch import Dispatcher
from barnabas.broker.server.repeats import LARGEST, Repeats
from barnabas.broker.transactions.produce_verification import ProduceVerification
from barnabas.protocol.records.compression import Compression
from barnabas.protocol.template import Templates
from barnabas.security.acl.rules import AclOperation, ResourceType
from tests.simulation.repeats.batches import ODD, TIME_MS, batch
from tests.simulation.repeats.twins import Side, frame
from tests.simulation.repeats.world import T0, Step, World, do, happens, rule, world
from tests.support.mem_files import Fault
from tests.support.mutants import cases, finds, hunt

WRITE, KEYED, ZSTD = do("write"), do("write", batch(key=b"k")), batch(compression=Compression.ZSTD)
KNOWN = (WRITE.slow, WRITE.quick)
ACKS_1 = do("write", acks=1)
TOPIC_GOES = do("delete")
AWAY = do("lead", later=1, leader=99, replicas=[0, 99], isr=[0, 99])
BACK = do("lead", later=1, leader=0, replicas=[0], isr=[0])
IDEMPOTENT, X, Y = do("send", "idempotent"), do("send", "x"), do("send", "y")
ADD_X, END_X, END_Y = do("add", "x", T0), do("end", "x").says("NONE"), do("end", "y").says("NONE")
OPEN_X = (*KNOWN, ADD_X, X.says("NONE"), X.quick)
OPEN_Y = (*KNOWN, Y.says("NONE"), Y.says("NONE"), Y.quick)
FENCED, NO_RIGHT = "INVALID_PRODUCER_EPOCH", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
UNKNOWN = "UNKNOWN_TOPIC_OR_PARTITION"


# --- what is served


@finds(Partition.append, "log.high_watermark = log.log_end_offset", "pass", 9)
@pytest.mark.parametrize("version", range(7, 14))
def test_next_batch_of_a_connection_is_served_from_memory(version: int) -> None:
    sizes = (1, 100, 127, 128, 129, 16_000, 16_400, 70_000)
    batches = [batch(b"x" * size) for size in sizes]
    batches += [batch(b"v" * 100, b"v" * 100, compression=codec) for codec in Compression]
    quick = [do("write", each, version=version).quick for each in batches]
    happens(do("write", version=version).slow, *quick)


@finds(again, "version < REPEATS_SINCE or ", "", 5)
@pytest.mark.parametrize("version", range(3, 7))
def test_versions_with_other_rules_and_answers_are_not_served(version: int) -> None:
    refused = do("write", ZSTD, version=version).says("UNSUPPORTED_COMPRESSION_TYPE")
    happens(*[do("write", version=version).slow] * 3, refused)


def test_requests_in_one_write_are_answered_in_order_with_their_numbers() -> None:
    numbers = [0, 1, -1, 2**31 - 1, -(2**31), *range(40)]
    with world(*KNOWN) as it:
        for client in (b"client", None, b"", b"\xff\xfe\x00", b"caf\xc3\xa9", b"c" * 400):
            written = {"client": client, **it.written()}
            answers = it.pair.exchange(
                *[frame("produce", 9, number=each, **written) for each in numbers]
            )
            assert [struct.unpack(">i", each[:4])[0] for each in answers] == numbers
        assert it.pair.hits["produce"] > 6 * 44


def test_fault_of_the_memory_is_not_the_answer_to_a_request_that_has_been_served() -> None:
    """The producer would send the batch again. It happened to Fetch."""
    with world() as it:
        with patch.object(Repeats, "learn", side_effect=ValueError("unexpected")):
            it.tell(WRITE.says("NONE"), WRITE.says("NONE"))
        it.tell(*KNOWN)


def expire(it: World) -> None:
    it.pair.each(lambda side: [*side.partition().log.producers.expire(TIME_MS * 2, 1)])


def forget_owners(it: World) -> None:
    """Be as after a start: a broker does not know then who has opened a transaction."""
    for side in it.pair.sides:
        producers = side.partition().log.producers
        for entry in list(producers):
            known = replace(entry, opened_by=None)
            producers.entries[entry.producer_id] = known


BY_ID = do("write", version=13)


LARGE = do("write", client=b"c" * LARGEST).slow
TOO_LARGE = "if sum(map(len, template.constants)) > LARGEST:"


@cases(
    "story",
    # Without acknowledgements there is no answer.
    (
        [*[do("write", acks=0).slow] * 3, WRITE.quick, ACKS_1.slow, ACKS_1.quick],
        (Dispatcher.begin, "and response is not None and", "and"),
    ),
    (
        [do("write", topic=topic, index=at).says(says) for _ in range(2) for topic, at, says in (
            ("t", 1, "NONE"), ("t", 0, "NONE"), ("u", 0, "NONE"), ("t", 7, UNKNOWN),
            ("v", 0, UNKNOWN),
        )],
        (Templates.find_with_records, "meaning is not None and "),
    ),
    ([LARGE, LARGE], (Repeats._learn_request, TOO_LARGE, "if False:")),
    # A silent connection forgets.
    ([do("wait", 30), *KNOWN], (Connection.trim, "self.repeats.clear()", "pass")),
    (
        [do("write", b"r" * size).slow for size in (1, 3, 4, 5, 20, 60, 61)],
        (_append_again, "except CorruptRecordError:", "except ZeroDivisionError:"),
    ),
    (
        [AWAY, WRITE.says("NOT_LEADER_OR_FOLLOWER"), BACK, *KNOWN],
        (again, "(*basis, ", "(place, opener, "),
        (Repeats._serve_whole, "if answer is None:", "if False:"),
    ),
    ([TOPIC_GOES, do("create"), *KNOWN],),
    (
        [
            BY_ID.slow, BY_ID.quick, do("keep_id"), TOPIC_GOES, BY_ID.says("UNKNOWN_TOPIC_ID"),
            do("create"), BY_ID.slow, BY_ID.quick,
            do("write", topic="kept", version=13).says("UNKNOWN_TOPIC_ID"),
        ],
        (_append_again, "or standing is not partition.standing"),
    ),
    ([do("trim", 2), WRITE.quick],),
    # Reading the records would hold the event loop.
    (
        [do("configure", cleanup_policy="compact"), *[KEYED.slow] * 3],
        (Partition._stand, "at_once and not self.log.rules.looks_inside", "at_once"),
    ),
    # Idempotent producers.
    (
        [
            IDEMPOTENT.slow, *[IDEMPOTENT.quick] * 8, do("send", "idempotent", repeats=True).quick,
            do("send", "idempotent", base_sequence=12).says("OUT_OF_ORDER_SEQUENCE_NUMBER"),
        ],
        (_append_again, "if not duplicate:", "if True:"),
    ),
    # A client id may begin with so many new producers (`producer.ids.max.per.connection`).
    (
        [ADD_X, X, X.quick, END_X, expire, ADD_X, do("send", "x", base_sequence=0).slow],
        (_append_again, "if entry is None:", "if False:"),
    ),
)  # fmt: skip
def test_known_request_is_served_while_it_means_the_same(story: list[Step]) -> None:
    happens(*KNOWN, *story)


@finds(Templates.find_with_records, "if rest > MOST_LENGTH:", "if True:", "cut to -80", 9)
@finds(Templates.find_with_records, "and found == length", "", "longer by -3", 9)
@finds(Templates.find_with_records, "and found == length", "", "longer by -3", 8)
@finds(Templates.find_with_records, "and frame[behind:] == end", "", r"tags b'\x00\x00\x01'", 9)
@pytest.mark.parametrize("version", [8, 9])
@pytest.mark.parametrize("odd", ODD)
def test_request_of_other_bytes_is_left_to_the_handler(odd: str, version: int) -> None:
    written, oddly = do("write", version=version), do("write_oddly", odd, version)
    happens(written, written.quick, *[oddly.slow] * 3, written, written.quick)


@finds(again, "or len(request.topic_data) != 1")
@finds(again, "or len(request.topic_data[0].partition_data) != 1")
def test_request_for_several_partitions_or_none_is_not_served() -> None:
    with world(*KNOWN) as it:
        (topic,) = it.written()["topic_data"]
        (one,) = topic["partition_data"]
        two = topic | {"partition_data": [one, one | {"index": 1}]}
        other = topic | {"name": "u"}
        for topics in ([two], [topic, other], [topic | {"partition_data": []}], []):
            request = it.written() | {"topic_data": topics}
            for _ in range(2):
                it.pair.ask("produce", 9, on=0, **request)
        it.tell(WRITE.quick)


# --- what a connection remembers

T, T1, U, NAMED = (
    WRITE,
    do("write", index=1),
    do("write", topic="u"),
    do("write", topic="a-long-name"),
)


@cases(
    "limits, story",
    (
        {"MOST": 2, "COST": 4},
        [T.slow, T1.slow, U.slow, T.quick, U.slow, *[T.quick] * 8, U.slow, U.quick, T.slow],
        (Repeats._has_room, "self._templates.count >= most or "),
        (Repeats._has_room, "if self._credit < most * cost:", "if False:"),
    ),
    (
        {"MOST_SHAPES": 1}, [T.slow, NAMED.slow, NAMED.slow, T.quick],
        (Repeats._has_room, " or self._templates.shapes >= MOST_SHAPES"),
    ),
)  # fmt: skip
def test_connection_remembers_a_bounded_number_of_requests(
    limits: dict[str, int], story: list[Step]
) -> None:
    with patch.multiple(repeats, **limits):
        happens(do("create", "a-long-name"), *story)


@pytest.mark.parametrize("odd", [LARGE, do("write_oddly", f"behind: {bytes(1)!r}", 9)])
def test_client_whose_requests_cannot_be_remembered_rarely_pays_for_the_attempt(odd: Step) -> None:
    with patch.object(repeats, "template_of", wraps=repeats.template_of) as made:  # type: ignore[attr-defined]
        happens(*[odd] * 3 * repeats.COST)
    assert 1 < made.call_count < 9


# --- the leader and its disk


def resign(it: World) -> None:
    it.pair.each(lambda side: side.broker._replication.replicas.resign_all())


@cases(
    "change, error",
    (resign, "NOT_LEADER_OR_FOLLOWER", (Partition.resign, "self._stand()", "pass")),
    (TOPIC_GOES, UNKNOWN, (_append_again, "partition is None or ")),
    (do("lead", isr=[]), "NOT_ENOUGH_REPLICAS", (Partition._stand, ">= self._min_isr", ">= 0")),
    (
        do("lead", replicas=[0, 1], isr=[0, 1]), "REQUEST_TIMED_OUT",
        (_append_again, "or standing is not partition.standing"),
        (again, " or not partition.standing.is_prompt"),
        (Partition._stand, "not (isr.followers or self.flushes_first)", "not self.flushes_first"),
    ),
)  # fmt: skip
def test_changed_standing_holds_for_the_next_request(change: Any, error: str) -> None:
    happens(*KNOWN, change, *[WRITE.says(error).slow] * 2, *[ACKS_1.slow] * 2)


@finds(Partition.config_changed, "self._stand()", "pass")
@finds(Partition.append, "not alone or log.log_end_offset >= self._flush_messages", "False")
def test_append_that_is_flushed_before_its_answer_fails_with_the_disk() -> None:
    fault = Fault("sync", ".log", from_then_on=True)
    with world(*KNOWN, do("configure", flush_messages="1"), WRITE, WRITE.says("NONE")) as it:
        it.pair.each(lambda side: side.files.faults.append(fault))
        it.tell(WRITE.says("KAFKA_STORAGE_ERROR"))


def test_full_disk_refuses_this_batch_and_the_next_ones() -> None:
    with world(*KNOWN) as it:
        it.pair.each(lambda side: side.files.faults.append(Fault("append", ".log", written=10)))
        it.tell(*[WRITE.says("KAFKA_STORAGE_ERROR").slow] * 3)


@finds(_append_again, "or partition.appends")
def test_batch_waits_behind_one_that_is_queued() -> None:
    waiting: dict[bool, PendingAppend] = {}

    async def queue(side: Side) -> None:
        append = waiting[side.fast] = PendingAppend(b"", None, 0, {})
        side.partition().appends.append(append)

    async def proceed(side: Side) -> None:
        side.partition().appends.clear()
        waiting[side.fast].done.cancel()

    with world(*KNOWN) as it:
        it.pair.both(queue)
        assert it.pair.exchange(frame("produce", 9, **it.written())) == []
        it.pair.both(proceed)
        assert it.pair.hits["produce"] == 1


# --- transactions

OF_Y_BEFORE = do("send", "y", epochs=-1, base_sequence=0)


@cases(
    "story",
    ([*OPEN_X, X.quick, END_X, ADD_X, X.quick, do("end", "x", commit=False)],),
    ([*OPEN_Y, Y.quick, END_Y, Y.quick, do("end", "y", commit=False)],),
    ([do("write", version=7), do("write", version=7).quick, ADD_X, do("send", "x", version=7)],),
    ([*OPEN_X, END_X, X.says("INVALID_TXN_STATE").slow],),
    ([*OPEN_X, do("init", "x"), do("send", "former", transactional_id="x").says(FENCED)],),
    (
        [*OPEN_Y, *[END_Y, Y.quick] * 2, END_Y, OF_Y_BEFORE.says(FENCED)],
        (
            ProduceVerification.add_again,
            "guard if self._verifier.add_again(added, producer, now_ms) else None", "guard",
        ),
        (Repeats.serve, "except KafkaError:", "except ZeroDivisionError:"),
    ),
    ([*OPEN_X, WRITE.quick, do("send", "x", transactional=False).says("INVALID_TXN_STATE")],),
    (
        [
            *OPEN_X, do("add", "another id", T0), *[do("send", "another id").says("NONE")] * 2,
            do("send", "x", transactional_id="another id").says("INVALID_PRODUCER_ID_MAPPING"),
            do("send", "x", transactional_id=None).says(NO_RIGHT),
        ],
        (_append_again, "elif opened != opener: return None"),
    ),
    # A transaction of the newer protocol is not joined by the older one.
    ([*OPEN_Y, *[do("send", "y", version=11)] * 3],),
    ([*OPEN_X, END_X, ADD_X, WRITE, WRITE, do("send", "x", transactional_id=None).says(NO_RIGHT)],),
    (
        [
            *OPEN_X, do("add", "another id", T0), do("send", "another id"), forget_owners,
            do("send", "x", transactional_id="another id").says("INVALID_PRODUCER_ID_MAPPING"),
            do("send", "x", repeats=True).says("NONE"),
        ],
        (_append_again, "if guard is None: return None", "pass"),
    ),
)  # fmt: skip
def test_batch_belongs_to_the_open_transaction_of_its_producer(story: list[Step]) -> None:
    happens(*story)


def test_transaction_without_verification_is_not_joined_without_its_id() -> None:
    verifies = "transaction_partition_verification_enable"
    story = ADD_X, X, X, WRITE, WRITE, do("send", "x", transactional_id=None).says(NO_RIGHT)
    happens(*KNOWN, *story, **{verifies: "false"})


# --- rights and quotas

TOPIC, TRANSACTIONAL_ID = ResourceType.TOPIC, ResourceType.TRANSACTIONAL_ID
MAY_WRITE = rule(AclOperation.WRITE, TOPIC, "t")
MAY_WRITE_U = rule(AclOperation.WRITE, TOPIC, "u")
MAY_USE_X = rule(AclOperation.WRITE, TRANSACTIONAL_ID, "x")
NO_TOPIC = "TOPIC_AUTHORIZATION_FAILED"
REFUSED = WRITE.says(NO_TOPIC).slow
AS_X = do("write", transactional_id="x").says("NONE")


@cases(
    "story",
    (
        [*KNOWN, do("forbid", TOPIC, "t"), REFUSED, REFUSED, do("allow", MAY_WRITE), *KNOWN],
        (Repeats.serve, "self._asker.standing() is not self._standing", "False"),
        (authorizer.Authorizer._changed, "self._standing = object()", "pass"),
    ),
    # A refused request is not remembered.
    (
        [
            do("forbid", TOPIC, "t"), *[REFUSED] * 3, do("allow", MAY_WRITE),
            do("write", batch()[:-1] + b"?").says("CORRUPT_MESSAGE"), WRITE.slow,
        ],
        (again, "answer.error_code or "),
    ),
    (
        [*KNOWN, U.slow, U.quick, do("forbid", TOPIC, "u"), *KNOWN, *[U.says(NO_TOPIC).slow] * 2],
        (Repeats.learn, "self._templates.clear()", "pass"),
    ),
    # A rule of another resource costs one request.
    ([*KNOWN, do("allow", rule(AclOperation.WRITE, TOPIC, "other")), *KNOWN],),
    # The right to a transactional id is asked for where a batch has a transaction: a request that
    # names the id for a plain batch tells nothing about it.
    (
        [*OPEN_X, do("forbid", TRANSACTIONAL_ID, "x"), AS_X, AS_X, X.says(NO_RIGHT).slow],
        (again, " and begins_transactional(records)"),
    ),
    (
        [ADD_X, AS_X, X.says("NONE"), X.quick],
        (Repeats._learn_request, "found[0][2] == repeat.basis", "True"),
    ),
)  # fmt: skip
def test_rules_hold_for_the_next_request(story: list[Step]) -> None:
    happens(*story, rules=(MAY_WRITE, MAY_WRITE_U, MAY_USE_X))


@finds(Repeats.learn, "if asker is not None and standing is None:", "if False:", 0)
@finds(authorizer.Authorizer.standing, "None if _is_logged(logging.DEBUG) else ", "", 2)
@pytest.mark.parametrize("known", [0, 2])
def test_audit_log_has_each_allowed_request(known: int) -> None:
    with world(*KNOWN[:known], rules=(MAY_WRITE,)) as it:
        with TestCase().assertLogs(authorizer.__name__, "DEBUG") as audit:
            it.tell(*[WRITE] * 3)
        writes = [line for line in audit.output if "allowed" in line and "Write" in line]
        assert len(writes) == 3 * len(it.pair.sides)
        # The rules are the same as before.
        it.tell(WRITE.quick if known else WRITE.slow, WRITE.quick)


def test_rules_of_the_past_are_not_kept_by_what_is_remembered() -> None:
    with world(*KNOWN, rules=(MAY_WRITE,)) as it:
        memories = list(it.pair.fast.peer().repeats.values())
        old = weakref.ref(memories[0]._asker._authorizer._matcher)
        it.tell(do("allow", rule(AclOperation.WRITE, TOPIC, "other")))
        gc.collect()
        assert old() is None


@finds(Repeats.serve, "self._limits or ")
def test_quota_that_is_set_holds_for_the_next_request() -> None:
    large = do("write", batch(b"v" * 50_000))
    with world(*KNOWN, do("limit", 1000.0), large.slow) as it:
        before = it.pair.fast.loop.time()
        it.tell(WRITE.slow)
        assert it.pair.fast.loop.time() > before + 1
        it.tell(do("limit", None), do("wait", 60), *KNOWN)


test_missing_check_is_found = hunt(globals())
