"""The periodic tasks of a broker: their effects, and the failure of one of them."""

import asyncio
import errno
import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import pytest

from barnabas.broker import maintenance
from barnabas.broker.loop.clock import SystemClock
from barnabas.broker.loop.offload import InlineOffload, Offload, ThreadOffload
from barnabas.broker.loop.periodic_tasks import PeriodicTasks
from barnabas.broker.maintenance import CertificateTasks, CleanerTask, LogTasks, SpaceTask
from barnabas.broker.replication.partition import Partition
from barnabas.broker.server.tls import Certificates
from barnabas.config.broker import BrokerConfig
from barnabas.metrics.catalogue import LogMetrics
from barnabas.metrics.registry import Cell, Registry
from barnabas.protocol.records.record import Record, build_batch
from barnabas.security.tls import server_tls
from barnabas.storage.cleaning.cleaner import LogCleaner
from barnabas.storage.cleaning.cleaner_worker import InlineCleaner
from barnabas.storage.files.checkpoints import read_offsets
from barnabas.storage.files.errors import LogDirFailed
from barnabas.storage.producers import snapshot
from barnabas.storage.producers.verification import UNVERIFIED
from tests.support.certificates import Stores
from tests.support.mem_files import Fault, MemFiles
from tests.support.waiting import eventually
from tests.unit.broker.replication.replicas import TOPIC_ID, Replicas


class SteppedClock(SystemClock):
    """A clock that the test moves."""

    now = 1_000_000

    def now_ms(self) -> int:
        return self.now


class Rig:
    """The log tasks of one replica that this broker leads."""

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
        self.tasks = LogTasks(
            self.replicas.logs,
            self.replicas.manager,
            self.replicas.flusher,
            offload,
            self.clock,
            lambda: self.config,
            self.transactions_passed,
        )
        files = self.replicas.files
        self.cleaner = CleanerTask(
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
        partition.append(build_batch(records), now_ms=self.clock.now)


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_space_of_a_directory_is_reported_until_it_fails() -> None:
    rig, metrics = Rig(), LogMetrics(Registry())
    logs = rig.replicas.logs
    task = SpaceTask(logs, InlineOffload(), metrics)
    await task.look()
    total, free = logs.space(logs.dirs[0])
    assert 0 < free < total
    assert metrics.free_bytes.snapshot().samples == [(("/data",), free)]
    assert metrics.volume_bytes.snapshot().samples == [(("/data",), total)]
    with pytest.raises(LogDirFailed):
        logs.dirs[0].fail(OSError(errno.EIO, "broken"))
    await task.look()
    assert metrics.free_bytes.snapshot().samples == []
    assert metrics.volume_bytes.snapshot().samples == []


async def test_retention_drops_old_segments_and_removal_unlinks_them_later() -> None:
    rig = Rig(retention_ms="1000", file_delete_delay_ms="500")
    partition = await rig.partition()
    rig.append(partition)
    rig.clock.now += 2000
    await rig.tasks.retain()
    assert partition.log.log_start_offset == 1
    assert any(name.endswith(".deleted") for name in rig.replicas.files.listdir("/data/t-0"))


async def test_retention_passes_hanging_transaction_and_logs_it() -> None:
    rig = Rig(retention_ms="1000", file_delete_delay_ms="500")
    partition = await rig.partition()
    batch = build_batch(
        [Record(0, rig.clock.now, None, b"x")],
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    partition.append(bytearray(batch), now_ms=rig.clock.now, guard=UNVERIFIED)
    rig.append(partition)
    rig.clock.now += 2000
    await rig.tasks.retain()
    assert (partition.log.log_start_offset, partition.log.last_stable_offset) == (2, 2)
    assert rig.transactions_passed.value == 1
    await rig.tasks.retain()
    assert rig.transactions_passed.value == 1


async def test_retention_of_many_logs_yields_to_the_loop() -> None:
    rig = Rig()
    config = rig.replicas.config("t")
    for partition in range(500):
        rig.replicas.logs.create("t", partition, TOPIC_ID, config)
    task = asyncio.create_task(rig.tasks.retain())
    others = 0
    while not task.done():
        await asyncio.sleep(0)
        others += 1
    assert others > 2


async def test_checkpoints_set_the_recovery_point_of_the_next_start() -> None:
    rig = Rig(flush_messages="1")
    partition = await rig.partition()
    rig.append(partition)
    await turns()
    await rig.tasks.checkpoint()
    files = rig.replicas.files
    assert read_offsets(files, "/data/recovery-point-offset-checkpoint") == {("t", 0): 1}
    assert read_offsets(files, "/data/replication-offset-checkpoint") == {("t", 0): 1}


async def test_rolled_log_is_flushed() -> None:
    rig = Rig()
    partition = await rig.partition()
    rig.append(partition)
    await rig.tasks.flush_rolled()
    await turns()
    assert partition.log.flushed_offset == 0
    partition.log.roll(now_ms=rig.clock.now)
    await rig.tasks.flush_rolled()
    await turns()
    assert partition.log.flushed_offset == 1


async def test_flush_ms_counts_from_the_first_sight_of_a_waiting_record() -> None:
    rig = Rig(flush_ms="100")
    partition = await rig.partition()
    rig.append(partition)
    await rig.tasks.flush_by_time()
    rig.clock.now += 99
    await rig.tasks.flush_by_time()
    await turns()
    assert partition.log.flushed_offset == 0
    rig.clock.now += 1
    await rig.tasks.flush_by_time()
    await turns()
    assert partition.log.flushed_offset == 1


async def test_segments_that_were_compacted_away_are_removed() -> None:
    rig = Rig(
        cleanup_policy="compact",
        min_cleanable_dirty_ratio="0.01",
        flush_messages="1",
        file_delete_delay_ms="0",
    )
    partition = await rig.partition()
    for _ in range(3):
        rig.append(partition)
        await turns()
        partition.log.roll(now_ms=rig.clock.now)
    rig.append(partition)
    await turns()
    await rig.cleaner.clean()
    directory = partition.log.directory
    assert any(name.endswith(".deleted") for name in rig.replicas.files.listdir(directory))
    await rig.tasks.remove()
    assert not any(name.endswith(".deleted") for name in rig.replicas.files.listdir(directory))


async def test_flush_ms_that_is_set_later_counts_from_then_on() -> None:
    rig = Rig()
    partition = await rig.partition()
    rig.append(partition)
    assert list(rig.replicas.manager.flushed_by_time) == []
    await rig.tasks.flush_by_time()
    rig.replicas.manager.configure("t", partition.log.config.replace(flush_ms=100))
    await rig.tasks.flush_by_time()
    rig.clock.now += 100
    await rig.tasks.flush_by_time()
    await turns()
    assert partition.log.flushed_offset == 1
    rig.replicas.manager.configure("t", partition.log.config.replace(flush_ms=2**63 - 1))
    assert list(rig.replicas.manager.flushed_by_time) == []


async def test_deleted_partition_is_not_flushed_by_time() -> None:
    rig = Rig(flush_ms="100")
    partition = await rig.partition()
    assert list(rig.replicas.manager.flushed_by_time) == [partition]
    await rig.replicas.stop(delete=True)
    assert list(rig.replicas.manager.flushed_by_time) == []


async def test_partitions_at_rest_are_not_visited(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    partition = await rig.partition()
    rig.append(partition)
    partition.log.roll(now_ms=rig.clock.now)
    await rig.tasks.flush_rolled()
    await turns()
    await rig.tasks.flush_rolled()
    assert list(rig.replicas.logs.rolled) == []

    def visited(_: object) -> None:
        raise AssertionError("all partitions are visited")

    monkeypatch.setattr(type(rig.replicas.manager), "__iter__", visited)
    monkeypatch.setattr(type(rig.replicas.logs), "logs", property(visited))
    rig.append(partition)
    await rig.tasks.flush_rolled()
    await rig.tasks.flush_by_time()
    await rig.tasks.remove()


async def test_rolled_log_of_a_killed_process_is_flushed() -> None:
    rig = Rig()
    partition = await rig.partition()
    rig.append(partition)
    partition.log.roll(now_ms=rig.clock.now)
    rig.replicas.logs.abandon()
    rig.replicas.files.kill()
    again = Rig(files=rig.replicas.files)
    partition = await again.partition()
    assert partition.log.flushed_offset == 0
    await again.tasks.flush_rolled()
    await turns()
    assert partition.log.flushed_offset == 1


async def test_rolled_log_is_flushed_after_the_failure_to_open_a_file() -> None:
    rig = Rig()
    partition = await rig.partition()
    rig.append(partition)
    partition.log.roll(now_ms=rig.clock.now)
    shortage = Fault("open", ".index", error=errno.EMFILE, from_then_on=True)
    rig.replicas.files.faults.append(shortage)
    await rig.tasks.flush_rolled()
    await turns()
    assert (partition.log.flushed_offset, rig.replicas.failures) == (0, [])
    rig.replicas.files.faults.clear()
    await rig.tasks.flush_rolled()
    await turns()
    assert partition.log.flushed_offset == 1


async def test_checkpoint_without_a_descriptor_is_written_by_the_next_run() -> None:
    rig = Rig(flush_messages="1")
    rig.append(await rig.partition())
    await turns()
    files = rig.replicas.files
    files.faults.append(Fault("open", ".tmp", error=errno.EMFILE, from_then_on=True))
    await rig.tasks.checkpoint()
    files.faults.clear()
    await rig.tasks.checkpoint()
    assert read_offsets(files, "/data/recovery-point-offset-checkpoint") == {("t", 0): 1}


async def test_retention_passes_over_a_log_without_a_descriptor() -> None:
    rig = Rig(retention_ms="1000")
    partition = await rig.partition()
    rig.append(partition)
    rig.clock.now += 2000
    shortage = Fault("open", ".index", error=errno.EMFILE, from_then_on=True)
    rig.replicas.files.faults.append(shortage)
    await rig.tasks.retain()
    assert (partition.log.log_start_offset, rig.replicas.failures) == (0, [])
    rig.replicas.files.faults.clear()
    await rig.tasks.retain()
    assert partition.log.log_start_offset == 1


class Intervals(PeriodicTasks):
    """A recorder of intervals that runs no task."""

    def __init__(self) -> None:
        super().__init__()
        self.interval_ms: dict[str, int] = {}

    def every(
        self,
        name: str,
        interval_ms: Callable[[], int],
        task: Callable[[], Awaitable[None]],  # noqa: ARG002
    ) -> None:
        self.interval_ms[name] = interval_ms()


async def test_flush_ms_needs_no_second_key() -> None:
    rounds = Intervals()
    for scheduler, expected in ((None, 1000), ("100", 100), ("60000", 1000)):
        keys = {} if scheduler is None else {"log.flush.scheduler.interval.ms": scheduler}
        Rig(keys).tasks.schedule(rounds)
        assert rounds.interval_ms["flush by time"] == expected


async def test_idle_producers_expire() -> None:
    rig = Rig({"producer.id.expiration.ms": "1000"})
    partition = await rig.partition()
    records = [Record(0, rig.clock.now, b"k", b"v", ())]
    batch = build_batch(records, producer_id=7, producer_epoch=0, base_sequence=0)
    partition.append(batch, now_ms=rig.clock.now)
    assert len(partition.log.producers) == 1
    rig.clock.now += 1001
    await rig.tasks.expire_producers()
    assert len(partition.log.producers) == 0


async def test_snapshot_of_a_moved_replica_is_flushed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "AT_ONCE", 0)
    rig = Rig(flush_messages="1")
    partition = await rig.partition()
    records = [Record(0, rig.clock.now, b"k", b"v", ())]
    batch = build_batch(records, producer_id=7, producer_epoch=0, base_sequence=0)
    partition.append(batch, now_ms=rig.clock.now)
    await turns()
    log = partition.log
    log.take_over(log)
    assert log.snapshots.waiting
    await rig.tasks.flush_rolled()
    await turns()
    assert not log.snapshots.waiting
    assert rig.replicas.files.exists(f"{log.directory}/{1:020d}.snapshot")


async def test_compaction_keeps_last_values_without_the_periodic_checkpoint() -> None:
    rig = Rig(cleanup_policy="compact", min_cleanable_dirty_ratio="0.01", flush_messages="1")
    partition = await rig.partition()
    for number in range(20):
        rig.append(partition, key=b"%d" % (number % 2))
    await turns()
    partition.log.roll(now_ms=rig.clock.now)
    rig.append(partition, key=b"in the active segment")
    await turns()
    before = partition.log.size
    await rig.cleaner.clean()
    assert partition.log.size < before / 5
    assert partition.log.log_end_offset == 21


async def test_compaction_flushes_a_segment_that_was_just_closed() -> None:
    """The flush of rolled segments may be seconds away, and the next run of this task too."""
    rig = Rig(cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
    partition = await rig.partition()
    for number in range(20):
        rig.append(partition, key=b"%d" % (number % 2))
    partition.log.roll(now_ms=rig.clock.now)
    rig.append(partition, key=b"in the active segment")
    before = partition.log.size
    await rig.cleaner.clean()
    assert partition.log.size < before / 5
    flushed = partition.log.flushed_offset
    rig.append(partition, key=b"another one")
    await rig.cleaner.clean()
    assert partition.log.flushed_offset == flushed, "nothing more to compact"


async def test_compaction_does_not_wait_for_a_flush_that_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(maintenance, "FLUSH_WAIT_S", 0.01)
    rig = Rig(cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
    partition = await rig.partition()
    rig.append(partition)
    partition.log.roll(now_ms=rig.clock.now)
    rig.append(partition)
    monkeypatch.setattr(Partition, "flush_soon", lambda _: None)
    await rig.cleaner.clean()
    assert partition.log.flushed_offset == 0
    monkeypatch.undo()
    await rig.cleaner.clean()
    assert partition.log.flushed_offset == 2


class WatchedFiles(MemFiles):
    """A recorder of the disk operations of the event loop's thread."""

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


async def test_loop_never_waits_for_the_disk_during_swap_and_drop() -> None:
    files, offload = WatchedFiles(), ThreadOffload()
    rig = Rig(files=files, offload=offload, cleanup_policy="compact,delete", flush_messages="1")
    partition = await rig.partition()
    # The cleaner's checkpoint is read once, at the first check.
    await rig.cleaner.clean()
    for number in range(20):
        rig.append(partition, key=b"%d" % (number % 2))
        partition.log.roll(now_ms=rig.clock.now)
    await turns()
    await rig.tasks.checkpoint()
    before = len(partition.log.segments)
    files.loop_thread = threading.get_ident()
    await rig.cleaner.clean()
    assert "rename" in files.elsewhere
    assert len(partition.log.segments) < before
    files.elsewhere.clear()
    partition.log.delete_records_before(19)
    await rig.tasks.retain()
    assert "rename" in files.elsewhere
    assert partition.log.log_start_offset == 19
    # The existence of an index of aborted transactions is checked when a job is made; the kernel
    # answers from memory.
    assert set(files.on_loop) <= {"exists"}
    offload.close()


async def test_failed_task_runs_again_until_stopped() -> None:
    rounds, runs = PeriodicTasks(), []

    async def task() -> None:
        runs.append(None)
        raise ValueError("a bug")

    rounds.every("failing", lambda: 1, task)
    async with asyncio.timeout(5):
        while len(runs) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    await rounds.stop()
    count = len(runs)
    await asyncio.sleep(0.01)
    assert len(runs) == count


async def test_certificate_is_warned_of_daily_from_thirty_days_before_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert timedelta(days=1).total_seconds() * 1000 == maintenance.EXPIRY_MS
    monkeypatch.setattr(maintenance, "EXPIRY_MS", 1)
    stores, clock, tasks = Stores(tmp_path), SteppedClock(), PeriodicTasks()
    issued = stores.authority.issue(days=365)
    keys = {"listeners": "SSL://localhost:0", "security.inter.broker.protocol": "SSL"}
    config = BrokerConfig.from_properties(keys | stores.identity(issued))
    own = Certificates("SSL", config.tls_of("SSL"), server_tls, InlineOffload())
    looks = 0

    def warn_of_expiry(now_ms: int) -> None:
        nonlocal looks
        Certificates.warn_of_expiry(own, now_ms)
        looks += 1

    async def looked_at(days_before_end: float) -> str:
        """Return the log of the next look."""
        end = issued.certificate.not_valid_after_utc - timedelta(days=days_before_end)
        clock.now = int(end.timestamp() * 1000)
        before = looks
        caplog.clear()
        await eventually(lambda: looks > before + 1)
        return caplog.text

    monkeypatch.setattr(own, "warn_of_expiry", warn_of_expiry)
    CertificateTasks([own], clock, lambda: config).schedule(tasks)
    assert await looked_at(30.5) == ""
    assert "certificate expires soon" in await looked_at(29.5)
    assert "certificate has expired" in await looked_at(-0.5)
    await tasks.stop()
