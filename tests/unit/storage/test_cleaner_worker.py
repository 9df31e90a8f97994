"""The worker process: its results equal inline compaction, and its death only costs a retry."""

import io
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.protocol.records.record import Record, build_batch
from barnabas.storage.cleaning.cleaner_worker import CleanerProcess, Throttle, _encode_job, serve
from barnabas.storage.cleaning.compaction import compact
from barnabas.storage.cleaning.compaction_job import (
    CompactionFailed,
    CompactionJob,
    CompactionResult,
)
from barnabas.storage.files.files import OsFiles


def job(directory: Path, segments: int = 2, rate: float = 1e18) -> CompactionJob:
    """Write a log of `segments` segments of one record each, all with the same key; return its
    job."""
    for base in range(segments):
        batch = build_batch([Record(base, 1000, b"key", b"x" * 1000)])
        (directory / f"{base:020d}.log").write_bytes(batch)
    return CompactionJob(
        directory=str(directory),
        segments=tuple((base, len(batch)) for base in range(segments)),
        first_dirty_offset=0,
        end_offset=segments,
        now_ms=2000,
        delete_retention_ms=0,
        segment_bytes=len(batch),
        index_bytes=1000,
        index_interval=4096,
        max_message_bytes=1 << 20,
        max_keys=10,
        bytes_per_second=rate,
        producers={7: 1},
    )


@pytest.fixture
def worker() -> Iterator[CleanerProcess]:
    worker = CleanerProcess()
    yield worker
    worker.stop()


def cleaned(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.glob("*.cleaned")}


def process_id(worker: CleanerProcess) -> int:
    assert worker._process is not None
    return worker._process.pid


def test_worker_process_has_the_same_results_as_inline_compaction(
    worker: CleanerProcess, tmp_path: Path
) -> None:
    work = job(tmp_path)
    here = list(compact(OsFiles(), work))
    files = cleaned(tmp_path)
    assert list(worker.clean(work)) == here
    assert cleaned(tmp_path) == files


def test_one_worker_process_runs_several_jobs(worker: CleanerProcess, tmp_path: Path) -> None:
    list(worker.clean(job(tmp_path)))
    first = process_id(worker)
    list(worker.clean(job(tmp_path)))
    assert process_id(worker) == first


def test_worker_process_runs_at_low_priority(worker: CleanerProcess, tmp_path: Path) -> None:
    list(worker.clean(job(tmp_path)))
    assert os.getpriority(os.PRIO_PROCESS, process_id(worker)) == 19
    assert os.sched_getscheduler(process_id(worker)) == os.SCHED_BATCH
    autogroup = Path(f"/proc/{process_id(worker)}/autogroup")
    if autogroup.exists():
        assert autogroup.read_text().endswith("nice 19\n")
        assert autogroup.read_text() != Path("/proc/self/autogroup").read_text()


def test_job_can_be_repeated_after_its_worker_is_killed(
    worker: CleanerProcess, tmp_path: Path
) -> None:
    # So slow that the job cannot be finished by then.
    results = worker.clean(job(tmp_path, segments=5, rate=20_000))
    next(results)
    os.kill(process_id(worker), signal.SIGKILL)
    with pytest.raises(CompactionFailed) as caught:
        list(results)
    assert not caught.value.damaged
    assert isinstance(list(worker.clean(job(tmp_path)))[-1], CompactionResult)


def test_job_can_be_repeated_after_the_worker_died_between_jobs(
    worker: CleanerProcess, tmp_path: Path
) -> None:
    list(worker.clean(job(tmp_path)))
    os.kill(process_id(worker), signal.SIGKILL)
    with pytest.raises(CompactionFailed):
        list(worker.clean(job(tmp_path)))
    assert isinstance(list(worker.clean(job(tmp_path)))[-1], CompactionResult)


def test_stopping_ends_a_job_that_another_thread_waits_for(
    worker: CleanerProcess, tmp_path: Path
) -> None:
    failed = threading.Event()

    def wait() -> None:
        try:
            list(worker.clean(job(tmp_path, segments=50, rate=100)))
        except CompactionFailed:
            failed.set()

    started = threading.Thread(target=wait)
    started.start()
    while worker._process is None:
        assert started.is_alive()
    worker.stop()
    started.join(timeout=10)
    assert failed.is_set()


def test_closing_the_results_ends_the_job(worker: CleanerProcess, tmp_path: Path) -> None:
    results = worker.clean(job(tmp_path, segments=3))
    next(results)
    results.close()
    assert worker._process is None


def test_damage_is_reported_and_the_next_job_is_not_affected(
    worker: CleanerProcess, tmp_path: Path
) -> None:
    work = job(tmp_path)
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(b"?" * len(path.read_bytes()))
    with pytest.raises(CompactionFailed) as caught:
        list(worker.clean(work))
    assert caught.value.damaged
    assert isinstance(list(worker.clean(job(tmp_path)))[-1], CompactionResult)


def test_worker_exits_when_its_broker_is_gone(tmp_path: Path) -> None:
    parents = iter([100, 100, 1])
    with pytest.raises(SystemExit):
        serve(
            io.StringIO(_encode_job(job(tmp_path))),
            io.StringIO(),
            OsFiles(),
            lambda: next(parents),
        )


def test_throttle_keeps_its_rate() -> None:
    now = [0.0]
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    throttle = Throttle(100, lambda: now[0], sleep)
    throttle(50)
    throttle(100)
    assert slept == [0.5, 1.0]
    now[0] += 10
    throttle(10)
    assert slept[2:] == [pytest.approx(0.1)]
