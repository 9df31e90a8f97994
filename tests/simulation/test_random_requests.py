"""Random requests, good and bad, on a broker with fast paths and on one without: answers, states,
metrics and files are equal.

More of them by hand: BARNABAS_STORIES=2000 pytest tests/simulation/test_random_requests.py
"""

import os
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import chain
from types import SimpleNamespace
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas.protocol.errors import KafkaError
from barnabas.protocol.records.batch import MAX_SEQUENCE
from barnabas.protocol.records.compression import Compression
from tests.simulation.repeats.batches import ODD, TIME_MS, batch, changed
from tests.simulation.repeats.twins import frame
from tests.simulation.repeats.world import (
    NEWER,
    T0,
    T1,
    U0,
    Place,
    Producer,
    Step,
    World,
    asks,
    do,
    marker,
    world,
)

STORIES: Final = int(os.environ.get("BARNABAS_STORIES", "40"))
PLACES = st.sampled_from((T0, T0, T1, U0))
TRANSACTIONAL = st.sampled_from(("x", "y"))
TOPIC: Final = {
    "segment_bytes": "1048576",
    "index_interval_bytes": "200",
    "segment_index_bytes": "240",
}


def flipped(data: bytes, number: int) -> bytes:
    changed = bytearray(data)
    changed[number % len(data)] ^= 1 << number % 8
    return bytes(changed)


RECORD_TWISTS: Final[dict[str, Callable[[bytes, int], bytes | None]]] = {
    "wrong CRC": lambda records, _: records[:-1] + bytes((records[-1] ^ 1,)),
    "unknown codec": lambda records, n: changed(records, attributes=5 + n % 3),
    "control": lambda records, _: changed(records, attributes=0x20),
    "magic": lambda records, n: changed(records, magic=n % 5),
    "length": lambda records, n: changed(records, length=len(records) - 12 + n % 3 - 1),
    "flipped bit": flipped,
    "two batches": lambda records, _: records + records,
    "cut": lambda records, n: records[: n % len(records)],
    "empty": lambda *_: b"",
    "null": lambda *_: None,
    "other producer": lambda records, n: changed(records, producer_id=n % 4 - 1),
}
REQUEST_TWISTS: Final = ("flipped request", "cut request", *(4 * ("odd request",)))
PRODUCER_TWISTS: Final = ("repeated", "gap", "old epoch", "new epoch", "without id", "other id")
TWISTS: Final = (*(2 * (*RECORD_TWISTS, *PRODUCER_TWISTS)), *REQUEST_TWISTS)
sends = st.builds(
    SimpleNamespace,
    twist=st.one_of(st.just(""), st.just(""), st.just(""), st.sampled_from(TWISTS)),
    count=st.integers(1, 4),
    size=st.sampled_from((0, 1, 20, 120, 500, 17_000, 200_000)),
    codec=st.sampled_from((0, 0, 0, 1, 2, 3, 4)),
    at_ms=st.sampled_from((0, 0, 0, 1, 7, -5, 60_000)),
)
writes = st.builds(
    SimpleNamespace,
    connection=st.integers(0, 1),
    place=PLACES,
    version=st.sampled_from((7, 8, 9, 9, 11, 12, 12, 13)),
    who=st.sampled_from((None, None, "idempotent", "idempotent", "x", "y")),
    acks=st.sampled_from((-1, -1, -1, 1, 0)),
    adds=st.sampled_from((True, True, True, False)),
    sends=st.lists(sends, min_size=2, max_size=12).map(tuple),
)


class Requests:
    """Puts random requests together, and sends them."""

    def __init__(self, it: World) -> None:
        self.it = it
        self.number = 0
        self.last: dict[tuple[str | None, Place], bytes] = {}

    def send(self, write: Any) -> None:
        """Send several batches for one partition in one write."""
        producer, version = None, write.version
        if write.who is not None:
            producer = self.it.producer(write.who)
            self.go_on(producer, write.place)
        if producer is not None and producer.name:
            # The versions of the protocol in which the transaction is.
            is_newer = producer.version >= NEWER
            version = max(version, NEWER) if is_newer else min(version, NEWER - 1)
            if write.adds and not is_newer:
                self.it.add(write.who, write.place)
        frames = [self.request(each, producer, version, write) for each in write.sends]
        answers = len(frames) * bool(write.acks)
        self.it.pair.exchange(*frames, on=write.connection, answers=answers)

    def go_on(self, producer: Producer, place: Place) -> None:
        """Continue where the log ends: a producer knows what was refused."""
        partition = self.it.pair.fast.broker._replication.replicas.find(place)
        entry = partition and partition.log.producers.entry(producer.producer_id)
        is_known = entry is not None and entry.producer_epoch == producer.epoch
        producer.sequences[place] = (
            (entry.last_sequence + 1) & MAX_SEQUENCE if entry and is_known else 0
        )

    def request(self, send: Any, producer: Producer | None, version: int, write: Any) -> bytes:
        self.number += 1
        twist, number = send.twist, self.number
        records, name = self.records(send, producer, write.place), producer and producer.name
        if twist == "repeated":
            records = self.last.get((write.who, write.place), records)
        self.last[write.who, write.place] = records
        made = RECORD_TWISTS[twist](records, number) if twist in RECORD_TWISTS else records
        if twist == "without id":
            name = None
        elif twist == "other id":
            name = "y" if name == "x" else "x"
        fields = self.it.written(made, *write.place, acks=write.acks, transactional_id=name)
        client = b"client" if write.connection else b"\xffclient"
        request = frame("produce", version, number=number, client=client, **fields)
        if twist == "flipped request":
            # The length of a request is not part of it, nor is what tells the API.
            return request[:4] + flipped(request[4:], number * 7919)
        if twist == "cut request":
            return request[: number * 7919 % len(request)]
        if twist == "odd request" and made:
            return [*ODD.values()][number % len(ODD)](request, made, version)
        return request

    def records(self, send: Any, producer: Producer | None, place: Place) -> bytes:
        options = {"at_ms": TIME_MS + send.at_ms, "compression": Compression(send.codec)}
        values = [bytes([each]) * send.size for each in range(send.count)]
        if producer is None:
            return batch(*values, **options)
        changes = {}
        if send.twist == "gap":
            changes = {"base_sequence": producer.sequences[place] + 3}
        elif send.twist == "old epoch" and "former" in self.it.producers:
            changes = {"producer_epoch": self.it.producers["former"].epoch}
        elif send.twist == "new epoch":
            changes = {"producer_epoch": producer.epoch + 1, "base_sequence": 0}
        return producer.batch(*values, place=place, **options, **changes)


def step(method: str, *args: Any, **options: Any) -> st.SearchStrategy[Step]:
    return st.builds(partial(do, method), *args, **options)


def some(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


# Batches of other forms and segments are tried in `tests/unit/storage/test_sound_batches.py`.
CONFIGURATIONS: Final = (
    {"max_message_bytes": "400"},
    {"max_message_bytes": "1048588"},
    {"message_timestamp_type": "LogAppendTime"},
    {"message_timestamp_type": "CreateTime"},
    {"cleanup_policy": "compact"},
    {"cleanup_policy": "delete"},
    {"compression_type": "zstd"},
    {"compression_type": "producer"},
    {"flush_messages": "1"},
    {"flush_messages": "9223372036854775807"},
    {"min_insync_replicas": "2"},
    {"segment_ms": "20"},
)
LEADERS: Final = (
    {"later": 1, "leader": 0, "replicas": [0], "isr": [0]},
    {"later": 1, "leader": 99, "replicas": [99, 0], "isr": [99, 0]},
    {"replicas": [0, 1], "isr": [0]},
)
TOPICS = some("t", "t", "t", "u")
WHOSE = {"adds": st.booleans(), "epochs": some(0, 0, 0, 1)}
QUESTIONS = st.builds(asks, some("x", "y", "y", "stranger"), PLACES, some(T0, U0), **WHOSE)
MARKED = {"epoch": some(0, 1, 1), "committed": st.booleans(), "version": some(0, 0, 0, 2)}
MARKERS = st.builds(marker, some(0, 1, 2, 3, -1, 1000), some(*3 * [T0, U0], ("v", 0)), **MARKED)
OFFSETS = st.tuples(TOPICS, some(0, 0, 0, 7), st.integers(-1, 9))
CONFIGURES = st.builds(lambda of, new: do("configure", of, **new), TOPICS, some(*CONFIGURATIONS))
LEADS = st.builds(lambda place, new: do("lead", *place, **new), PLACES, some(*LEADERS))
EVENTS: Final = (
    # One of the older protocol adds a partition.
    *3 * [step("add", st.just("x"), PLACES)],
    *5 * [step("end", TRANSACTIONAL, commit=st.booleans(), wait_s=some(0, 0.2, 0.4))],
    step("init", TRANSACTIONAL, patience=st.just(1)),
    *3 * [CONFIGURES],
    step("delete", TOPICS, wait_s=some(0, 1)),
    step("create", st.just("t"), st.just(2)),
    st.just(do("create", "t", 2, **TOPIC)),
    step("create", st.just("u")),
    *3 * [LEADS],
    st.builds(lambda offset, place: do("trim", offset, *place), st.integers(-1, 5), PLACES),
    *2 * [step("limit", st.none() | st.floats(1000, 40_000))],
    *2 * [step("wait", some(0.01, 0.5, 12))],
)
REQUESTS = st.one_of(
    step("read_on", some(0, -9), size=some(90, 300), isolation_level=st.integers(0, 1)),
    step("question", QUESTIONS),
    step("question", QUESTIONS, QUESTIONS),
    step("mark", MARKERS),
    step("mark", MARKERS, MARKERS),
    step("commit", OFFSETS, version=some(7, 8, 8, 9)),
    step("commit", OFFSETS, version=some(3, 5, 5), who=TRANSACTIONAL),
    step("add_group", st.just("x")),
)
kinds = {
    "writes": writes.map(lambda write: [write]),
    "others": st.builds(lambda step, times: [step] * times, REQUESTS, st.integers(1, 6)),
    "events": st.one_of(*EVENTS).map(lambda step: [step]),
}
steps = some("writes", "writes", "writes", "others", "events").flatmap(lambda kind: kinds[kind])
stories = st.lists(steps, min_size=4, max_size=24)
BEGINS: Final = (
    do("configure", **TOPIC), do("find_group"), do("init", "x"), do("init", "y"),
    do("mark"), do("of_brokers"), *8 * [do("write")],
)  # fmt: skip


@pytest.mark.timeout(36_000)
def test_random_requests_have_the_same_effect_with_and_without_fast_paths() -> None:
    seen: Counter[str] = Counter()

    @settings(
        max_examples=STORIES,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(stories)
    def differ(story: list[list[Any]]) -> None:
        with world(*BEGINS) as it:
            it.pair.hits.clear()
            requests = Requests(it)
            for each in chain(*story):
                # A partition that is gone has no leader.
                with suppress(KafkaError):
                    if isinstance(each, Step):
                        it.tell(each)
                    else:
                        requests.send(each)
                        it.pair.compare()
            seen.update(it.pair.hits, sent=requests.number)

    differ()

    assert seen["produce"] > seen["sent"] / 10, seen
