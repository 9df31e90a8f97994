"""The append queue: validation in steps, in order, and under the configuration at the end."""

import asyncio
import itertools
from typing import Any

import pytest

from barnabas.broker.loop.slices import Slicer
from barnabas.broker.replication.leader.append_queue import AppendQueue
from barnabas.broker.replication.partition import Partition
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from barnabas.protocol.records.batch import iter_headers, pack_batch, read_header
from barnabas.protocol.records.compression import Compression
from barnabas.protocol.records.record import Record, build_batch, iter_records
from barnabas.storage.log.log_parts import LogAppendInfo
from barnabas.storage.log.record_steps import RECORDS_PER_STEP, TakesLong
from barnabas.storage.log.validator import RecordsRefused, Rules, validate_briefly
from tests.unit.broker.replication.replicas import TOPIC_ID, Replicas

STEPS = 80
COMPACTED = {"cleanup_policy": "compact"}


def batch(count: int, *, key: bytes | None = b"k", **options: Any) -> bytes:
    return build_batch([Record(number, 1, key, b"", ()) for number in range(count)], **options)


LARGE = batch(STEPS * RECORDS_PER_STEP)
SMALL = batch(1)


async def lead(broker: Replicas, index: int) -> Partition:
    """Lead one more partition of the topic."""
    state = LeaderAndIsrPartitionState(
        partition_index=index, controller_epoch=1, leader=0, leader_epoch=0, isr=[0],
        partition_epoch=0, replicas=[0], is_new=True,
    )  # fmt: skip
    topic = LeaderAndIsrTopicState(topic_name="t", topic_id=TOPIC_ID, partition_states=[state])
    await broker.manager.apply_leader_and_isr(
        LeaderAndIsrRequest(
            controller_id=0, controller_epoch=1, topic_states=[topic], live_leaders=[]
        )
    )
    return broker.manager.partition("t", index)


class Rig:
    """A broker with two partitions, and its append queue."""

    def __init__(self, broker: Replicas, first: Partition, second: Partition) -> None:
        self.broker = broker
        self.first = first
        self.second = second
        self.queue: AppendQueue = broker.manager.appends

    def put(
        self, data: bytes, partition: Partition | None = None, **options: Any
    ) -> "asyncio.Future[LogAppendInfo]":
        return self.queue.put(partition or self.first, data, now_ms=1, **options)


async def rig(**configs: str) -> Rig:
    broker = Replicas(**(configs or COMPACTED))
    return Rig(broker, await lead(broker, 0), await lead(broker, 1))


async def refused(append: "asyncio.Future[LogAppendInfo]") -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        await append
    return caught.value.code


def test_only_large_batches_are_validated_in_steps() -> None:
    def is_brief(data: bytes, **fields: Any) -> bool:
        rules = Rules(1 << 20, 1 << 20, keys_required=True, **fields)
        try:
            validate_briefly(data, rules, now_ms=1, header=read_header(data))
        except TakesLong:
            return False
        return True

    assert not is_brief(LARGE)
    large = [Record(0, 1, b"k", bytes(300_000), ())]
    assert not is_brief(build_batch(large))
    for codec in list(Compression)[1:]:
        assert not is_brief(build_batch(large, compression=codec))
        assert is_brief(batch(RECORDS_PER_STEP - 1, compression=codec))
    assert is_brief(batch(RECORDS_PER_STEP - 1))
    assert is_brief(batch(RECORDS_PER_STEP - 1), compression=Compression.GZIP)
    for invalid in (b"short", bytes(100)):
        with pytest.raises(KafkaError):
            validate_briefly(invalid, Rules(1 << 20, 1 << 20), now_ms=1, header=None)


async def test_long_work_of_a_large_batch_goes_in_slices() -> None:
    there = await rig()
    ticks = itertools.count()
    # Every step takes a millisecond, and a turn of the loop five of them.
    there.broker.manager.record_work.slicer = Slicer(lambda: next(ticks) / 1000)
    append = there.put(LARGE)
    turns = 0
    while not append.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns >= STEPS // 5
    assert append.result()[:2] == (0, STEPS * RECORDS_PER_STEP - 1)
    assert there.first.high_watermark == STEPS * RECORDS_PER_STEP


async def test_appends_of_a_partition_keep_their_order() -> None:
    there = await rig()
    appends = [there.put(data) for data in (LARGE, SMALL, LARGE, SMALL)]
    offsets = [(await append).first_offset for append in appends]
    large = STEPS * RECORDS_PER_STEP
    assert offsets == [0, large, large + 1, 2 * large + 1]


async def test_append_of_another_partition_waits_for_one_append_only() -> None:
    there = await rig()
    mine = [there.put(LARGE) for _ in range(3)]
    other = there.put(LARGE, there.second)
    await other
    assert [append.done() for append in mine] == [True, False, False]
    await asyncio.gather(*mine)


async def test_queued_data_is_a_copy() -> None:
    there = await rig()
    received = bytearray(LARGE)
    append = there.put(memoryview(received))
    await asyncio.sleep(0)
    received[:] = bytes(len(received))
    assert (await append).first_offset == 0


async def test_refused_batch_does_not_block_the_next() -> None:
    there = await rig()
    keyless = there.put(batch(STEPS * RECORDS_PER_STEP, key=None))
    after = there.put(SMALL)
    with pytest.raises(RecordsRefused) as caught:
        await keyless
    assert len(caught.value.record_errors) == 1000
    assert (await after).first_offset == 0


async def test_lost_leadership_refuses_queued_appends() -> None:
    there = await rig()
    appends = [there.put(LARGE), there.put(SMALL)]
    await asyncio.sleep(0)
    there.first.resign()
    assert [await refused(append) for append in appends] == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    assert there.first.log.log_end_offset == 0


async def test_deleted_partition_refuses_queued_appends() -> None:
    there = await rig()
    append = there.put(LARGE)
    await asyncio.sleep(0)
    assert await there.broker.stop(delete=True) == ErrorCode.NONE
    assert await refused(append) == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_failed_log_dir_refuses_queued_appends() -> None:
    there = await rig()
    append = there.put(LARGE)
    await asyncio.sleep(0)
    there.first.log.log_dir.take_offline(OSError(5, "Input/output error"))
    assert await refused(append) == ErrorCode.KAFKA_STORAGE_ERROR


async def test_configuration_changed_meanwhile_applies_to_queued_appends() -> None:
    there = await rig()
    append = there.put(LARGE)
    await asyncio.sleep(0)
    there.broker.configs["max_message_bytes"] = "1000"
    there.broker.manager.configure("t", there.broker.config("t"))
    assert await refused(append) == ErrorCode.MESSAGE_TOO_LARGE


async def test_isr_below_min_isr_at_the_end_refuses_the_append() -> None:
    there = await rig()
    append = there.put(LARGE, required_acks=-1)
    there.first.isr_changed((), there.first.partition_epoch + 1)
    assert await refused(append) == ErrorCode.NOT_ENOUGH_REPLICAS


async def test_repeated_batch_is_recognised_as_duplicate_in_the_queue() -> None:
    there = await rig()
    ids = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    data = batch(STEPS * RECORDS_PER_STEP, **ids)
    first, again = there.put(data), there.put(data)
    assert not (await first).duplicate
    assert (await again).duplicate
    assert (await again).first_offset == 0


async def test_cancelled_append_leaves_the_queue() -> None:
    there = await rig()
    unwanted, other, after = there.put(LARGE), there.put(SMALL, there.second), there.put(SMALL)
    await asyncio.sleep(0)
    unwanted.cancel()
    assert (await after).first_offset == 0
    assert (await other).first_offset == 0
    assert not there.first.appends


async def test_recompression_runs_off_the_event_loop() -> None:
    there = await rig(compression_type="zstd")
    await there.put(LARGE)
    log = there.first.log
    data = log.read(0, 1 << 20, limit=log.high_watermark).read_bytes()
    [(pos, header)] = iter_headers(data)
    assert header.compression == Compression.ZSTD
    assert len(data) < len(LARGE) / 10
    records = list(iter_records(data, pos, header))
    assert [record.offset for record in records] == list(range(STEPS * RECORDS_PER_STEP))
    assert {record.key for record in records} == {b"k"}


async def test_records_that_cannot_be_decompressed_are_refused() -> None:
    there = await rig(compression_type="zstd")
    [(_, header)] = iter_headers(batch(STEPS * RECORDS_PER_STEP, compression=Compression.GZIP))
    append, after = there.put(pack_batch(header, b"no gzip")), there.put(SMALL)
    assert await refused(append) == ErrorCode.INVALID_RECORD
    assert (await after).first_offset == 0
