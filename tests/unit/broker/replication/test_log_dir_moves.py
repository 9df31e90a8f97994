"""Moves between log directories: no record is lost, no matter which failure comes in between."""

import asyncio
import errno

import pytest

from barnabas.broker.replication import log_dir_moves
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import read_header, set_base_offset_and_epoch
from barnabas.protocol.records.claim import Claim
from barnabas.protocol.records.record import Record, build_batch
from barnabas.storage.log.log import Log
from barnabas.storage.log.truncation import truncate
from barnabas.storage.producers import snapshot
from tests.support.mem_files import Fault
from tests.unit.broker.replication.replicas import TOPIC_ID
from tests.unit.broker.replication.two_dir_broker import (
    TwoDirBroker,
    expected,
    until,
    values,
    written,
)
from tests.unit.storage.log_bench import NOW, batch


@pytest.fixture(autouse=True)
def _many_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_dir_moves, "CHUNK_BYTES", 500)
    monkeypatch.setattr(log_dir_moves, "TAIL_BYTES", 200)
    monkeypatch.setattr(log_dir_moves, "PAUSE_S", 0.01)


async def led(count: int = 30, **configs: str) -> TwoDirBroker:
    moving = TwoDirBroker(**configs)
    assert await moving.lead() == ErrorCode.NONE
    moving.put(count)
    return moving


async def refused(moving: TwoDirBroker, path: str, topic: str = "t", index: int = 0) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        await moving.manager.alter_log_dir(topic, index, path)
    return caught.value.code


def names(moving: TwoDirBroker, path: str) -> list[str]:
    """Return the names of the replica directories, without their unique ids."""
    found = [name for name in moving.files.listdir(path) if moving.files.is_dir(f"{path}/{name}")]
    return [name if "-" not in name[4:] else f"{name[:3]}..{name[36:]}" for name in found]


async def test_moved_replica_keeps_records_producers_epochs_and_offsets() -> None:
    moving = await led()
    await until(lambda: moving.log.flushed_offset == 30)
    moving.log.delete_records_before(3)
    old, there = moving.log, moving.other_dir
    entry = old.producers.entry(7)
    await moving.move()
    await moving.moved()
    log = moving.log
    assert log is not old
    assert log is moving.logs.get("t", 0)
    assert log.log_dir.path == there
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (3, 30, 30)
    assert values(log) == expected(3, 30)
    assert log.producers.entry(7) == entry
    assert log.epochs.entries == old.epochs.entries
    assert log.flushed_offset == 30
    assert moving.partition.append(written(29), now_ms=NOW).duplicate
    moving.put(5)
    assert values(log) == expected(3, 35)
    assert names(moving, there) == ["t-0"]
    assert names(moving, moving.other_dir) == ["t-0..-delete"]
    assert moving.logs.futures == {}


@pytest.mark.parametrize("at_once", [0, 2_000])
async def test_replica_moves_there_and_back_during_appends(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The producer snapshots are written by flushes, or at once."""
    monkeypatch.setattr(snapshot, "AT_ONCE", at_once)
    moving = await led()
    for _ in range(3):
        await moving.move()
        while len(moving.manager.moves):
            moving.put()
            # Yield: a producer that is faster than the copy would never let the move end.
            for _ in range(5):
                await asyncio.sleep(0)
    end = moving.log.log_end_offset
    assert end > 40
    assert values(moving.log) == expected(0, end)
    unmoved = await led(end)
    assert [each.base_offset for each in moving.log.segments] == [
        each.base_offset for each in unmoved.log.segments
    ]
    await until(lambda: moving.partition.high_watermark == end)
    moving.log.close()
    assert moving.log.snapshots.offsets[-1] == end
    assert moving.files.exists(f"{moving.log.directory}/{end:020d}.snapshot")


async def test_verified_transaction_continues_after_the_move() -> None:
    moving = await led(5)
    guard = moving.partition.begin_verification(Claim("tx", 9, 0, 0, epoch_per_transaction=False))
    await moving.move()
    await moving.moved()
    data = batch(b"x", producer_id=9, producer_epoch=0, base_sequence=0, transactional=True)
    moving.partition.append(data, now_ms=NOW, guard=guard)
    assert moving.log.producers.open_count == 1


async def test_truncation_of_a_follower_applies_to_its_future_log() -> None:
    moving = await led()
    await moving.lead(leader=1, epoch=1, replicas=(0, 1), isr=(0, 1))
    there = moving.other_dir
    limit(moving, 1)
    await moving.move()
    await until(lambda: moving.logs.futures["t", 0].log_end_offset > 0)
    limit(moving, None)
    future = moving.logs.futures["t", 0]
    await until(lambda: future.log_end_offset > 20)
    change = truncate(moving.log, 12, now_ms=NOW)
    await asyncio.sleep(0)
    change.complete()
    data = bytearray()
    for offset in range(12, 20):
        each = batch(b"new %d" % offset, timestamp=5)
        moving.log.assign_leader_epoch(1)
        stamped(each, offset, 1)
        data += each
    moving.partition.append_as_follower(bytes(data), now_ms=NOW, max_batches=99)
    await moving.moved()
    assert moving.log.log_dir.path == there
    assert moving.log.log_end_offset == 20
    assert [size for _, _, size in values(moving.log)][12:] == [len(batch(b"new 12"))] * 8
    assert [(e.epoch, e.start_offset) for e in moving.log.epochs.entries] == [(0, 0), (1, 12)]


@pytest.mark.parametrize("start", [5, 25])
async def test_log_that_starts_within_a_batch_moves(start: int) -> None:
    moving = await led_in_large_batches()
    moving.log.delete_records_before(start)
    there, whole = moving.other_dir, sizes(moving.log)
    await moving.move()
    await moving.moved()
    assert moving.log.log_dir.path == there
    assert (moving.log.log_start_offset, moving.log.log_end_offset) == (start, 40)
    assert sizes(moving.log) == whole


async def test_log_start_moving_into_a_batch_during_the_move() -> None:
    moving = await led_in_large_batches()
    there = moving.other_dir
    limit(moving, 300)
    await moving.move()
    future = moving.logs.futures["t", 0]
    await until(lambda: future.log_end_offset > 0)
    moving.log.delete_records_before(future.log_end_offset + 5)
    limit(moving, None)
    await moving.moved()
    assert moving.log.log_dir.path == there


async def led_in_large_batches() -> TwoDirBroker:
    """Lead a partition with four batches of ten records each."""
    moving = await led(0)
    records = [Record(index, NOW, b"k", b"v" * 20) for index in range(10)]
    for _ in range(4):
        moving.partition.append(bytearray(build_batch(records)), now_ms=NOW)
    await until(lambda: moving.log.high_watermark == 40)
    return moving


def sizes(log: Log) -> list[tuple[int, int]]:
    return [(offset, size) for offset, _, size in values(log)]


async def test_quota_delays_a_move_and_another_request_reverts_it() -> None:
    moving = await led()
    here, there = moving.log.log_dir.path, moving.other_dir
    limit(moving, 300)
    await moving.move()
    future = moving.logs.futures["t", 0]
    await until(lambda: future.size > 300)
    copied = future.size
    await asyncio.sleep(0.12)
    assert future.size == copied < moving.log.size
    moving.clock.seconds += copied / 300 + 1
    await until(lambda: future.size > copied)
    await moving.move(there)
    assert moving.logs.futures["t", 0] is future, "the move to this directory continues"
    await moving.move(here)
    assert moving.logs.futures == {}
    assert (names(moving, here), names(moving, there)) == (["t-0"], ["t-0..-delete"])
    assert values(moving.log) == expected(0, 30)


async def test_concurrent_moves_are_limited_to_the_threads() -> None:
    moving = await led()
    await moving.lead(topic="u", topic_id=bytes(16))
    moves, logs = moving.manager.moves, moving.logs
    limit(moving, 1)
    for log in logs.logs:
        path = next(each.path for each in logs.dirs if each is not log.log_dir)
        await moving.manager.alter_log_dir(log.topic, 0, path)
    assert len(moves) == 2
    await until(lambda: len(moves) == 1)
    one_at_a_time = TwoDirBroker(threads=1)
    await one_at_a_time.lead()
    one_at_a_time.put(30)
    await one_at_a_time.lead(topic="u", topic_id=bytes(16))
    limit(one_at_a_time, 1)
    await one_at_a_time.move()
    other = one_at_a_time.manager.partition("u", 0).log
    path = next(each.path for each in one_at_a_time.logs.dirs if each is not other.log_dir)
    await one_at_a_time.manager.alter_log_dir("u", 0, path)
    await until(lambda: one_at_a_time.logs.futures["t", 0].log_end_offset > 0)
    await asyncio.sleep(0.05)
    assert len(one_at_a_time.manager.moves) == 2, "an empty log waits behind a throttled one"
    limit(one_at_a_time, None)
    await one_at_a_time.moved()


async def test_invalid_moves_are_refused_and_a_preferred_directory_is_kept() -> None:
    moving = await led(1)
    assert await refused(moving, "/c") is ErrorCode.LOG_DIR_NOT_FOUND
    assert await refused(moving, "/a", "x" * 230) is ErrorCode.INVALID_TOPIC_EXCEPTION
    for path in ("/b", "/a"):
        code = await refused(moving, path, "later")
        assert code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await moving.lead(topic="later", topic_id=bytes(16))
        assert moving.manager.partition("later", 0).log.log_dir.path == path
        moving.logs.delete("later", 0)
        del moving.manager._partitions["later", 0]
    moving.logs.directory(moving.other_dir).take_offline(OSError(errno.EIO, "broken"))
    assert await refused(moving, moving.other_dir) is ErrorCode.KAFKA_STORAGE_ERROR


async def test_move_ends_when_its_target_directory_fails() -> None:
    moving = await led()
    moving.files.faults.append(Fault("append", suffix=f"{15:020d}.log", from_then_on=True))
    moving.files.faults.append(Fault("sync", suffix="-future/00000000000000000000.log"))
    there = moving.other_dir
    await moving.move()
    await moving.moved()
    assert [failure.log_dir for failure in moving.failures] == [there]
    moving.manager.log_dir_failed(there)
    assert moving.logs.futures == {}
    moving.put(3)
    assert values(moving.log) == expected(0, 33)


async def test_move_ends_when_its_source_directory_fails() -> None:
    moving = await led()
    limit(moving, 1)
    here = moving.log.log_dir
    await moving.move()
    here.take_offline(OSError(errno.EIO, "broken"))
    moving.manager.log_dir_failed(here.path)
    limit(moving, None)
    await moving.moved()
    with pytest.raises(KafkaError) as caught:
        _ = moving.partition
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert names(moving, moving.logs.online_dirs[0].path) == ["t-0..-future"]
    moving.logs.close()
    again = TwoDirBroker(moving.files)
    await again.lead(epoch=1)
    await again.moved()
    assert again.log.log_dir.path != here.path
    assert values(again.log) == expected(0, 30)


async def test_failed_move_is_continued_by_the_same_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    moving = await led()
    there = moving.other_dir

    def damaged(*_: object, **__: object) -> int:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE)

    with monkeypatch.context() as patch:
        patch.setattr(log_dir_moves, "append_step", damaged)
        await moving.move()
        await moving.moved()
    assert moving.other_dir == there
    copied = moving.logs.futures["t", 0]
    await moving.move()
    assert moving.logs.futures["t", 0] is copied
    await moving.moved()
    assert moving.log.log_dir.path == there
    assert values(moving.log) == expected(0, 30)


@pytest.mark.parametrize("turns", range(12))
async def test_partition_is_deleted_during_its_move(turns: int) -> None:
    moving = await led()
    await moving.move()
    for _ in range(turns):
        await asyncio.sleep(0)
    assert await moving.stop(delete=True) == ErrorCode.NONE
    assert len(moving.manager.moves) == 0
    assert (moving.logs.futures, moving.logs.logs) == ({}, [])
    assert {*names(moving, "/a"), *names(moving, "/b")} == {"t-0..-delete"}


@pytest.mark.parametrize("turns", range(12))
async def test_move_interrupted_by_shutdown_continues_after_the_restart(turns: int) -> None:
    moving = await led()
    there = moving.other_dir
    await moving.move()
    for _ in range(turns):
        await asyncio.sleep(0)
    await moving.manager.moves.close()
    moving.logs.close()
    again = TwoDirBroker(moving.files)
    assert again.logs.last_run.clean
    assert sum(len(again.logs.logs_in(each)) for each in again.logs.dirs) <= 2
    await again.lead(epoch=1)
    await again.moved()
    assert again.log.log_dir.path == there
    assert values(again.log) == expected(0, 30)


async def test_future_log_of_an_older_topic_of_the_same_name_is_dropped() -> None:
    moving = await led()
    limit(moving, 1)
    await moving.move()
    here = moving.log.log_dir.path
    moving.logs.abandon()
    moving.files.kill()
    stranger = bytes(reversed(TOPIC_ID))
    for name in moving.files.listdir(here):
        if name == "t-0":
            moving.files.remove_tree(f"{here}/{name}")
    again = TwoDirBroker(moving.files)
    assert again.logs.futures == {}, "its original log is gone"
    await again.lead(topic_id=stranger)
    assert again.log.log_end_offset == 0


def limit(moving: TwoDirBroker, rate: int | None) -> None:
    key = "replica.alter.log.dirs.io.max.bytes.per.second"
    changes = {} if rate is None else {key: str(rate)}
    moving.broker = type(moving.broker).from_properties({"log.dirs": "/a,/b"} | changes)


def stamped(data: bytearray, offset: int, epoch: int) -> None:
    set_base_offset_and_epoch(data, 0, offset, read_header(data).batch_length, epoch)
