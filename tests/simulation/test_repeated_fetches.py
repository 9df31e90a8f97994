"""Fetches that repeat: histories of a broker that remembers them and of one that does not."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.broker.handlers.fetch import _is_for_one, _read_again, again
from barnabas.protocol.template import Templates
from tests.simulation.repeats.batches import batch
from tests.simulation.repeats.world import T1, U0, Step, World, do, happens, world
from tests.support.mutants import cases, finds, hunt

BATCHES = 12
LAST = batch(bytes(100 * (BATCHES - 1)), key=b"k")
SIZES = [10, 900, 40, 5_000, 20_000, 3, 100, 200_000, 1, 7_000]
FILLED = [do("write", batch(bytes(100 * at), key=b"k"), acks=1) for at in range(BATCHES)]
"""Batches of 69, 171, 271, 371 ... bytes in `t-0`."""


def at(offset: int | None, *others: Any, **fields: Any) -> Step:
    return do("fetch", offset, *others, **fields)


def begins(*others: Any, **fields: Any) -> Step:
    """Return the step that begins a session."""
    return at(0, *others, session="begins", **fields).slow


def then(offset: int | None = None, *others: Any, **fields: Any) -> Step:
    """Return the next request of the session."""
    return at(offset, *others, session="next", **fields)


KNOWN = (at(0).slow, at(1).quick)
FORGETS = [{"topic": "t", "partitions": [1]}]


@pytest.mark.parametrize("version", range(7, 19))
def test_next_requests_are_answered_as_by_the_handler(version: int) -> None:
    first, *others = [at(offset, version=version) for offset in range(BATCHES)]
    happens(*FILLED, first.slow, *[each.quick for each in others])


@finds(again, "version < REPEATS_SINCE or ")
def test_older_versions_are_left_to_the_handler() -> None:
    happens(*FILLED, *[at(offset, version=6).slow for offset in range(4)])


@finds(Templates.find, "if size == fixed:", "if True:")
def test_request_that_says_something_else_is_left_to_the_handler() -> None:
    others: list[dict[str, Any]] = [
        {"topic": "u"}, {"size": 10}, {"max_bytes": 10}, {"isolation_level": 1}, {"rack_id": "r"},
        {"leader_epoch": 0}, {"last_epoch": 0}, {"session_id": 7, "session_epoch": 3},
        {"forgotten_topics_data": FORGETS}, {"behind": b"\0"},
    ]  # fmt: skip
    steps = [step for other in others for step in (at(1, **other).slow, at(1).quick)]
    happens(*FILLED, *KNOWN, *steps)


@cases(
    "fields",
    ({"rack_id": "r"}, (_is_for_one, "or request.rack_id")),
    ({"forgotten_topics_data": FORGETS}, (_is_for_one, "or request.forgotten_topics_data")),
    ({"session_epoch": 0}, (again, "elif request.session_epoch != FINAL_EPOCH:", "elif False:")),
    ({"session_id": 7}, (again, "session is None or ")),
    ({"leader_epoch": 7}, (_is_for_one, "not answer.records or ")),
)
def test_request_of_another_kind_is_not_remembered(fields: dict[str, Any]) -> None:
    others = at(1).slow, at(2, session_epoch=0).slow
    happens(*FILLED, at(0, **fields).slow, at(1, **fields).slow, *others)


def resign(it: World) -> None:
    it.pair.each(lambda side: side.partition().resign())


def truncate(it: World) -> None:
    for side in it.pair.sides:
        side.partition().log.truncating = not side.partition().log.truncating


DELETE = [do("delete")]
MADE_ANEW = [*DELETE, do("create"), *[do("write")] * 4]
STANDING = " or standing is not partition.standing"


@cases(
    "change, version",
    ([do("lead", later=1)], 12),
    ([do("lead", isr=[0, 1])], 12),
    ([resign], 12, (_read_again, STANDING)),
    (DELETE, 12, (_read_again, "partition is None or ")),
    (DELETE, 13),
    (MADE_ANEW, 12, (_read_again, STANDING)),
    ([do("keep_id"), *MADE_ANEW, do("keep_id", "kept", "t")], 13, (_read_again, STANDING)),
    ([truncate], 12),
    ([do("trim", 3)], 12),
)
def test_change_is_left_to_the_handler(change: list[Any], version: int) -> None:
    ends = [truncate] * (change == [truncate])
    first, second, third = [at(offset, version=version) for offset in range(3)]
    happens(*FILLED, first, second.quick, *change, third.slow, *ends)


LEVEL_1 = {"isolation_level": 1}
SHORT = {"isolation_level": 1, "size": 300}
ENOUGH = {"min_bytes": len(LAST), "max_wait_ms": 100}
TOO_MUCH = {"min_bytes": len(LAST) + 1, "max_wait_ms": 100}
NO_MINIMUM = {"min_bytes": 0}


@cases(
    "story",
    (
        [do("lead", later=1, leader=99, replicas=[0, 99], isr=[0, 99]), *[at(0).slow] * 3],
        (again, "or not partition.standing.is_leader"),
    ),
    # Nor is a request for all there is, at the limit of the answer.
    (
        [
            at(0, **ENOUGH), at(BATCHES - 1, **ENOUGH).quick, at(BATCHES, **ENOUGH).slow,
            at(0, **TOO_MUCH), at(BATCHES - 1, **TOO_MUCH).slow, at(BATCHES, **TOO_MUCH).slow,
        ],
        (_read_again, "(size < min_bytes and size < limit)", "False"),
    ),
    # Records of an open transaction are not read committed, and an answer names aborted ones.
    (
        [
            do("send", "y").says("NONE"),
            at(0), at(1).quick, at(0, **LEVEL_1), at(1, **LEVEL_1).quick,
            at(BATCHES, **LEVEL_1).slow, do("end", "y", commit=False).says("NONE"),
            *[at(offset, **each).slow for offset, each in (
                (BATCHES, LEVEL_1), (BATCHES, SHORT), (1, SHORT),
            )],
            at(1, **SHORT).quick,
        ],
        (
            _read_again,
            "end = last_stable if read_committed else high_watermark", "end = high_watermark",
        ),
        (_read_again, "read_committed and log.aborted_transactions(offset, end_offset)", "False"),
        (_is_for_one, "or answer.aborted_transactions"),
    ),
    # Behind the epoch the logs may differ.
    (
        [
            at(0, last_epoch=0), at(1, last_epoch=0).quick, do("lead", later=1),
            *[do("write", acks=1)] * 2, at(0, last_epoch=0).slow,
            at(BATCHES + 1, last_epoch=0).slow, at(BATCHES, last_epoch=1),
            at(BATCHES + 1, last_epoch=1).quick,
        ],
        (_read_again, "(last_epoch >= 0 and last_epoch != log.epochs.latest_epoch)", "False"),
    ),
    (
        [at(0), *[at(offset).quick for offset in range(2)], at(2, session_epoch=0).slow],
        (_read_again, "epoch != FINAL_EPOCH if", "False if"),
    ),
    (
        [
            begins(), then(0).slow, *[then(offset).quick for offset in range(1, BATCHES)],
            at(3, session="late").says("INVALID_FETCH_SESSION_EPOCH").slow, then().slow,
        ],
        (again, "if request.session_id != NO_SESSION:", "if False:"),
        (_read_again, "else not sessions.is_next(session, epoch, fetched)", "else False"),
        (_read_again, "wanted.fetch_offset = offset", "pass"),
        (_read_again, "sessions.used(session, now_ms)", "pass"),
    ),
    # A session keeps what the last request asked for.
    (
        [begins(), then(0), then(1, size=500), then(2).quick, then().slow],
        (_read_again, "fetched.update(wanted)", "pass"),
    ),
    # A session is told no old news.
    (
        [
            begins(**NO_MINIMUM), then(0, **NO_MINIMUM), do("write"), then(1, **NO_MINIMUM).quick,
            then(BATCHES + 1, **NO_MINIMUM).slow,
        ],
        (
            _read_again,
            "fetched.high_watermark, fetched.log_start_offset = high_watermark, log_start",
            "pass",
        ),
        (_read_again, "if offset >= end:", "if False:"),
    ),
    (
        [
            step
            for size in (*range(238, 243), *range(440, 445), 1000)
            for step in (at(0, size=size), *[at(to, size=size).quick for to in range(BATCHES)])
        ],
    ),
    (
        [
            begins(), then(0), then(1).quick, then(0, topic="u").slow, then(2).slow, then(3).slow,
        ],
        (again, " or len(session.partitions) != 1"),
    ),
)  # fmt: skip
def test_consumer_reads_on(story: list[Step]) -> None:
    happens(*FILLED, *story)


@finds(_read_again, "min(max_bytes, most_bytes())", "max_bytes")
def test_limit_of_the_broker_holds() -> None:
    happens(*FILLED, *KNOWN, fetch_max_bytes="1024")


@finds(_is_for_one, "len(request.topics) != 1 or ", "", U0, 0)
@finds(_is_for_one, " or len(request.topics[0].partitions) != 1", "", T1, 0)
@pytest.mark.parametrize("records", [0, 1])
@pytest.mark.parametrize("other", [T1, U0])
def test_request_or_answer_for_several_partitions_is_not_remembered(
    other: Any, records: int
) -> None:
    # Without news of the other partition the answer has one.
    written = [do("write", topic=other[0], index=other[1])] * records
    alone = [then(0).slow, then(1).slow]
    happens(*FILLED, *written, begins(other), *[then(0, other).slow] * 3, *alone)


# -- the whole log ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def full() -> Iterator[World]:
    """Brokers with a log of some segments, with transactions of each outcome."""
    with world(do("configure", segment_bytes="1048576", index_interval_bytes="2000")) as it:
        for number, size in enumerate(SIZES * 5):
            it.write(batch(*[bytes(size)] * (1 + number % 4)))
            for commit in (True, False) if number % 7 == 3 else ():
                it.send("y", bytes(300), bytes(300))
                it.write(batch(bytes(50)))
                it.end("y", commit=commit)
        yield it


@pytest.mark.parametrize("version", [7, 11, 12, 13, 18])
@pytest.mark.parametrize("in_session", [False, True])
@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize("size", [1_000, 16_384, 1 << 20])
def test_whole_log_is_read(
    full: World, version: int, in_session: bool, level: int, size: int
) -> None:
    asked = {"version": version, "isolation_level": level, "size": size}
    if in_session:
        full.tell(begins(**asked))
    hits, full.reached, before, requests = full.pair.hits["fetch"], 0, -1, 0
    while full.reached > before:
        before, requests = full.reached, requests + 1
        full.fetch(before, session="next" if in_session else "", **asked)
    # The first request is remembered, and the last one finds nothing. The handler reads across the
    # end of a segment, and what has aborted transactions, as each MB has.
    segments = len(list(full.pair.fast.partition().log.segments))
    assert requests > 3
    served = full.pair.hits["fetch"] - hits
    assert served >= (size < 1 << 20 if level else requests - 2 - segments)


LIMITS = st.sampled_from([0, 1, 90, 1_000, 16_384, 70_000, 1 << 20])
ASKED = {
    "version": st.integers(7, 18),
    "session": st.sampled_from(["", "", "begins", "next", "next", "next", "late"]),
    "isolation_level": st.integers(0, 1),
    "size": LIMITS,
    "max_bytes": LIMITS,
    "min_bytes": st.sampled_from([0, 1, 100, 1 << 20]),
    "leader_epoch": st.sampled_from([-1, -1, 0, 1]),
    "last_epoch": st.sampled_from([-1, -1, 0, 1]),
}
READS = st.builds(partial(do, "read_on"), st.just(0) | st.integers(-300, 300), **ASKED)


@given(st.lists(st.tuples(READS, st.integers(1, 6)), min_size=1, max_size=12))
@settings(max_examples=60, deadline=None)
def test_consumers_read_the_same(full: World, reads: list[tuple[Step, int]]) -> None:
    full.session_id, full.session_epoch, full.reached = 0, -1, 0
    for step, times in reads:
        for _ in range(times):
            full.read_on(*step.args, **step.options)


test_missing_check_is_found = hunt(globals())
