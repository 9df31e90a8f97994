"""Produce with transactional batches that wait for the coordinator, and events meanwhile.

The partition is real; the test controls the coordinator's answers.
"""

import asyncio
from typing import Any

import pytest

from barnabas.broker.server.context import CloseConnection
from barnabas.coordinator.transaction.metadata import Producer
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.storage.log.record_steps import BYTES_PER_STEP
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
async def test_only_first_batch_is_verified(rig: Rig, version: int, adds: bool) -> None:
    assert codes(rig.send(batch(b"a"), version=version)) == ["NONE"]
    assert codes(rig.send(batch(b"b", sequence=1), version=version)) == ["NONE"]
    assert rig.verifier.asked == [("x", PRODUCER, [T0], adds)]
    assert rig.values == [b"a", b"b"]


async def test_verification_off_skips_older_clients(rig: Rig) -> None:
    rig.verifier.verifies = False
    assert codes(rig.send(batch(b"a"), version=TV1)) == ["NONE"]
    assert rig.verifier.asked == []


async def test_transactional_batch_without_transactional_id_is_refused(rig: Rig) -> None:
    with pytest.raises(KafkaError) as caught:
        rig.send(batch(b"a"), key=None)
    assert caught.value.code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert rig.values == []


async def test_waiting_records_are_copied_from_receive_buffer(rig: Rig) -> None:
    """The buffer has later requests when the coordinator answers."""
    plain = batch(b"plain", transactional=False, producer=Producer(-1, -1), sequence=-1)
    received = bytearray(batch(b"transactional") + plain)
    view, split = memoryview(received), len(received) - len(plain)
    rig.verifier.hold()
    answer = rig.send(view[:split], ("t", 0, view[split:]))
    received[:] = bytes(len(received))
    rig.verifier.say()
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
async def test_refusal_has_reason_and_appends_nothing(
    rig: Rig, code: str, told: str, reason: str | None
) -> None:
    """An error on which older producers must retry becomes NOT_ENOUGH_REPLICAS."""
    rig.verifier.code = ErrorCode[code]
    answer = rig.send(batch(b"a"))
    (partition,) = answer.responses[0].partition_responses
    assert codes(answer) == [told]
    if reason is None:
        assert partition.error_message is None
    else:
        assert reason in partition.error_message
    assert partition.log_start_offset == -1, "no log was asked"
    assert rig.values == []


async def test_plain_batches_are_appended_despite_refusal(
    rig: Rig,
) -> None:
    rig.verifier.code = ErrorCode.PRODUCER_FENCED
    plain = batch(b"plain", transactional=False, producer=Producer(-1, -1), sequence=-1)
    assert codes(rig.send(batch(b"a"), plain)) == ["INVALID_PRODUCER_EPOCH", "NONE"]
    assert rig.values == [b"plain"]


@pytest.mark.parametrize("other", [Producer(1001, 4), Producer(1000, 5)])
async def test_request_of_two_producers_is_refused(rig: Rig, other: Producer) -> None:
    with pytest.raises(KafkaError) as caught:
        rig.send(batch(b"a"), batch(b"b", producer=other))
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert (rig.verifier.asked, rig.values) == ([], [])


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.PRODUCER_FENCED])
@pytest.mark.parametrize("later", [False, True])
async def test_refusal_with_acks_zero_closes_connection(
    rig: Rig, code: ErrorCode, later: bool
) -> None:
    async def sent() -> Any:
        if later:
            rig.verifier.hold()
        rig.verifier.code = code
        answer = rig.send(batch(b"a"), acks=0)
        if later:
            rig.verifier.say(code)
        return await answer if isinstance(answer, asyncio.Future) else answer

    if code is ErrorCode.NONE:
        assert await sent() is None
        assert rig.values == [b"a"]
    else:
        with pytest.raises(CloseConnection):
            await sent()
        assert rig.values == []


async def test_cancelled_produce_appends_nothing(rig: Rig) -> None:
    rig.verifier.hold()
    later = rig.verifier.later
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
async def test_marker_during_verification_invalidates_verdict(
    rig: Rig, version: int, epoch: int, told: str
) -> None:
    rig.verifier.hold()
    answer = rig.send(batch(b"a"), version=version)
    await turns()
    rig.mark(epoch)
    rig.verifier.say()
    assert codes(await answer) == [told]
    assert rig.values == []


async def test_newer_client_waits_for_marker_of_previous_transaction(
    rig: Rig,
) -> None:
    """The coordinator answers when that marker is written (KIP-609)."""
    rig.verifier.hold()
    answer = rig.send(batch(b"a"))
    await turns()
    rig.mark()
    rig.verifier.say()
    assert codes(await answer) == ["NONE"]
    assert rig.values == [b"a"]


async def test_partition_deleted_during_verification_gets_no_records(rig: Rig) -> None:
    rig.verifier.hold()
    answer = rig.send(batch(b"a"))
    await turns()
    await rig.replicas.stop(delete=True)
    rig.verifier.say()
    assert codes(await answer) == ["UNKNOWN_TOPIC_OR_PARTITION"]


async def test_partition_recreated_during_verification_refuses_guard(
    rig: Rig,
) -> None:
    rig.verifier.hold()
    answer = rig.send(batch(b"a"), version=TV1)
    await turns()
    await rig.replicas.stop(delete=True)
    await rig.replicas.lead(topic_id=bytes(15) + b"\x01")
    rig.verifier.say()
    assert codes(await answer) == ["INVALID_TXN_STATE"]
    assert rig.values == []


async def test_partition_that_moved_during_verification_gets_no_records(rig: Rig) -> None:
    rig.verifier.hold()
    answer = rig.send(batch(b"a"), version=9)
    await turns()
    await rig.replicas.lead(leader=1, epoch=1, isr=(0, 1), replicas=(0, 1))
    rig.verifier.say()
    assert codes(await answer) == ["NOT_LEADER_OR_FOLLOWER"]


async def test_topic_id_that_became_known_during_verification_is_refused(rig: Rig) -> None:
    """The coordinator was not asked about it, so it must not be appended."""
    rig.verifier.hold()
    answer = rig.send(batch(b"a"), ("n", 0, batch(b"b")), version=13)
    await turns()
    rig.names.names[b"n" * 16] = "n"
    await rig.replicas.lead(topic="n", topic_id=b"n" * 16)
    rig.verifier.say()
    assert codes(await answer) == ["NONE", "UNKNOWN_TOPIC_ID"]


async def test_second_batch_in_flight_waits_for_its_own_verdict(rig: Rig) -> None:
    rig.verifier.hold()
    first = rig.send(batch(b"a"))
    second = rig.send(batch(b"b", sequence=1))
    rig.verifier.say()
    assert codes(await first) == ["NONE"]
    assert codes(await second) == ["NONE"]
    assert rig.values == [b"a", b"b"]


async def test_unknown_producer_leaves_no_verification_in_memory(rig: Rig) -> None:
    rig.verifier.code = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    producers = rig.replicas.manager.partition("t", 0).log.producers
    for number in range(100):
        rig.send(batch(b"a", producer=Producer(number, 0)))
    assert not producers._unlogged


async def test_retried_batch_is_not_overtaken(rig: Rig) -> None:
    """The next batch must not overtake a batch that is retried."""
    rig.verifier.code = ErrorCode.CONCURRENT_TRANSACTIONS
    rig.send(batch(b"a"), version=TV1)
    rig.verifier.code = ErrorCode.NONE
    assert codes(rig.send(batch(b"b", sequence=1), version=TV1)) == ["OUT_OF_ORDER_SEQUENCE_NUMBER"]
    assert codes(rig.send(batch(b"a"), version=TV1)) == ["NONE"]


async def test_old_format_batch_is_invalid_record_not_transactional(rig: Rig) -> None:
    """Bytes of a timestamp in an old message are the transactional flag of a batch."""
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


async def test_queued_first_batch_keeps_its_guard(compressing: Rig) -> None:
    answers = [
        compressing.send(batch(BIG)),
        compressing.send(batch(b"small", sequence=1)),
    ]
    assert [codes(await each) for each in answers] == [["NONE"], ["NONE"]]
    assert compressing.values == [BIG, b"small"]


async def test_marker_that_overtakes_queued_first_batch_invalidates_guard(
    compressing: Rig,
) -> None:
    answer = compressing.send(batch(BIG))
    compressing.mark()
    assert codes(await answer) == ["INVALID_TXN_STATE"]
    assert compressing.values == []


async def test_marker_that_overtakes_queued_later_batch_leaves_no_open_transaction(
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


async def test_cancelled_produce_leaves_append_queue(compressing: Rig) -> None:
    compressing.verifier.hold()
    answer = compressing.send(batch(BIG))
    compressing.verifier.say()
    await asyncio.sleep(0)
    answer.cancel()
    await turns()
    assert compressing.values == []
