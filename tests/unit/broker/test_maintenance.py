"""The chores: what they do when their round comes, and that one failure stops none of them."""

import asyncio
import threading
from collections.abc import Awaitable, Callable

from barnabas.broker.clock import SystemClock
from barnabas.broker.maintenance import CleanerChore, LogChores
from barnabas.broker.offload import InlineOffload, Offload, ThreadOffload
from barnabas.broker.replication.partition import Partition
from barnabas.broker.rounds import Rounds
from barnabas.config.broker import BrokerConfig
from barnabas.metrics.registry import Cell
from barnabas.protocol.records.record import Record, build_batch
from barnabas.storage.checkpoints import read_offsets
from barnabas.storage.cleaner import LogCleaner
from barnabas.storage.cleaner_worker import InlineCleaner
from barnabas.storage.mem_files import Fault, MemFiles
from barnabas.storage.verification import UNVERIFIED
from tests.unit.broker.replication.replicas import TOPIC_ID, Replicas


class SteppedClock(SystemClock):
    """A clock that the test moves."""

    now = 1_000_000

    def now_ms(self) -> int:
        return self.now


class Kept:
    """The chores over one replica that this broker leads."""

    def __init__(
        self,
        broker: dict[str, str] | None = None,
        *,
        files: MemFiles | None = None,
        offload: Offload | None = None,
        **topic: str,
    ) -> None:
        self.replicas = Replicas(files, **topic)
        offload = offload or InlineOffload()
        self.clock = SteppedClock()
        self.config = BrokerConfig.from_properties({"log.dirs": "/data", **(broker or {})})
        self.transactions_passed = Cell()
        self.chores = LogChores(
            self.replicas.logs,
            self.replicas.manager,
            self.replicas.flusher,
            offload,
            self.clock,
            lambda: self.config,
            self.transactions_passed,
        )
        files = self.replicas.files
        self.cleaner = CleanerChore(
            LogCleaner(files, InlineCleaner(files).clean),
            self.replicas.logs,
            self.replicas.manager,
            offload,
            self.clock,
            lambda: self.config,
        )

    async def partition(self) -> Partition:
        await self.replicas.lead()
        return self.replicas.manager.partition("t", 0)

    def append(self, partition: Partition, key: bytes = b"k", value: bytes = b"v") -> None:
        records = [Record(0, self.clock.now, key, value, ())]
        partition.append_as_leader(build_batch(records), now_ms=self.clock.now)


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_retention_drops_what_is_too_old_and_removal_unlinks_it_later() -> None:
    kept = Kept(retention_ms="1000", file_delete_delay_ms="500")
    partition = await kept.partition()
    kept.append(partition)
    kept.clock.now += 2000
    await kept.chores.retain()
    assert partition.log.log_start_offset == 1
    assert any(name.endswith(".deleted") for name in kept.replicas.files.listdir("/data/t-0"))


async def test_retention_passes_a_hanging_transaction_and_says_so() -> None:
    kept = Kept(retention_ms="1000", file_delete_delay_ms="500")
    partition = await kept.partition()
    batch = build_batch(
        [Record(0, kept.clock.now, None, b"x")],
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    partition.append_as_leader(bytearray(batch), now_ms=kept.clock.now, guard=UNVERIFIED)
    kept.append(partition)
    kept.clock.now += 2000
    await kept.chores.retain()
    assert (partition.log.log_start_offset, partition.log.last_stable_offset) == (2, 2)
    assert kept.transactions_passed.value == 1
    await kept.chores.retain()
    assert kept.transactions_passed.value == 1


async def test_retention_of_many_logs_leaves_turns_of_the_loop_to_others() -> None:
    kept = Kept()
    config = kept.replicas.config("t")
    for partition in range(500):
        kept.replicas.logs.create("t", partition, TOPIC_ID, config)
    chore = asyncio.create_task(kept.chores.retain())
    others = 0
    while not chore.done():
        await asyncio.sleep(0)
        others += 1
    assert others > 2


async def test_checkpoints_tell_the_next_start_where_to_begin() -> None:
    kept = Kept(flush_messages="1")
    partition = await kept.partition()
    kept.append(partition)
    await turns()
    await kept.chores.checkpoint()
    files = kept.replicas.files
    assert read_offsets(files, "/data/recovery-point-offset-checkpoint") == {("t", 0): 1}
    assert read_offsets(files, "/data/replication-offset-checkpoint") == {("t", 0): 1}


async def test_a_rolled_log_is_flushed() -> None:
    kept = Kept()
    partition = await kept.partition()
    kept.append(partition)
    await kept.chores.flush_rolled()
    await turns()
    assert partition.log.flushed_offset == 0
    partition.log.roll(now_ms=kept.clock.now)
    await kept.chores.flush_rolled()
    await turns()
    assert partition.log.flushed_offset == 1


async def test_flush_ms_is_counted_from_when_a_record_was_first_seen_waiting() -> None:
    kept = Kept(flush_ms="100")
    partition = await kept.partition()
    kept.append(partition)
    await kept.chores.flush_by_time()
    kept.clock.now += 99
    await kept.chores.flush_by_time()
    await turns()
    assert partition.log.flushed_offset == 0
    kept.clock.now += 1
    await kept.chores.flush_by_time()
    await turns()
    assert partition.log.flushed_offset == 1


class Intervals(Rounds):
    """Notes how often instead of doing it."""

    def __init__(self) -> None:
        super().__init__()
        self.interval_ms: dict[str, int] = {}

    def every(
        self,
        name: str,
        interval_ms: Callable[[], int],
        chore: Callable[[], Awaitable[None]],  # noqa: ARG002
    ) -> None:
        self.interval_ms[name] = interval_ms()


async def test_flush_ms_holds_without_a_second_key() -> None:
    rounds = Intervals()
    for scheduler, expected in ((None, 1000), ("100", 100), ("60000", 1000)):
        keys = {} if scheduler is None else {"log.flush.scheduler.interval.ms": scheduler}
        Kept(keys).chores.schedule(rounds)
        assert rounds.interval_ms["flush by time"] == expected


async def test_silent_producers_are_forgotten() -> None:
    kept = Kept({"producer.id.expiration.ms": "1000"})
    partition = await kept.partition()
    records = [Record(0, kept.clock.now, b"k", b"v", ())]
    batch = build_batch(records, producer_id=7, producer_epoch=0, base_sequence=0)
    partition.append_as_leader(batch, now_ms=kept.clock.now)
    assert len(partition.log.producers) == 1
    kept.clock.now += 1001
    await kept.chores.expire_producers()
    assert len(partition.log.producers) == 0


async def test_compaction_keeps_the_last_value_and_does_not_wait_for_the_next_checkpoint() -> None:
    kept = Kept(cleanup_policy="compact", min_cleanable_dirty_ratio="0.01", flush_messages="1")
    partition = await kept.partition()
    for number in range(20):
        kept.append(partition, key=b"%d" % (number % 2))
    await turns()
    partition.log.roll(now_ms=kept.clock.now)
    kept.append(partition, key=b"in the active segment")
    await turns()
    before = partition.log.size
    await kept.cleaner.clean()
    assert partition.log.size < before / 5
    assert partition.log.log_end_offset == 21


class WatchedFiles(MemFiles):
    """Notes what the thread of the event loop asks of the disk."""

    def __init__(self) -> None:
        super().__init__()
        self.loop_thread: int | None = None
        self.on_loop: list[str] = []
        self.elsewhere: list[str] = []

    def strike(self, call: str, path: str) -> Fault | None:
        if self.loop_thread is not None:
            on_loop = threading.get_ident() == self.loop_thread
            (self.on_loop if on_loop else self.elsewhere).append(call)
        return super().strike(call, path)

    def exists(self, path: str) -> bool:
        self.strike("exists", path)
        return super().exists(path)


async def test_the_loop_never_waits_for_the_disk_while_segments_are_swapped_and_dropped() -> None:
    files, offload = WatchedFiles(), ThreadOffload()
    kept = Kept(files=files, offload=offload, cleanup_policy="compact,delete", flush_messages="1")
    partition = await kept.partition()
    # The cleaner's checkpoint is read once, at the first look.
    await kept.cleaner.clean()
    for number in range(20):
        kept.append(partition, key=b"%d" % (number % 2))
        partition.log.roll(now_ms=kept.clock.now)
    await turns()
    await kept.chores.checkpoint()
    before = len(partition.log.segments)
    files.loop_thread = threading.get_ident()
    await kept.cleaner.clean()
    assert "rename" in files.elsewhere
    assert len(partition.log.segments) < before
    files.elsewhere.clear()
    partition.log.delete_records_before(19)
    await kept.chores.retain()
    assert "rename" in files.elsewhere
    assert partition.log.log_start_offset == 19
    # Whether a segment has an index of aborted transactions is asked when a job is made, and
    # answered from the kernel's memory.
    assert set(files.on_loop) <= {"exists"}
    offload.close()


async def test_a_chore_that_fails_is_done_again_and_stopping_ends_it() -> None:
    rounds, runs = Rounds(), []

    async def chore() -> None:
        runs.append(None)
        raise ValueError("a bug")

    rounds.every("failing", lambda: 1, chore)
    async with asyncio.timeout(5):
        while len(runs) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    await rounds.stop()
    count = len(runs)
    await asyncio.sleep(0.01)
    assert len(runs) == count
