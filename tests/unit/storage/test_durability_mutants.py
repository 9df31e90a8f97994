"""The crash test fails if any one call for durability is removed from the code.

Every caller of `sync`, `sync_dir` and `truncate` is either in CAUGHT, and a crash shows that it is
needed, or in HARMLESS, with the reason why the promises hold without it.
"""

import pytest

from barnabas.storage.producers import snapshot
from tests.unit.storage.crash_rig import Rig, WatchedFiles

STEPS = 60

CAUGHT = {
    "sync in FlushJob.run": 0,
    "sync in UnsyncedFile.sync": 0,
    "sync in _Loader._write_again": 3,
    "sync in _truncate.<locals>.cut": 0,
    "sync in write_meta": 0,
    "sync_dir in FlushJob.run": 0,
    "sync_dir in take_marks": 0,
    "sync_dir in _start_again.<locals>.begin": 0,
    "truncate in Segment.cut": 0,
    "truncate in SparseIndex._keep": 0,
    "truncate in scan": 0,
}
"""The callers that are needed, with a seed from which on a history shows it soon."""

HARMLESS = {
    "sync in LogDir.write_checkpoints": "a torn checkpoint counts as none: more is scanned",
    "sync in _write_directory_ids": "no directory is removed here; test_closing_logs.py does it",
    "sync in mark_boot": "a torn boot id counts as a reboot",
    "sync in mark_closed": "a torn mark of a clean shutdown is still one",
    "sync in PendingSnapshot.sync": "a torn snapshot is replaced by an older one and the batches",
    "sync in write_epochs": "epochs that contradict the batches are rebuilt",
    "sync_dir in LogDir.write_checkpoints": "the truncation that lowers it syncs later",
    "sync_dir in _write_directory_ids": "mark_boot syncs the same names",
    "sync_dir in mark_boot": "an earlier boot's id counts as a reboot as well",
    "sync_dir in mark_closed": "without the mark the logs are scanned",
    "sync_dir in Snapshots.remove_from": "a flush after a truncation syncs the names again",
    "sync_dir in _Loader._remove": "the same; test_recovery.py has both",
    "sync_dir in _truncate.<locals>.cut": "snapshots are removed with segments, which is synced",
    "sync_dir in make_dirs": "a journal has a directory before its content",
    "sync_dir in write_epochs": "a later checkpoint syncs it: a journal is in order",
    "sync_dir in write_meta": "the same",
    "truncate in LogDir.write_checkpoints": "there only if a crash left a file; see test_files.py",
    "truncate in _write_directory_ids": "the same",
    "truncate in mark_boot": "the same",
    "truncate in mark_closed": "the same",
    "truncate in write_epochs": "the same",
    "truncate in write_meta": "the same",
    "truncate in _fill": "an offset has one snapshot, with the same content",
}


def test_every_sync_and_truncate_call_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    sites: set[str] = set()
    for seed in range(60):
        files = WatchedFiles()
        monkeypatch.setattr(snapshot, "AT_ONCE", seed % 4)
        Rig(seed, files, faulty=bool(seed % 2)).run(STEPS)
        sites |= files.sites
    assert sites == CAUGHT.keys() | HARMLESS.keys()


@pytest.mark.parametrize("site", CAUGHT)
def test_crash_test_fails_without_the_call(site: str) -> None:
    for seed in range(CAUGHT[site], CAUGHT[site] + 50):
        for faulty in (False, True):
            try:
                Rig(seed, WatchedFiles(ignored=site), faulty=faulty).run(STEPS)
            except Exception:
                # Any failure counts: a broken promise, a damaged file, a failed start.
                return
    pytest.fail(f"no crash shows that {site} is needed")
