"""Produce with transactional batches: what waits for the coordinator's word, and what may happen
to it meanwhile. A real partition; the word is the test's to give."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from barnabas.broker.coordination.admission import ProduceAdmission
from barnabas.broker.handlers.produce import ProduceHandler
from barnabas.broker.server.context import ANONYMOUS, CloseConnection, RequestContext
from barnabas.coordinator.transaction.metadata import Producer, TopicPartition
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.records.batch import iter_headers
from barnabas.protocol.records.control import ControlType, Marker, build_marker
from barnabas.protocol.records.record import Record, build_batch, iter_records
from barnabas.storage.validator import BYTES_PER_STEP, Origin
from tests.unit.broker.replication.replicas import TOPIC_ID, Replicas

PRODUCER = Producer(1000, 4)
T0 = ("t", 0)
TV1, TV2 = 11, 12


class FakeGate:
    """The coordinator's word, now or later."""

    def __init__(self) -> None:
        self.verifies = True
        self.code = ErrorCode.NONE
        self.later: asyncio.Future[dict[TopicPartition, ErrorCode]] | None = None
        self.asked: list[tuple[str, Producer, list[TopicPartition], bool]] = []

    def admit(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Sequence[TopicPartition],
        *,
        adds: bool,
    ) -> Any:
        self.asked.append((transactional_id, producer, list(partitions), adds))
        return self.later or dict.fromkeys(partitions, self.code)

    def hold(self) -> None:
        self.later = asyncio.get_running_loop().create_future()

    def say(self, code: ErrorCode = ErrorCode.NONE) -> None:
        assert self.later is not None
        later, self.later = self.later, None
        (_, _, partitions, _) = self.asked[-1]
        later.set_result(dict.fromkeys(partitions, code))


class Names:
    """A metadata cache that knows names by topic id, and nothing else."""

    def __init__(self) -> None:
        self.names: dict[bytes, str] = {TOPIC_ID: "t"}

    def topic_name(self, topic_id: bytes) -> str | None:
        return self.names.get(topic_id)


class Rig:
    def __init__(self, replicas: Replicas) -> None:
        self.replicas = replicas
        self.gate = FakeGate()
        self.names = Names()
        admission = ProduceAdmission(replicas.manager, self.gate)  # type: ignore[arg-type]
        self.handler = ProduceHandler(
            replicas.manager,
            self.names,  # type: ignore[arg-type]
            admission,
        )

    def send(
        self,
        *records: "bytes | memoryview | tuple[str, int, bytes]",
        version: int = TV2,
        acks: int = -1,
        key: str | None = "x",
    ) -> Any:
        """One Produce; what is not placed is for t-0."""
        topics = []
        for each in records:
            topic, index, data = each if isinstance(each, tuple) else ("t", 0, each)
            topic_id = TOPIC_ID if topic == "t" else topic.encode() * 16
            topics.append(
                TopicProduceData(
                    name=topic,
                    topic_id=topic_id,
                    partition_data=[PartitionProduceData(index=index, records=data)],
                )
            )
        request = ProduceRequest(
            transactional_id=key, acks=acks, timeout_ms=5000, topic_data=topics
        )
        context = RequestContext(
            0, version, 0, "test", ANONYMOUS, "PLAINTEXT", "127.0.0.1", 1, 1_000
        )
        return self.handler.handle(request, context)

    def mark(self, epoch: int = PRODUCER.epoch) -> None:
        """An abort marker."""
        marker = build_marker(
            Marker(ControlType.ABORT, 0),
            offset=0,
            timestamp=1_000,
            producer_id=PRODUCER.producer_id,
            producer_epoch=epoch,
        )
        self.replicas.manager.partition("t", 0).append_as_leader(
            bytearray(marker), now_ms=1_000, origin=Origin.COORDINATOR
        )

    @property
    def values(self) -> list[bytes | None]:
        log = self.replicas.manager.partition("t", 0).log
        data = log.read(0, 1 << 24, limit=log.log_end_offset).read_bytes()
        return [
            record.value
            for pos, header in iter_headers(data)
            if not header.is_control
            for record in iter_records(data, pos, header)
        ]


@pytest.fixture
async def rig() -> Rig:
    replicas = Replicas()
    await replicas.lead()
    return Rig(replicas)


def batch(
    *values: bytes,
    sequence: int = 0,
    producer: Producer = PRODUCER,
    transactional: bool = True,
) -> bytes:
    return build_batch(
        [Record(at, 1_000, b"k", value) for at, value in enumerate(values)],
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


def codes(answer: Any) -> list[str]:
    return [
        ErrorCode(partition.error_code).name
        for topic in answer.responses
        for partition in topic.partition_responses
    ]


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.mark.parametrize(("version", "adds"), [(TV1, False), (TV2, True)])
async def test_the_first_batch_is_asked_about_and_the_next_is_not(
    rig: Rig, version: int, adds: bool
) -> None:
    assert codes(rig.send(batch(b"a"), version=version)) == ["NONE"]
    assert codes(rig.send(batch(b"b", sequence=1), version=version)) == ["NONE"]
    assert rig.gate.asked == [("x", PRODUCER, [T0], adds)]
    assert rig.values == [b"a", b"b"]


async def test_without_verification_older_clients_are_not_asked_about(rig: Rig) -> None:
    rig.gate.verifies = False
    assert codes(rig.send(batch(b"a"), version=TV1)) == ["NONE"]
    assert rig.gate.asked == []


async def test_without_a_transactional_id_nothing_is_taken(rig: Rig) -> None:
    with pytest.raises(KafkaError) as caught:
        rig.send(batch(b"a"), key=None)
    assert caught.value.code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert rig.values == []


async def test_what_waits_does_not_lie_in_the_receive_buffer(rig: Rig) -> None:
    """The buffer has the next requests in it by the time the coordinator answers."""
    plain = batch(b"plain", transactional=False, producer=Producer(-1, -1), sequence=-1)
    received = bytearray(batch(b"transactional") + plain)
    view, split = memoryview(received), len(received) - len(plain)
    rig.gate.hold()
    answer = rig.send(view[:split], ("t", 0, view[split:]))
    received[:] = bytes(len(received))
    rig.gate.say()
    assert codes(await answer) == ["NONE", "NONE"]
    assert rig.values == [b"transactional", b"plain"]


@pytest.mark.parametrize(
    ("code", "told", "reason"),
    [
        ("TRANSACTION_ABORTABLE", "TRANSACTION_ABORTABLE", "Partition was not added"),
        ("NOT_COORDINATOR", "NOT_ENOUGH_REPLICAS", "NOT_COORDINATOR"),
        ("CONCURRENT_TRANSACTIONS", "CONCURRENT_TRANSACTIONS", "CONCURRENT_TRANSACTIONS"),
    ],
)
async def test_a_refusal_is_told_with_its_reason_and_nothing_is_appended(
    rig: Rig, code: str, told: str, reason: str
) -> None:
    """In the words of Produce: what a producer is to repeat is NOT_ENOUGH_REPLICAS."""
    rig.gate.code = ErrorCode[code]
    answer = rig.send(batch(b"a"))
    (partition,) = answer.responses[0].partition_responses
    assert codes(answer) == [told]
    assert reason in partition.error_message
    assert rig.values == []


async def test_plain_batches_of_the_request_are_appended_whatever_the_coordinator_says(
    rig: Rig,
) -> None:
    rig.gate.code = ErrorCode.PRODUCER_FENCED
    plain = batch(b"plain", transactional=False, producer=Producer(-1, -1), sequence=-1)
    assert codes(rig.send(batch(b"a"), plain)) == ["INVALID_PRODUCER_EPOCH", "NONE"]
    assert rig.values == [b"plain"]


@pytest.mark.parametrize("other", [Producer(1001, 4), Producer(1000, 5)])
async def test_a_request_is_of_one_producer(rig: Rig, other: Producer) -> None:
    with pytest.raises(KafkaError) as caught:
        rig.send(batch(b"a"), batch(b"b", producer=other))
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert (rig.gate.asked, rig.values) == ([], [])


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.PRODUCER_FENCED])
@pytest.mark.parametrize("later", [False, True])
async def test_without_acks_a_refusal_closes_the_connection(
    rig: Rig, code: ErrorCode, later: bool
) -> None:
    async def sent() -> Any:
        if later:
            rig.gate.hold()
        rig.gate.code = code
        answer = rig.send(batch(b"a"), acks=0)
        if later:
            rig.gate.say(code)
        return await answer if isinstance(answer, asyncio.Future) else answer

    if code is ErrorCode.NONE:
        assert await sent() is None
        assert rig.values == [b"a"]
    else:
        with pytest.raises(CloseConnection):
            await sent()
        assert rig.values == []


async def test_who_has_gone_away_while_the_coordinator_was_asked_writes_nothing(rig: Rig) -> None:
    rig.gate.hold()
    later = rig.gate.later
    assert later is not None
    answer = rig.send(batch(b"a"))
    await turns()
    answer.cancel()
    await turns()
    assert later.cancelled()
    assert rig.values == []


@pytest.mark.parametrize(
    ("version", "epoch", "told"),
    [
        (TV1, PRODUCER.epoch, "INVALID_TXN_STATE"),
        (TV2, PRODUCER.epoch + 1, "INVALID_PRODUCER_EPOCH"),
    ],
)
async def test_a_marker_that_came_meanwhile_makes_the_word_worthless(
    rig: Rig, version: int, epoch: int, told: str
) -> None:
    rig.gate.hold()
    answer = rig.send(batch(b"a"), version=version)
    await turns()
    rig.mark(epoch)
    rig.gate.say()
    assert codes(await answer) == [told]
    assert rig.values == []


async def test_the_marker_of_the_transaction_before_is_what_a_newer_client_waits_for(
    rig: Rig,
) -> None:
    """The coordinator holds its word back until that marker is written (KIP-609)."""
    rig.gate.hold()
    answer = rig.send(batch(b"a"))
    await turns()
    rig.mark()
    rig.gate.say()
    assert codes(await answer) == ["NONE"]
    assert rig.values == [b"a"]


async def test_a_partition_that_went_away_meanwhile_is_not_written_to(rig: Rig) -> None:
    rig.gate.hold()
    answer = rig.send(batch(b"a"))
    await turns()
    await rig.replicas.stop(delete=True)
    rig.gate.say()
    assert codes(await answer) == ["UNKNOWN_TOPIC_OR_PARTITION"]


async def test_a_partition_that_was_made_anew_meanwhile_knows_nothing_of_the_word(
    rig: Rig,
) -> None:
    rig.gate.hold()
    answer = rig.send(batch(b"a"), version=TV1)
    await turns()
    await rig.replicas.stop(delete=True)
    await rig.replicas.lead(topic_id=bytes(15) + b"\x01")
    rig.gate.say()
    assert codes(await answer) == ["INVALID_TXN_STATE"]
    assert rig.values == []


async def test_a_partition_that_is_led_elsewhere_by_now_is_not_written_to(rig: Rig) -> None:
    rig.gate.hold()
    answer = rig.send(batch(b"a"), version=9)
    await turns()
    await rig.replicas.lead(leader=1, epoch=1, isr=(0, 1), replicas=(0, 1))
    rig.gate.say()
    assert codes(await answer) == ["NOT_LEADER_OR_FOLLOWER"]


async def test_a_topic_id_that_became_known_meanwhile_is_asked_for_again(rig: Rig) -> None:
    """Nobody has asked the coordinator about it: it must not be taken for admitted."""
    rig.gate.hold()
    answer = rig.send(batch(b"a"), ("n", 0, batch(b"b")), version=13)
    await turns()
    rig.names.names[b"n" * 16] = "n"
    await rig.replicas.lead(topic="n", topic_id=b"n" * 16)
    rig.gate.say()
    assert codes(await answer) == ["NONE", "UNKNOWN_TOPIC_ID"]


async def test_the_second_first_batch_waits_for_its_own_word_and_finds_it_open(rig: Rig) -> None:
    rig.gate.hold()
    first = rig.send(batch(b"a"))
    second = rig.send(batch(b"b", sequence=1))
    rig.gate.say()
    assert codes(await first) == ["NONE"]
    assert codes(await second) == ["NONE"]
    assert rig.values == [b"a", b"b"]


async def test_a_producer_that_no_coordinator_knows_leaves_nothing_in_memory(rig: Rig) -> None:
    rig.gate.code = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    producers = rig.replicas.manager.partition("t", 0).log.producers
    for number in range(100):
        rig.send(batch(b"a", producer=Producer(number, 0)))
    assert len(producers._verifications._waiting) == 0


async def test_one_that_has_to_come_back_keeps_its_place(rig: Rig) -> None:
    """Its next batch must not overtake it."""
    rig.gate.code = ErrorCode.CONCURRENT_TRANSACTIONS
    rig.send(batch(b"a"), version=TV1)
    rig.gate.code = ErrorCode.NONE
    assert codes(rig.send(batch(b"b", sequence=1), version=TV1)) == ["OUT_OF_ORDER_SEQUENCE_NUMBER"]
    assert codes(rig.send(batch(b"a"), version=TV1)) == ["NONE"]


async def test_a_corrupt_batch_of_an_old_format_is_judged_as_such(rig: Rig) -> None:
    """Where an older message has its timestamp, a batch has the flag of transactions."""
    data = bytearray(batch(b"a"))
    data[16] = 1
    answer = rig.send(bytes(data), key=None)
    assert codes(answer) == ["INVALID_RECORD"]


# -- batches that are looked into, in steps


@pytest.fixture
async def compressing() -> Rig:
    replicas = Replicas(compression_type="gzip")
    await replicas.lead()
    return Rig(replicas)


BIG = b"b" * (2 * BYTES_PER_STEP)


async def test_a_large_first_batch_keeps_its_guard_through_the_queue(compressing: Rig) -> None:
    answers = [
        compressing.send(batch(BIG)),
        compressing.send(batch(b"small", sequence=1)),
    ]
    assert [codes(await each) for each in answers] == [["NONE"], ["NONE"]]
    assert compressing.values == [BIG, b"small"]


async def test_a_marker_that_overtakes_a_queued_first_batch_takes_its_guard_away(
    compressing: Rig,
) -> None:
    answer = compressing.send(batch(BIG))
    compressing.mark()
    assert codes(await answer) == ["INVALID_TXN_STATE"]
    assert compressing.values == []


async def test_a_marker_that_overtakes_a_queued_later_batch_leaves_nothing_open(
    compressing: Rig,
) -> None:
    await turns()
    assert codes(compressing.send(batch(b"small"))) == ["NONE"]
    answer = compressing.send(batch(BIG, sequence=1))
    compressing.mark()
    assert codes(await answer) == ["INVALID_TXN_STATE"]
    log = compressing.replicas.manager.partition("t", 0).log
    assert log.producers.open_count == 0
    assert compressing.values == [b"small"]


async def test_who_goes_away_takes_the_queued_batch_along(compressing: Rig) -> None:
    compressing.gate.hold()
    answer = compressing.send(batch(BIG))
    compressing.gate.say()
    await asyncio.sleep(0)
    answer.cancel()
    await turns()
    assert compressing.values == []
