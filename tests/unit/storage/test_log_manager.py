"""Log directories: locks, identity, choice, checkpoints, deletion, failure."""

import errno
from pathlib import Path

import pytest

from barnabas.protocol.errors import KafkaError
from barnabas.protocol.types import uuid_text
from barnabas.storage.files.checkpoints import read_offsets
from barnabas.storage.files.errors import LogDirFailed, OutOfDescriptors
from barnabas.storage.files.files import OsFiles, write_atomic
from barnabas.storage.log.truncation import truncate
from barnabas.storage.opening.log_manager import LogManager
from barnabas.storage.opening.meta_properties import MetaPropertiesError, read_meta
from barnabas.storage.producers import snapshot
from tests.support.mem_files import Fault, MemFiles
from tests.unit.storage.log_bench import NOW, SMALL, offsets, put, retain
from tests.unit.storage.log_directories import TOPIC_ID, Now, create, make


def checkpoint(manager: LogManager) -> None:
    for job in map(manager.begin_checkpoint, manager.online_dirs):
        job.run()
        manager.finish_checkpoint(job)


def test_logs_are_opened_again_after_a_clean_shutdown(tmp_path: Path) -> None:
    paths = str(tmp_path / "deep" / "a"), str(tmp_path / "b")
    manager = make(OsFiles(), *paths)
    for topic in ("x", "y.z_1-2"):
        log = create(manager, topic, 3)
        for _ in range(20):
            put(log, b"v" * 60)
    log.delete_records_before(4)
    manager.close()
    again = make(OsFiles(), *paths)
    assert (again.last_run.clean, again.last_run.same_boot) == (True, True)
    assert sorted((log.topic, log.partition) for log in again.logs) == [("x", 3), ("y.z_1-2", 3)]
    log = again.get("y.z_1-2", 3)
    assert log is not None
    assert (log.topic_id, log.log_start_offset, log.high_watermark) == (TOPIC_ID, 4, 20)
    assert offsets(log) == list(range(4, 20))
    again.close()


def test_directory_of_another_broker_is_refused() -> None:
    files = MemFiles()
    manager = make(files)
    ids = [log_dir.directory_id for log_dir in manager.dirs]
    assert len(set(ids)) == 2
    text = files.read_bytes("/data/a/meta.properties").decode()
    assert text.splitlines() == [
        "version=1",
        "broker.id=1",
        "cluster.id=cluster-1",
        f"directory.id={uuid_text(ids[0])}",
    ]
    manager.close()
    assert [d.directory_id for d in make(files).dirs] == ids
    files.kill()
    with pytest.raises(MetaPropertiesError, match="belongs to broker 1"):
        make(files, broker_id=2)
    meta = read_meta(files, "/data/a")
    assert meta is not None
    assert meta.cluster_id == "cluster-1"


@pytest.mark.parametrize("version", ["", "version=0\n", "version=1\n"])
@pytest.mark.parametrize("key", ["broker.id", "node.id"])
def test_identity_is_read_as_each_release_of_kafka_writes_it(version: str, key: str) -> None:
    files = MemFiles()
    make(files).close()
    path = "/data/a/meta.properties"
    mine = read_meta(files, "/data/a")
    text = files.read_bytes(path).decode().replace("version=1\n", version)
    write_atomic(files, path, text.replace("broker.id", key).encode())
    assert read_meta(files, "/data/a") == mine
    write_atomic(files, path, f"{version}{key}=1\n".encode())
    with pytest.raises(MetaPropertiesError, match=r"is damaged: it has no cluster\.id"):
        read_meta(files, "/data/a")


def test_directory_is_locked_by_one_broker() -> None:
    files = MemFiles()
    first = make(files)
    with pytest.raises(BlockingIOError):
        make(files, "/data/c", "/data/b")
    first.close()
    make(files, "/data/c", "/data/b")


def test_new_log_goes_to_the_directory_with_fewest_logs() -> None:
    manager = make(MemFiles())
    placed = [create(manager, "t", partition).log_dir.path for partition in range(4)]
    assert placed == ["/data/a", "/data/b", "/data/a", "/data/b"]
    assert create(manager, "t", 0) is manager.get("t", 0)
    manager.delete("t", 0)
    assert create(manager, "t", 9).log_dir.path == "/data/a"


def test_log_in_the_only_directory_is_made_without_a_look_at_all_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A topic of 10,000 partitions took as long as 50,000,000 looks."""
    manager = make(MemFiles(), "/data/a")
    monkeypatch.setattr(LogManager, "logs", property(lambda _: pytest.fail("a look at all logs")))
    assert create(manager, "t", 0).log_dir.path == "/data/a"


def test_partition_metadata_has_kafkas_format() -> None:
    files = MemFiles()
    log = create(make(files), "t")
    text = files.read_bytes(f"{log.directory}/partition.metadata").decode()
    assert text == f"version: 0\ntopic_id: {uuid_text(TOPIC_ID)}\n"


def test_a_deleted_log_is_renamed_and_removed_later() -> None:
    files, now = MemFiles(), Now()
    manager = make(files, now=now)
    put(create(manager, "t"), b"v")
    manager.delete("t", 0)
    assert manager.get("t", 0) is None
    (name,) = [n for n in files.listdir("/data/a") if n.startswith("t-0.")]
    assert name.endswith("-delete")
    assert manager.due_removals() == []
    now.ms += SMALL.file_delete_delay_ms
    manager.remove(manager.due_removals())
    assert name not in files.listdir("/data/a")
    manager.delete("t", 0)


def test_producers_of_a_deleted_or_truncated_log_are_freed_one_by_one_on_its_thread() -> None:
    manager = make(MemFiles())
    log = create(manager, "t")
    for producer_id in range(3):
        put(log, b"v", base_sequence=0, producer_id=producer_id, producer_epoch=0)
    replaced, work = log.producers, truncate(log, 2, now_ms=NOW)
    work.complete()
    assert (len(replaced), len(log.producers)) == (0, 2)
    manager.delete("t", 0)
    assert len(log.producers) == 0


def test_flush_of_a_deleted_log_writes_no_snapshot_into_the_next_log_of_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(snapshot, "AT_ONCE", 0)
    files = MemFiles()
    manager = make(files)
    log = create(manager, "t")
    put(log, b"v", base_sequence=0, producer_id=1, producer_epoch=0)
    log.roll(now_ms=Now.ms)
    job = log.begin_flush()
    manager.delete("t", 0)
    manager.preferred["t", 0] = log.log_dir
    new = create(manager, "t")
    assert new.directory == log.directory
    job.run()
    log.finish_flush(job)
    assert job.error is None
    names = files.listdir(new.directory)
    assert not [name for name in names if name.endswith((".snapshot", ".window"))]


def test_log_deleted_before_a_crash_is_removed_at_the_start() -> None:
    files = MemFiles()
    manager = make(files)
    put(create(manager, "t" * 249), b"v")
    manager.delete("t" * 249, 0)
    assert all(len(name) <= 255 for name in files.listdir("/data/a"))
    files.kill()
    again = make(files)
    assert again.logs == []
    assert not [n for n in files.listdir("/data/a") if n.endswith("-delete")]


def test_checkpoint_that_has_not_changed_is_not_written_again() -> None:
    files = MemFiles()
    manager = make(files, "/data")
    log = create(manager, "t")
    put(log, b"v")
    log.flush()
    checkpoint(manager)
    files.faults.append(Fault("open", ".tmp"))
    checkpoint(manager)
    assert not files.faults[0].hits
    manager.close()
    manager = make(files, "/data")
    again = Fault("open", "-checkpoint.tmp")
    files.faults[:] = [again]
    checkpoint(manager)
    assert not again.hits
    put(manager.logs[0], b"v")
    with pytest.raises(LogDirFailed):
        checkpoint(manager)


def test_checkpoint_is_written_after_a_failure_in_the_middle_although_its_offsets_are_back() -> (
    None
):
    files = MemFiles()
    manager = make(files, "/data")
    log = create(manager, "t")
    put(log, b"a")
    log.flush()
    checkpoint(manager)
    put(log, b"b")
    log.flush()
    name = "/data/recovery-point-offset-checkpoint"
    # The new content gets its name, and the call fails nevertheless.
    files.faults.append(Fault("sync_dir", "/data", error=errno.EMFILE))
    with pytest.raises(OutOfDescriptors):
        checkpoint(manager)
    assert read_offsets(files, name) == {("t", 0): 2}
    truncate(log, 1, now_ms=NOW).complete()
    log.flush()
    checkpoint(manager)
    assert read_offsets(files, name) == {("t", 0): 1}


def test_a_stray_log_is_set_aside_and_kept() -> None:
    files = MemFiles()
    manager = make(files)
    put(create(manager, "t"), b"v")
    manager.set_stray("t", 0)
    manager.close()
    assert make(files).logs == []
    assert [n for n in files.listdir("/data/a") if n.endswith("-stray")]


def test_files_of_dropped_segments_are_removed_after_their_delay() -> None:
    files, now = MemFiles(), Now()
    manager = make(files, now=now)
    log = create(manager, "t")
    for _ in range(30):
        put(log, b"v" * 60)
    log.delete_records_before(25)
    retain(log, now.ms)
    assert manager.due_removals() == []
    now.ms += SMALL.file_delete_delay_ms
    due = manager.due_removals()
    assert due
    manager.remove(due)
    assert not [n for n in files.listdir(log.directory) if n.endswith(".deleted")]
    manager.remove(due)


def test_checkpoints_have_kafkas_format_and_are_read_back() -> None:
    files = MemFiles()
    manager = make(files, "/data/a")
    log = create(manager, "t")
    for _ in range(30):
        put(log, b"v" * 60)
    log.flush()
    log.delete_records_before(3)
    put(log, b"not flushed")
    checkpoint(manager)
    assert log.recovery_point == 30
    for name, offset in (
        ("recovery-point-offset-checkpoint", 30),
        ("log-start-offset-checkpoint", 3),
        ("replication-offset-checkpoint", 31),
    ):
        assert files.read_bytes(f"/data/a/{name}").decode() == f"0\n1\nt 0 {offset}\n"
    files.kill()
    log = make(files, "/data/a").logs[0]
    assert (log.recovery_point, log.log_start_offset, log.high_watermark) == (30, 3, 31)


def test_pending_checkpoint_does_not_undo_a_truncation() -> None:
    files = MemFiles()
    manager = make(files, "/data/a")
    log = create(manager, "t")
    for _ in range(30):
        put(log, b"v" * 60)
    log.flush()
    checkpoint(manager)
    job = manager.begin_checkpoint(manager.dirs[0])
    truncate(log, 8, now_ms=0).complete()
    job.run()
    manager.finish_checkpoint(job)
    assert log.recovery_point == 8
    assert b"t 0 8" in files.read_bytes("/data/a/recovery-point-offset-checkpoint")


def test_checkpoints_of_a_deleted_log_do_not_apply_to_a_new_one_of_its_name() -> None:
    files = MemFiles()
    manager = make(files, "/data/a")
    log = create(manager, "t")
    for _ in range(30):
        put(log, b"v" * 60)
    log.flush()
    log.delete_records_before(20)
    checkpoint(manager)
    manager.delete("t", 0)
    put(create(manager, "t"), b"new")
    files.kill()
    (log,) = make(files, "/data/a").logs
    assert (log.log_start_offset, log.log_end_offset) == (0, 1)


@pytest.mark.parametrize("name", ["recovery-point", "log-start", "replication"])
def test_damaged_checkpoint_loses_no_records(name: str) -> None:
    files = MemFiles()
    manager = make(files, "/data/a")
    for _ in range(30):
        put(create(manager, "t"), b"v" * 60)
    checkpoint(manager)
    files.open(f"/data/a/{name}-offset-checkpoint").truncate(5)
    files.kill()
    (log,) = make(files, "/data/a").logs
    log.advance_high_watermark(30)
    assert offsets(log) == list(range(30))


def test_directory_with_a_failing_disk_goes_offline_and_the_others_stay() -> None:
    files, failures = MemFiles(), []
    manager = make(files, failures=failures)
    broken, whole = create(manager, "t", 0), create(manager, "t", 1)
    files.faults.append(Fault("append", ".log"))
    for _ in range(2):
        with pytest.raises(LogDirFailed):
            put(broken, b"v")
    assert [failure.log_dir for failure in failures] == ["/data/a"]
    assert manager.get("t", 0) is broken
    put(whole, b"v")
    checkpoint(manager)
    assert create(manager, "u", 0).log_dir.path == "/data/b"
    with pytest.raises(KafkaError, match="offline"):
        create(manager, "u", 1, is_new=False)
    manager.close()
    assert not files.exists("/data/a/.kafka_cleanshutdown")
    assert files.exists("/data/b/.kafka_cleanshutdown")
    again = make(files)
    assert not again.last_run.clean
    assert not files.exists("/data/a/.fsync_failed")


def test_a_directory_that_fails_at_the_start_is_offline() -> None:
    files = MemFiles()
    make(files).close()
    files.faults.append(Fault("open", "/data/a/.lock"))
    failures: list[LogDirFailed] = []
    manager = make(files, failures=failures)
    assert [d.path for d in manager.online_dirs] == ["/data/b"]
    assert len(failures) == 1
    manager.close()
    files.faults.append(Fault("open", ".lock", from_then_on=True))
    with pytest.raises(LogDirFailed, match="no log directory"):
        make(files)


def test_two_logs_of_different_topic_ids_are_refused() -> None:
    files = MemFiles()
    manager = make(files)
    create(manager, "t")
    manager.close()
    files.make_dir("/data/b/t-0")
    with pytest.raises(MetaPropertiesError, match="t-0"):
        make(files)
