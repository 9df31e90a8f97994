"""Random requests, good and bad, on a broker with fast paths and on one without: answers, states,
metrics and files are equal.

More of them by hand: BARNABAS_STORIES=2000 pytest tests/simulation/test_produce_differential.py
"""

import os
from collections import Counter
from collections.abc import Callable
from copy import copy
from types import SimpleNamespace
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas.protocol.records.batch import MAX_SEQUENCE, NO_TIMESTAMP
from barnabas.protocol.records.compression import Compression
from tests.simulation.repeats.produce import ODD, TIME_MS, Producer, batch, changed, limit, trim
from tests.simulation.repeats.twins import Twins, frame, twins

STORIES: Final = int(os.environ.get("BARNABAS_STORIES", "50"))
PLACES: Final = (("t", 0), ("t", 0), ("t", 1), ("u", 0))
VERSIONS: Final = (7, 8, 9, 9, 11, 12, 12, 13)
KINDS: Final = ("plain", "idempotent", "transactional")


def flipped(data: bytes, number: int) -> bytes:
    changed = bytearray(data)
    changed[number % len(data)] ^= 1 << number % 8
    return bytes(changed)


RECORD_TWISTS: Final[dict[str, Callable[[bytes, int], bytes | None]]] = {
    "wrong CRC": lambda records, _: records[:-1] + bytes((records[-1] ^ 1,)),
    "wrong count": lambda records, _: changed(records, count=9),
    "wrong delta": lambda records, _: changed(records, delta=9),
    "many records": lambda records, _: changed(records, count=5000, delta=4999),
    "unknown codec": lambda records, n: changed(records, attributes=5 + n % 3),
    "control": lambda records, _: changed(records, attributes=0x20),
    "append time": lambda records, _: changed(records, attributes=0x08),
    "odd attribute": lambda records, n: changed(records, attributes=0x40 << n % 8),
    "base offset": lambda records, n: changed(records, base_offset=n % 5),
    "magic": lambda records, n: changed(records, magic=n % 5),
    "length": lambda records, n: changed(records, length=len(records) - 12 + n % 3 - 1),
    "leader epoch": lambda records, n: changed(records, leader_epoch=n % 9),
    "no timestamp": lambda r, _: changed(r, base_ms=NO_TIMESTAMP, max_ms=NO_TIMESTAMP),
    "first timestamp": lambda records, _: changed(records, base_ms=TIME_MS * 2),
    "last timestamp": lambda records, _: changed(records, max_ms=TIME_MS * 2),
    "flipped bit": flipped,
    "two batches": lambda records, _: records + records,
    "cut": lambda records, n: records[: n % len(records)],
    "empty": lambda *_: b"",
    "null": lambda *_: None,
    "other producer": lambda records, n: changed(records, producer_id=n % 4 - 1),
}
REQUEST_TWISTS: Final = ("flipped request", "cut request", *(4 * ("odd request",)))
SEQUENCE_TWISTS: Final = ("repeated", "gap", "old epoch", "new epoch", "without id", "other id")
TWISTS: Final = (*(2 * (*RECORD_TWISTS, *SEQUENCE_TWISTS)), *REQUEST_TWISTS)

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
    place=st.integers(0, len(PLACES) - 1),
    version=st.sampled_from(VERSIONS),
    kind=st.sampled_from(KINDS),
    producer=st.integers(0, 1),
    acks=st.sampled_from((-1, -1, -1, 1, 0)),
    sends=st.lists(sends, min_size=2, max_size=12).map(tuple),
)
CONFIGURATIONS: Final = (
    {"segment_bytes": "1048576"},
    {"index_interval_bytes": "0"},
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
    {"message_timestamp_before_max_ms": "3"},
    {"message_timestamp_before_max_ms": "9223372036854775807"},
    {"segment_ms": "20"},
    {"segment_ms": "604800000"},
)
TOPIC: Final = {
    "segment_bytes": "1048576",
    "index_interval_bytes": "200",
    "segment_index_bytes": "240",
}


class Story:
    """The clients of both brokers, and all that happens to them."""

    def __init__(self, pair: Twins) -> None:
        self.pair = pair
        self.number = 0
        self.last: dict[tuple[int, str], bytes] = {}
        pair.create("t", 2, **TOPIC)
        pair.create("u", 1)
        self.idempotent = [Producer(pair, None) for _ in range(2)]
        # One of the older protocol, and one of the newer.
        self.transactional = [Producer(pair, "x", version=9), Producer(pair, "y", version=12)]
        self.stale: Producer | None = None

    def tell(self, step: Any) -> None:
        if isinstance(step, tuple):
            what, number = step
            EVENTS[what][1](self, number)
        else:
            self.write(step)

    # -- requests ---------------------------------------------------------------------------------

    def write(self, write: Any) -> None:
        topic, index = PLACES[write.place]
        producer: Producer | None = None
        version = write.version
        if write.kind == "idempotent":
            producer = self.idempotent[write.producer]
        elif write.kind == "transactional":
            producer = self.transactional[write.producer]
            # The versions of the protocol in which the transaction is.
            version = min(version, 11) if producer.version < 12 else max(version, 12)
            if producer.version < 12 and self.number % 4:
                producer.add(PLACES[write.place], patience=1)
        if producer is not None:
            self.go_on(producer, topic, index)
        frames = []
        for send in write.sends:
            self.number += 1
            frames.append(self.request(send, producer, topic, index, version, write))
        self.pair.exchange(*frames, on=write.connection, answers=len(frames) * bool(write.acks))

    def go_on(self, producer: Producer, topic: str, index: int) -> None:
        """Continue where the log ends: a producer knows what was refused."""
        partition = self.pair.fast.broker._replication.replicas.find((topic, index))
        entry = None
        if partition is not None:
            entry = partition.log.producers.entry(producer.producer_id)
        is_known = entry is not None and entry.producer_epoch == producer.epoch
        producer.sequences[topic, index] = (
            (entry.last_sequence + 1) & MAX_SEQUENCE if entry is not None and is_known else 0
        )

    def request(
        self, send: Any, producer: Producer | None, topic: str, index: int, version: int, write: Any
    ) -> bytes:
        twist, number = send.twist, self.number
        options: dict[str, Any] = {"at_ms": TIME_MS + send.at_ms}
        options["compression"] = Compression(send.codec)
        values = [bytes([each]) * send.size for each in range(send.count)]
        transactional_id = None
        if producer is None:
            records = batch(*values, **options)
        else:
            if twist == "gap":
                options["base_sequence"] = producer.sequences.get((topic, index), 0) + 3
            elif twist == "old epoch" and self.stale is not None:
                options["producer_epoch"] = self.stale.epoch
            elif twist == "new epoch":
                options |= {"producer_epoch": producer.epoch + 1, "base_sequence": 0}
            records = producer.batch(*values, topic=topic, index=index, **options)
            transactional_id = producer.transactional_id
        if twist == "repeated":
            records = self.last.get((id(producer), topic), records)
        self.last[id(producer), topic] = records
        made = RECORD_TWISTS[twist](records, number) if twist in RECORD_TWISTS else records
        if twist == "without id":
            transactional_id = None
        elif twist == "other id":
            transactional_id = "y" if transactional_id == "x" else "x"
        request = frame(
            made,
            version=version,
            number=number,
            topic=topic,
            topic_id=self.pair.ids[topic],
            index=index,
            acks=write.acks,
            transactional_id=transactional_id,
            client_id=b"client" if write.connection else b"\xffclient",
        )
        if twist == "flipped request":
            # The length of a request is not part of it, nor is what tells the API.
            return request[:4] + flipped(request[4:], number * 7919)
        if twist == "cut request":
            return request[: number * 7919 % len(request)]
        if twist == "odd request" and made:
            return [*ODD.values()][number % len(ODD)](request, made, version)
        return request

    # -- events -----------------------------------------------------------------------------------

    def fence(self, number: int) -> None:
        producer = self.transactional[number % 2]
        self.stale = copy(producer)
        producer.init(patience=1)

    def delete(self, number: int) -> None:
        self.pair.delete("u" if number % 3 == 2 else "t")
        if number % 2:
            self.pair.wait(1)
        if number % 4:
            self.create(number)

    def create(self, number: int) -> None:
        # A topic that is there already stays.
        for topic, partitions in (("t", 2), ("u", 1)):
            self.pair.create(topic, partitions, **(TOPIC if number % 2 else {}))

    def decide(self, number: int, **changes: Any) -> None:
        topic, index = PLACES[number % len(PLACES)]
        replicas = self.pair.fast.broker._replication.replicas
        partition = replicas.find((topic, index))
        if partition is not None:
            epoch = partition.leader_epoch + changes.pop("later", 0)
            self.pair.lead(topic, index, leader_epoch=epoch, **changes)


EVENTS: Final[dict[str, tuple[int, Callable[[Story, int], object]]]] = {
    # One of the older protocol adds a partition.
    "begin": (3, lambda s, n: s.transactional[0].add(PLACES[n % 4], patience=1)),
    "commit": (3, lambda s, n: s.transactional[n % 2].end(wait_s=0.2 * (n % 3 > 0))),
    "abort": (2, lambda s, n: s.transactional[n % 2].end(commit=False, wait_s=0.2 * (n % 3 > 0))),
    "fence": (1, Story.fence),
    "configure": (3, lambda s, n: s.pair.configure("tttu"[n % 4], **CONFIGURATIONS[n % 17])),
    "delete": (1, Story.delete),
    "create": (2, Story.create),
    "lead": (1, lambda s, n: s.decide(n, later=1, leader=0, replicas=[0], isr=[0])),
    "follow": (1, lambda s, n: s.decide(n, later=1, leader=99, replicas=[99, 0], isr=[99, 0])),
    "followers": (1, lambda s, n: s.decide(n, replicas=[0, 1], isr=[0])),
    "trim": (1, lambda s, n: trim(s.pair, n % 7 - 1, *PLACES[n % 4])),
    "limit": (1, lambda s, n: limit(s.pair, 1000.0 * (n + 1))),
    "no limit": (1, lambda s, _: limit(s.pair, None)),
    "wait": (2, lambda s, n: s.pair.wait((0.01, 0.5, 12)[n % 3])),
}
"""The other events, and how often each happens."""
events = st.tuples(
    st.sampled_from([each for each, (weight, _) in EVENTS.items() for _ in range(weight)]),
    st.integers(0, 40),
)
stories = st.lists(st.one_of(writes, writes, writes, writes, events), min_size=4, max_size=24)


@pytest.mark.timeout(36_000)
def test_random_requests_have_the_same_effect_with_and_without_fast_paths() -> None:
    seen: Counter[str] = Counter()

    @settings(
        max_examples=STORIES,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(steps=stories)
    def differ(steps: list[Any]) -> None:
        with twins() as pair:
            story = Story(pair)
            for step in steps:
                story.tell(step)
                pair.state()
            seen.update(sent=pair.sent, appended=pair.appended, served=pair.served)

    differ()
    assert seen["served"] > seen["appended"] / 5, seen
