"""Markers that repeat: the answers, logs and producers are those of the handler."""

import asyncio
from dataclasses import replace
from functools import partial
from struct import Struct
from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.broker.handlers import write_txn_markers as handler
from barnabas.broker.server.context import RequestContext
from barnabas.broker.server.dispatch import Part
from barnabas.broker.server.repeats import FEW, Repeats
from barnabas.broker.transactions.marker_channel import framing
from barnabas.broker.transactions.marker_origins import MarkerOrigins
from barnabas.broker.transactions.marker_writer import MarkerWrite, MarkerWriter
from barnabas.broker.transactions.request_batcher import ACCEPTED
from barnabas.protocol.codec import decode, encode
from barnabas.protocol.header import decode_request_header, encode_request_header
from barnabas.protocol.messages.write_txn_markers import (
    API,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from barnabas.protocol.records.control import TxnMarker
from barnabas.protocol.records.record import Record, build_batch
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.security.principal import ANONYMOUS
from barnabas.storage.producers.verification import UNVERIFIED
from tests.support.mutants import finds, hunt
from tests.support.steps import taken
from tests.unit.broker.replication.replicas import Replicas

VERSION, EPOCH = 2, 4
FIRST, SECOND, LONG = ("t", 0), ("u", 0), ("a-long-name", 0)
CONTEXT = RequestContext(
    API.key, VERSION, 1, "broker-1", ANONYMOUS, "INTERNAL", "host", 5, 0, inter_broker=True
)
NOW_MS = 1_700_000_000_000
_NO_GROUPS: Any = None
Marker = tuple[tuple[str, int], TxnMarker]


class _Clock:
    def now_ms(self) -> int:
        return NOW_MS

    def monotonic(self) -> float:
        return 0.0


def marker(
    producer: int = 1000,
    *,
    at: tuple[str, int] = FIRST,
    epoch: int = EPOCH,
    coordinator: int = 3,
    committed: bool = True,
    version: int = 0,
) -> Marker:
    return at, TxnMarker(producer, epoch, coordinator, committed, version)


def body(*markers: Marker) -> bytes:
    asked = [
        WritableTxnMarker(
            producer_id=each.producer_id,
            producer_epoch=each.producer_epoch,
            transaction_result=each.committed,
            topics=[WritableTxnMarkerTopic(name=place[0], partition_indexes=[place[1]])],
            coordinator_epoch=each.coordinator_epoch,
            transaction_version=each.transaction_version,
        )
        for place, each in markers
    ]
    return encode(WriteTxnMarkersRequest(markers=asked), VERSION)


def frame(content: bytes, number: int = 7, client: str = "broker-1") -> bytes:
    return encode_request_header(API.key, VERSION, number, client) + content


class Side:
    """A broker that writes markers, with the fast path or without."""

    def __init__(self, *, fast: bool) -> None:
        self.replicas = Replicas()
        self.writer = MarkerWriter(self.replicas.manager, _NO_GROUPS, _Clock())
        topic = SimpleNamespace(partitions={0: SimpleNamespace(leader_epoch=9)})
        cache: Any = SimpleNamespace(brokers={1}, topic=lambda _: topic)
        self.origins = MarkerOrigins(cache)
        self.parts = self.writer, self.origins, False
        again = partial(handler.again, *self.parts)
        self.path = Repeats(API, VERSION, again) if fast else None
        self.served = 0
        self.rules: Any = None

    async def start(self) -> None:
        for number, (topic, _) in enumerate((FIRST, SECOND, LONG)):
            await self.replicas.lead(topic=topic, topic_id=bytes(15) + bytes([65 + number]))

    def partition(self, place: tuple[str, int] = FIRST) -> Any:
        return self.replicas.manager.partition(*place)

    def open(self, place: tuple[str, int], producer: int, epoch: int = EPOCH) -> None:
        entry = self.partition(place).log.producers.entry(producer)
        new = entry is None or entry.producer_epoch != epoch or not entry.batches
        records = build_batch(
            [Record(0, NOW_MS, b"k", b"v")],
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=0 if new else entry.last_sequence + 1,
            transactional=True,
        )
        self.partition(place).append(records, now_ms=NOW_MS, guard=UNVERIFIED, required_acks=1)

    def exchange(self, data: bytes, context: RequestContext = CONTEXT) -> bytes:
        view, context = memoryview(data), replace(context, asker=self.rules)
        if self.path is not None:
            parts: list[Part] | None = self.path.serve(view, 0)
            if parts is not None:
                self.served += 1
                (part,) = parts
                return bytes(part)  # type: ignore[arg-type]
        (_, _, number, _), at = decode_request_header(data)
        try:
            request = decode(API.request, VERSION, data, at)
        except Exception:
            return b"refused"
        answer, _ = taken(handler.handle(*self.parts, request, context))
        if isinstance(answer, asyncio.Future):
            return b"waits"
        if self.path is not None:
            self.path.learn(view, request, context, answer)
        content = Struct(">ix").pack(number) + encode(answer, VERSION)
        return Struct(">i").pack(len(content)) + content

    def state(self) -> list[object]:
        seen: list[object] = []
        for place in (FIRST, SECOND, LONG):
            log = self.partition(place).log
            seen += (
                log.read(0, 1 << 20, limit=log.log_end_offset).read_bytes(),
                log.last_stable_offset,
                list(log.producers),
            )
        return seen


class Twins:
    """Both brokers: each request has the same answer and the same effect."""

    def __init__(self) -> None:
        self.fast, self.plain = Side(fast=True), Side(fast=False)

    async def start(self) -> "Twins":
        await self.fast.start()
        await self.plain.start()
        return self

    def open(self, *places: tuple[str, int], producer: int = 1000, epoch: int = EPOCH) -> None:
        for place in places:
            self.fast.open(place, producer, epoch)
            self.plain.open(place, producer, epoch)

    def send(self, data: bytes, context: RequestContext = CONTEXT) -> bytes:
        answers = self.fast.exchange(data, context), self.plain.exchange(data, context)
        assert answers[0] == answers[1]
        assert self.fast.state() == self.plain.state()
        return answers[0]

    def write(self, *markers: Marker) -> bool:
        """Send markers; return whether the fast path has served them."""
        before = self.fast.served
        self.send(frame(body(*markers)))
        return self.fast.served > before

    def both(self, change: Any) -> None:
        for side in (self.fast, self.plain):
            change(side)


async def known(*markers: Marker) -> Twins:
    """Return brokers that have seen markers like these."""
    twins = await Twins().start()
    for each in markers or (marker(),):
        assert not twins.write(each)
    return twins


def test_known_markers_are_served_with_the_answer_of_the_handler() -> None:
    async def work() -> None:
        twins = await known(marker(), marker(at=SECOND), marker(at=LONG))
        twins.open(FIRST, SECOND, LONG)
        assert twins.write(marker())
        assert twins.write(marker(committed=False, at=SECOND))
        twins.open(FIRST, producer=2000)
        assert twins.write(marker(2000), marker(at=LONG))

    asyncio.run(work())


def test_unknown_topic_epoch_and_version_are_left_to_the_handler() -> None:
    async def work() -> None:
        twins = await known()
        assert not twins.write(marker(at=SECOND))
        assert not twins.write(marker(coordinator=4))
        assert not twins.write(marker(coordinator=10))
        assert not twins.write(marker(version=2))
        assert not twins.write(marker(-1))
        assert not twins.write(marker(), marker(at=LONG))

    asyncio.run(work())


@finds(handler._write_again, "if not origins.has_epoch(coordinator_epoch):", "if False:")
def test_coordinator_epoch_that_is_unknown_again_is_refused() -> None:
    async def work() -> None:
        twins = await known(marker(coordinator=9))

        def forget(side: Side) -> None:
            side.origins._newest_epoch = 0
            topic = SimpleNamespace(partitions={0: SimpleNamespace(leader_epoch=8)})
            side.origins._cache.topic = lambda _: topic  # type: ignore[assignment,return-value]

        twins.both(forget)
        assert not twins.write(marker(coordinator=9))

    asyncio.run(work())


@finds(handler._write_again, " or not writer.accepts(writes)")
@finds(handler._write_again, "or any(codes)")
@finds(handler.again, "or results[0].partitions[0].error_code")
@finds(
    MarkerWriter.accepts,
    "except KafkaError: return False",
    "except KafkaError:\n                    pass",
)
def test_fenced_marker_is_refused_alone_and_among_others() -> None:
    async def work() -> None:
        twins = await known(marker(), marker(at=SECOND))
        twins.open(FIRST, SECOND, epoch=EPOCH + 1)
        twins.open(SECOND, producer=2000)
        assert not twins.write(marker())
        assert not twins.write(marker(2000, at=SECOND), marker(at=FIRST))
        twins.open(LONG, epoch=EPOCH + 1)
        assert not twins.write(marker(at=LONG))
        assert not twins.write(marker(2000, at=LONG))
        assert twins.write(marker(3000, at=LONG))

    asyncio.run(work())


@finds(MarkerWriter.accepts, "return len(writes) == 1 or len(asked) == len(writes)", "return True")
def test_two_markers_of_one_producer_for_one_partition_are_left_to_the_handler() -> None:
    async def work() -> None:
        twins = await known()
        twins.open(FIRST)
        assert not twins.write(marker(epoch=EPOCH + 1), marker())

    asyncio.run(work())


@finds(MarkerWriter.accepts, "or not partition.commits_at_once")
def test_changed_leadership_is_noticed() -> None:
    async def work() -> None:
        twins = await known()
        for side in (twins.fast, twins.plain):
            await side.replicas.lead(
                topic="t", topic_id=bytes(15) + b"A", epoch=1, isr=(0, 1), replicas=(0, 1)
            )
        assert twins.send(frame(body(marker()))) == b"waits"
        for side in (twins.fast, twins.plain):
            await side.replicas.lead(
                topic="t", topic_id=bytes(15) + b"A", epoch=2, leader=1, isr=(1,), replicas=(0, 1)
            )
        assert not twins.write(marker())

    asyncio.run(work())


@finds(MarkerWriter.accepts, "or partition.is_under_min_isr")
def test_too_small_isr_is_noticed_before_another_marker_is_written() -> None:
    async def work() -> None:
        twins = await known(marker(), marker(at=SECOND))
        twins.both(lambda side: side.partition(SECOND).isr_changed((), 5))
        assert not twins.write(marker(at=SECOND))
        assert not twins.write(marker(), marker(2000, at=SECOND))

    asyncio.run(work())


@finds(MarkerWriter.accepts, "or partition.log.log_dir.failure is not None")
def test_failed_disk_is_noticed() -> None:
    async def work() -> None:
        twins = await known()
        twins.both(lambda side: side.partition().log.log_dir.take_offline(OSError(5, "broken")))
        write = MarkerWrite(TopicPartition(*FIRST), marker()[1], print)
        assert not twins.fast.writer.accepts([write])
        data = frame(body(marker()))
        assert twins.fast.exchange(data) == twins.plain.exchange(data)
        assert not twins.fast.served

    asyncio.run(work())


@finds(MarkerWriter.accepts, "partition is None or")
def test_removed_partition_is_noticed() -> None:
    async def work() -> None:
        twins = await known()
        for side in (twins.fast, twins.plain):
            await side.replicas.stop(delete=True)
        data = frame(body(marker()))
        assert twins.fast.exchange(data) == twins.plain.exchange(data)
        assert not twins.fast.served

    asyncio.run(work())


@finds(handler._write_again, "origins.is_outdated(context) or ")
def test_later_connection_of_the_coordinator_is_noticed() -> None:
    async def work() -> None:
        twins = await known()
        twins.both(
            lambda side: side.origins.is_outdated(replace(CONTEXT, connection_id=6)) and None
        )
        assert not twins.write(marker())

    asyncio.run(work())


def test_request_on_the_fast_path_outdates_an_earlier_connection() -> None:
    async def work() -> None:
        twins = await known()
        twins.both(lambda side: side.origins._newest_connections.clear())
        assert twins.write(marker())
        assert twins.fast.origins._newest_connections == {1: 5}

    asyncio.run(work())


def test_changed_rules_are_noticed() -> None:
    async def work() -> None:
        twins = await Twins().start()
        rules = SimpleNamespace(rules=object(), standing=lambda: rules.rules)
        twins.fast.rules = rules
        assert not twins.write(marker())
        assert twins.write(marker())
        rules.rules = object()
        assert not twins.write(marker())
        assert twins.write(marker())
        rules.rules = None
        assert not twins.write(marker())
        assert not twins.write(marker())

    asyncio.run(work())


def test_other_client_id_and_odd_bytes_are_left_to_the_handler() -> None:
    async def work() -> None:
        twins = await known()
        content = body(marker())
        twins.send(frame(content + b"\0"))
        twins.send(frame(content[:-1] + b"\1"))
        for cut in range(len(content)):
            twins.send(frame(content[:cut]))
        before = twins.fast.served
        twins.send(frame(content, client="broker-2"))
        assert twins.fast.served == before
        odd = bytearray(content)
        odd[11] = 2
        twins.send(frame(bytes(odd), client="broker-2"))

    asyncio.run(work())


@finds(handler.again, "context.api_version != MARKERS.version or ")
@finds(handler.again, " or not context.inter_broker")
def test_request_of_a_client_and_of_another_version_is_not_remembered() -> None:
    async def work() -> None:
        twins = await Twins().start()
        context = replace(CONTEXT, inter_broker=False)
        for _ in range(2):
            twins.send(frame(body(marker())), context)
        assert not twins.fast.served
        request = decode(API.request, VERSION, body(marker()))
        older = replace(CONTEXT, api_version=1)
        assert handler.again(*twins.fast.parts, request, older, _answer(request)) is None

    asyncio.run(work())


def _answer(request: Any) -> WriteTxnMarkersResponse:
    answer, _ = taken(handler._results(request, 0))  # type: ignore[arg-type]
    assert isinstance(answer, WriteTxnMarkersResponse)
    return answer


@finds(handler.again, "len(topics) != 1 or")
@finds(handler.again, "len(topics[0].partition_indexes) != 1", "False")
def test_marker_for_several_partitions_is_left_to_the_handler() -> None:
    def request(*places: tuple[str, list[int]]) -> bytes:
        asked = WritableTxnMarker(
            producer_id=1000,
            producer_epoch=EPOCH,
            transaction_result=True,
            topics=[WritableTxnMarkerTopic(name=name, partition_indexes=at) for name, at in places],
            coordinator_epoch=3,
        )
        return encode(WriteTxnMarkersRequest(markers=[asked]), VERSION)

    async def work() -> None:
        twins = await known()
        for places in ([("t", [0]), ("u", [0])], [("t", [0, 0])], [("t", [])], []):
            for _ in range(2):
                twins.send(frame(request(*places)))
        assert not twins.fast.served

    asyncio.run(work())


def test_markers_above_the_limit_are_left_to_the_handler() -> None:
    async def work() -> None:
        twins = await known()
        assert twins.write(*(marker(number) for number in range(FEW)))
        assert not twins.write(*(marker(number) for number in range(FEW + 1)))

    asyncio.run(work())


PLACES = st.sampled_from([FIRST, SECOND, LONG, ("nowhere", 0), ("__transaction_state", 0)])
MARKERS = st.builds(
    lambda at, **fields: marker(at=at, **fields),
    PLACES,
    producer=st.sampled_from([1000, 2000, -1]),
    epoch=st.integers(EPOCH - 1, EPOCH + 1),
    coordinator=st.sampled_from([2, 3, 3, 3, 10]),
    committed=st.booleans(),
    version=st.sampled_from([0, 0, 2]),
)
STEPS = st.lists(
    st.one_of(
        st.lists(MARKERS, max_size=4),
        st.tuples(PLACES, st.sampled_from([1000, 2000]), st.integers(EPOCH, EPOCH + 1)),
    ),
    max_size=12,
)


@settings(max_examples=150, deadline=None)
@given(STEPS, st.binary(max_size=2))
def test_random_requests_have_the_same_answers_and_effects(steps: Any, odd: bytes) -> None:
    async def work() -> None:
        twins = await Twins().start()
        twins.write(marker(), marker(2000, at=SECOND), marker(3000, at=LONG))
        for step in steps:
            if isinstance(step, tuple):
                place, producer, epoch = step
                if place in (FIRST, SECOND, LONG):
                    try:
                        twins.open(place, producer=producer, epoch=epoch)
                    except Exception:
                        continue
            else:
                twins.send(frame(body(*step)))
        twins.send(
            frame(body(*(each for step in steps if isinstance(step, list) for each in step)) + odd)
        )

    asyncio.run(work())


@settings(max_examples=100, deadline=None)
@given(st.lists(MARKERS, min_size=1, max_size=5))
def test_requests_put_together_equal_encoded_ones(markers: Any) -> None:
    placed = [(TopicPartition(*place), each) for place, each in markers]
    frames = framing().of(placed)
    assert frames.request == body(*markers)
    request = decode(API.request, VERSION, frames.request)
    answer = _answer(request)
    assert frames.accepted == encode(answer, VERSION)
    assert frames.decode(b"head" + frames.accepted, 4) is ACCEPTED
    answer.markers[-1].topics[0].partitions[0].error_code = 3
    assert frames.decode(encode(answer, VERSION), 0) == answer


test_missing_check_is_found = hunt(globals())
