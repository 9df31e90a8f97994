"""Produce with transactional batches: what waits for the coordinator's word, and what may happen
to it meanwhile. A real partition; the word is the test's to give."""

import asyncio
from typing import Any

import pytest

from barnabas.broker.server.context import CloseConnection
from barnabas.coordinator.transaction.metadata import Producer
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.storage.validator import BYTES_PER_STEP
from tests.unit.broker.handlers.transactional_produce import (
    PRODUCER,
    T0,
    TV1,
    TV2,
    Rig,
    batch,
    codes,
    turns,
)
from tests.unit.broker.replication.replicas import Replicas


@pytest.fixture
async def rig() -> Rig:
    replicas = Replicas()
    await replicas.lead()
    return Rig(replicas)


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
        ("TRANSACTION_ABORTABLE", "TRANSACTION_ABORTABLE", None),
        ("NOT_COORDINATOR", "NOT_ENOUGH_REPLICAS", "NOT_COORDINATOR"),
        ("CONCURRENT_TRANSACTIONS", "CONCURRENT_TRANSACTIONS", None),
    ],
)
async def test_a_refusal_is_told_with_its_reason_and_nothing_is_appended(
    rig: Rig, code: str, told: str, reason: str | None
) -> None:
    """In the words of Produce: what a producer is to repeat is NOT_ENOUGH_REPLICAS."""
    rig.gate.code = ErrorCode[code]
    answer = rig.send(batch(b"a"))
    (partition,) = answer.responses[0].partition_responses
    assert codes(answer) == [told]
    if reason is None:
        assert partition.error_message is None
    else:
        assert reason in partition.error_message
    assert partition.log_start_offset == -1, "no log was asked"
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
