"""Fetches that repeat: a broker that remembers them and one that does not give the same answers."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.broker.handlers.fetch import _is_for_one, _read_again, again
from barnabas.protocol.codec import decode, encode
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.header import decode_response_header, encode_request_header
from barnabas.protocol.messages import fetch
from barnabas.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
)
from barnabas.protocol.records.batch import iter_headers
from tests.simulation.repeats.produce import Producer, batch, codes, trim
from tests.simulation.repeats.twins import Twins, twins
from tests.support.mutants import finds, hunt

BATCHES = 12
SIZES = [10, 900, 40, 5_000, 20_000, 3, 100, 200_000, 1, 7_000]
FORGOTTEN = [ForgottenTopic(topic="t", partitions=[1])]


class Reader:
    """A consumer of both brokers."""

    def __init__(self, pair: Twins, version: int = 12) -> None:
        self.pair = pair
        self.version = version
        self.session_id, self.epoch = 0, -1
        self.answer: Any = None
        self.reached = 0
        """The offset behind the last record of the last answer that had records."""

    def fetch(self, offset: int | None = None, *others: tuple[str, int], **fields: Any) -> bool:
        """Read `t-0` and others, or what the session has; return whether memory has answered."""
        places = [] if offset is None else [(fields.pop("topic", "t"), 0), *others]
        leader_epoch, last_epoch = fields.pop("leader_epoch", -1), fields.pop("last_epoch", -1)
        wanted = {
            "fetch_offset": offset,
            "partition_max_bytes": fields.pop("size", 1 << 20),
            "current_leader_epoch": leader_epoch if self.version >= 9 else -1,
            "last_fetched_epoch": last_epoch if self.version >= 12 else -1,
        }
        topics: dict[str, list[FetchPartition]] = {}
        for topic, index in places:
            topics.setdefault(topic, []).append(FetchPartition(partition=index, **wanted))
        fields = {"session_id": self.session_id, "session_epoch": self.epoch} | fields
        by_id = self.version >= 13
        request = FetchRequest(
            **{"max_wait_ms": 0, "min_bytes": 1} | fields,
            topics=[
                FetchTopic(topic_id=self.pair.ids[name], partitions=some)
                if by_id
                else FetchTopic(topic=name, partitions=some)
                for name, some in topics.items()
            ],
        )
        before = self.pair.hits_of(fetch)
        header = encode_request_header(fetch.API.key, self.version, 1, "c")
        (found,) = self.pair.exchange(header + encode(request, self.version))
        _, at = decode_response_header(fetch.API.key, self.version, found)
        self.answer = decode(fetch.API.response, self.version, found, at)
        for topic in self.answer.responses:
            for _, last in list(iter_headers(bytes(topic.partitions[0].records or b"")))[-1:]:
                self.reached = last.next_offset
        return self.pair.hits_of(fetch) > before

    def begin(self, *others: tuple[str, int], **fields: Any) -> None:
        """Begin a session with `t-0` and others."""
        assert not self.fetch(0, *others, session_id=0, session_epoch=0, **fields)
        self.session_id, self.epoch = self.answer.session_id, 0
        assert self.session_id

    def next(self, offset: int | None = None, *others: tuple[str, int], **fields: Any) -> bool:
        """Do what `fetch` does in the session, whose state shows in the answer to an empty one."""
        self.epoch += 1
        return self.fetch(offset, *others, **fields)

    @property
    def code(self) -> str:
        return ErrorCode(self.answer.error_code).name


@contextmanager
def reading(version: int = 12, **keys: str) -> Iterator[Reader]:
    """Run brokers with batches of 69, 171, 271, 371 ... bytes in `t-0`."""
    with twins(**keys) as pair:
        pair.create("t", 2)
        pair.create("u", 1)
        for number in range(BATCHES):
            pair.produce(batch(bytes(100 * number), key=b"k"), acks=1)
        yield Reader(pair, version)


@pytest.mark.parametrize("version", range(7, 19))
def test_next_requests_are_answered_as_by_the_handler(version: int) -> None:
    with reading(version) as reader:
        assert [reader.fetch(offset) for offset in range(BATCHES)] == [False, *[True] * 11]


@finds(again, "version < REPEATS_SINCE or ")
def test_older_versions_are_left_to_the_handler() -> None:
    with reading(6) as reader:
        assert not any(reader.fetch(offset) for offset in range(4))


def test_request_that_says_something_else_is_left_to_the_handler() -> None:
    with reading() as reader:
        reader.fetch(0)
        for other in (
            {"topic": "tt"},
            {"topic": "u"},
            {"size": 10},
            {"max_bytes": 10},
            {"isolation_level": 1},
            {"rack_id": "r"},
            {"leader_epoch": 0},
            {"last_epoch": 0},
            {"session_id": 7, "session_epoch": 3},
            {"forgotten_topics_data": FORGOTTEN},
        ):
            assert not reader.fetch(1, **other), other
            assert reader.fetch(1)


@finds(_is_for_one, "or request.rack_id", "", {"rack_id": "r"})
@finds(_is_for_one, "or request.forgotten_topics_data", "", {"forgotten_topics_data": FORGOTTEN})
@finds(again, "session is None or ", "", {"session_id": 7})
@finds(again, "elif request.session_epoch != FINAL_EPOCH:", "elif False:", {"session_epoch": 0})
@finds(_read_again, "epoch != FINAL_EPOCH if", "False if", {})
@finds(_is_for_one, "not answer.records or ", "", {"leader_epoch": 7})
@pytest.mark.parametrize(
    "fields",
    [
        {"rack_id": "r"},
        {"forgotten_topics_data": FORGOTTEN},
        {"session_epoch": 0},
        {"session_id": 7},
        {"leader_epoch": 7},
        {},
    ],
)
def test_request_of_another_kind_is_not_remembered(fields: dict[str, Any]) -> None:
    with reading() as reader:
        for offset in range(2):
            assert not reader.fetch(offset, **fields) or not fields
        assert reader.fetch(1) is (not fields)
        assert not reader.fetch(2, session_epoch=0)


def lead(reader: Reader, **changes: Any) -> None:
    epoch = reader.pair.fast.partition().leader_epoch
    reader.pair.lead(**{"leader_epoch": epoch + 1} | changes)


def resign(reader: Reader) -> None:
    reader.pair.each(lambda side: side.partition().resign())


def delete(reader: Reader) -> None:
    reader.pair.delete()
    reader.pair.wait(2)


def make_anew(reader: Reader) -> None:
    delete(reader)
    reader.pair.create("t", 2)
    for _ in range(4):
        reader.pair.produce(batch(b"new"))


def keep_the_id(reader: Reader) -> None:
    old = reader.pair.ids["t"]
    make_anew(reader)
    reader.pair.ids["t"] = old


def add_a_follower(reader: Reader) -> None:
    lead(reader, leader_epoch=reader.pair.fast.partition().leader_epoch, isr=[0, 1])


def begin_to_truncate(reader: Reader) -> None:
    for side in reader.pair.sides:
        side.partition().log.truncating = True


@finds(_read_again, "partition is None or ", "", delete, 12)
@finds(_read_again, " or standing is not partition.standing", "", resign, 12)
@finds(_read_again, " or standing is not partition.standing", "", make_anew, 12)
@finds(_read_again, " or standing is not partition.standing", "", keep_the_id, 13)
@pytest.mark.parametrize(
    ("change", "version"),
    [
        (lead, 12),
        (resign, 12),
        (delete, 12),
        (delete, 13),
        (make_anew, 12),
        (keep_the_id, 13),
        (add_a_follower, 12),
        (begin_to_truncate, 12),
        (lambda reader: trim(reader.pair, 3), 12),
    ],
)
def test_change_is_left_to_the_handler(change: Callable[[Reader], None], version: int) -> None:
    with reading(version) as reader:
        reader.fetch(0)
        assert reader.fetch(1)
        change(reader)
        assert not reader.fetch(2)
        for side in reader.pair.sides:
            if (partition := side.broker._replication.replicas.find(("t", 0))) is not None:
                partition.log.truncating = False


@finds(again, "or not partition.standing.is_leader")
def test_replica_that_does_not_lead_is_not_remembered() -> None:
    with reading() as reader:
        lead(reader, leader=99, replicas=[0, 99], isr=[0, 99])
        assert not any(reader.fetch(0) for _ in range(3))


@finds(_read_again, "(size < min_bytes and size < limit)", "False")
def test_too_few_bytes_wait_in_the_handler() -> None:
    size = len(batch(bytes(100 * (BATCHES - 1)), key=b"k"))
    with reading() as reader:
        for min_bytes in (size, size + 1):
            asked = {"min_bytes": min_bytes, "max_wait_ms": 100}
            reader.fetch(0, **asked)
            assert reader.fetch(BATCHES - 1, **asked) is (min_bytes == size)
            # Nor is a request for all there is, at the limit of the answer.
            assert not reader.fetch(BATCHES, **asked)


@finds(_read_again, "min(max_bytes, most_bytes())", "max_bytes")
def test_limit_of_the_broker_holds() -> None:
    with reading(fetch_max_bytes="1024") as reader:
        reader.fetch(0)
        assert reader.fetch(1)


@finds(
    _read_again, "end = last_stable if read_committed else high_watermark", "end = high_watermark"
)
@finds(_read_again, "read_committed and log.aborted_transactions(offset, end_offset)", "False")
@finds(_is_for_one, "or answer.aborted_transactions")
def test_records_of_an_open_transaction_are_not_read_committed() -> None:
    with reading() as reader:
        producer = Producer(reader.pair, "x", version=12)
        assert producer.send() == "NONE"
        for level in (0, 1):
            reader.fetch(0, isolation_level=level)
            assert reader.fetch(1, isolation_level=level)
        assert not reader.fetch(BATCHES, isolation_level=1)
        assert producer.end(commit=False) == 0
        # The answer names the aborted transaction.
        assert not reader.fetch(BATCHES, isolation_level=1)
        for offset in (BATCHES, 1):
            assert not reader.fetch(offset, isolation_level=1, size=300)
        assert reader.fetch(1, isolation_level=1, size=300)


@finds(_read_again, "(last_epoch >= 0 and last_epoch != log.epochs.latest_epoch)", "False")
def test_epoch_after_which_the_logs_may_differ_is_left_to_the_handler() -> None:
    with reading() as reader:
        reader.fetch(0, last_epoch=0)
        assert reader.fetch(1, last_epoch=0)
        lead(reader)
        codes(reader.pair, batch(), batch(), acks=1)
        assert not any(reader.fetch(offset, last_epoch=0) for offset in (0, BATCHES + 1))
        reader.fetch(BATCHES, last_epoch=1)
        assert reader.fetch(BATCHES + 1, last_epoch=1)


@finds(again, "if request.session_id != NO_SESSION:", "if False:")
@finds(_read_again, "else not sessions.is_next(session, epoch, fetched)", "else False")
@finds(_read_again, "wanted.fetch_offset = offset", "pass")
@finds(_read_again, "sessions.used(session, now_ms)", "pass")
def test_session_goes_on_with_each_request() -> None:
    with reading() as reader:
        reader.begin()
        assert not reader.next(0)
        for offset in range(1, BATCHES):
            assert reader.next(offset)
            assert reader.answer.session_id == reader.session_id
        assert not reader.fetch(3)
        assert reader.code == "INVALID_FETCH_SESSION_EPOCH"
        assert not reader.next()
        assert reader.reached == BATCHES


@finds(_read_again, "fetched.update(wanted)", "pass")
def test_session_keeps_what_the_last_request_asked_for() -> None:
    with reading() as reader:
        reader.begin()
        reader.next(0)
        reader.next(1, size=500)
        assert reader.next(2)
        assert not reader.next()


@finds(
    _read_again,
    "fetched.high_watermark, fetched.log_start_offset = high_watermark, log_start",
    "pass",
)
@finds(_read_again, "if offset >= end:", "if False:")
def test_no_news_of_a_session_is_not_told() -> None:
    with reading() as reader:
        reader.begin(min_bytes=0)
        reader.next(0, min_bytes=0)
        codes(reader.pair, batch())
        assert reader.next(1, min_bytes=0)
        assert not reader.next(BATCHES + 1, min_bytes=0)
        assert reader.answer.responses == []


def test_whole_batches_that_fit_are_read() -> None:
    with reading() as reader:
        for size in (*range(238, 243), *range(440, 445), 1000):
            reader.fetch(0, size=size)
            assert all(reader.fetch(offset, size=size) for offset in range(BATCHES))


@finds(again, " or len(session.partitions) != 1")
def test_session_with_another_partition_is_left_to_the_handler() -> None:
    with reading() as reader:
        reader.begin()
        reader.next(0)
        assert reader.next(1)
        reader.next(0, topic="u")
        assert not reader.next(2)
        assert not reader.next(3)


@finds(_is_for_one, "len(request.topics) != 1 or ", "", ("u", 0), 0)
@finds(_is_for_one, " or len(request.topics[0].partitions) != 1", "", ("t", 1), 0)
@pytest.mark.parametrize("records", [0, 1])
@pytest.mark.parametrize("other", [("t", 1), ("u", 0)])
def test_request_or_answer_for_several_partitions_is_not_remembered(
    other: tuple[str, int], records: int
) -> None:
    with reading() as reader:
        if records:
            reader.pair.produce(batch(), topic=other[0], index=other[1])
        reader.begin(other)
        # Without news of the other partition the answer has one.
        assert not any(reader.next(0, other) for _ in range(3))
        assert not any(reader.next(offset) for offset in (0, 1))


# -- the whole log ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def full() -> Iterator[Twins]:
    """Brokers with a log of some segments, with transactions of each outcome."""
    with twins() as pair:
        pair.create("t", 1, segment_bytes="1048576", index_interval_bytes="2000")
        producer = Producer(pair, "x", version=12)
        for number, size in enumerate(SIZES * 5):
            pair.produce(batch(*[bytes(size)] * (1 + number % 4)))
            if number % 7 == 3:
                for commit in (True, False):
                    assert producer.send(producer.batch(bytes(300), bytes(300))) == "NONE"
                    pair.produce(batch(bytes(50)))
                    assert producer.end(commit=commit) == 0
        yield pair


@pytest.mark.parametrize("version", [7, 11, 12, 13, 18])
@pytest.mark.parametrize("in_session", [False, True])
@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize("size", [1_000, 16_384, 1 << 20])
def test_whole_log_is_read(
    full: Twins, version: int, in_session: bool, level: int, size: int
) -> None:
    reader, hits, before = Reader(full, version), [], -1
    asked = {"isolation_level": level, "size": size}
    if in_session:
        reader.begin(**asked)
        reader.reached = 0
    while reader.reached > before:
        before = reader.reached
        hits.append((reader.next if in_session else reader.fetch)(before, **asked))
    # The first request is remembered, and the last one finds nothing. The handler reads across the
    # end of a segment, and what has aborted transactions, as each MB has.
    segments = len(list(full.fast.partition().log.segments))
    assert len(hits) > 3
    assert sum(hits) >= (size < 1 << 20 if level else len(hits) - 2 - segments)


LIMITS = st.sampled_from([0, 1, 90, 1_000, 16_384, 70_000, 1 << 20])
ASKS = st.fixed_dictionaries(
    {
        "version": st.integers(7, 18),
        "leap": st.one_of(st.just(0), st.integers(-300, 300)),
        "session": st.sampled_from(["none", "none", "new", "next", "next", "next", "wrong"]),
        "isolation_level": st.integers(0, 1),
        "size": LIMITS,
        "max_bytes": LIMITS,
        "min_bytes": st.sampled_from([0, 1, 100, 1 << 20]),
        "leader_epoch": st.sampled_from([-1, -1, 0, 1]),
        "last_epoch": st.sampled_from([-1, -1, 0, 1]),
        "times": st.integers(1, 6),
    }
)


@given(asks=st.lists(ASKS, min_size=1, max_size=12))
@settings(max_examples=60, deadline=None)
def test_consumers_read_the_same(full: Twins, asks: list[dict[str, Any]]) -> None:
    reader, session = Reader(full), (0, 0)
    for asked in map(dict, asks):
        reader.version, leap = asked.pop("version"), asked.pop("leap")
        kind, times = asked.pop("session"), asked.pop("times")
        for _ in range(times):
            epoch = -1
            if kind != "none":
                epoch = 0 if kind == "new" else session[1] + (kind == "wrong")
            reader.fetch(
                reader.reached + leap,
                session_id=0 if kind == "none" else session[0],
                session_epoch=epoch,
                **asked,
            )
            if kind != "none" and not reader.answer.error_code:
                session = reader.answer.session_id, epoch + 1


test_missing_check_is_found = hunt(globals())
