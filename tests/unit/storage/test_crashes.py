"""Crashes lose no flushed record and no record of a killed process, and never stop a start.

BARNABAS_CRASH_SEEDS=1000 runs as many histories; each has about ten crashes.
"""

import os
from collections import Counter
from collections.abc import Callable

import pytest

from barnabas.storage.producers import snapshot
from tests.unit.storage.crash_rig import FAULTY_CALLS, Rig, WatchedFiles

SEEDS = int(os.environ.get("BARNABAS_CRASH_SEEDS", "100"))
STEPS = 60


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Return a function that lets flushes write the producer snapshots in a third of the histories,
    and some of them in another third: the rig has two producers."""

    def few(seed: int) -> None:
        monkeypatch.setattr(snapshot, "AT_ONCE", seed % 3)

    return few


def test_seeded_crashes_lose_no_durable_record(few: Callable[[int], None]) -> None:
    counts: Counter[str] = Counter()
    for seed in range(0, 2 * SEEDS, 2):
        few(seed)
        rig = Rig(seed)
        rig.run(STEPS)
        counts.update(rig.counts)
    assert counts["power_loss"] > SEEDS
    assert counts["kill"] > SEEDS
    assert counts["restart"] > SEEDS


def test_seeded_crashes_on_a_failing_disk_lose_no_durable_record(
    few: Callable[[int], None],
) -> None:
    sites: set[str] = set()
    struck: Counter[str] = Counter()
    failed = 0
    for seed in range(1, 2 * SEEDS, 2):
        few(seed)
        files = WatchedFiles()
        rig = Rig(seed, files, faulty=True)
        rig.run(STEPS)
        sites |= files.sites
        failed += rig.counts.get("failed", 0)
        struck.update(rig.struck)
    assert failed > SEEDS // 10
    assert set(struck) >= set(FAULTY_CALLS) - {"make_dir"}
    assert {
        "truncate in scan",
        "truncate in Segment.cut",
        "sync_dir in _Loader._remove",
        "sync_dir in Snapshots.remove_from",
        "sync in PendingSnapshot.sync",
    } <= sites, "a branch of recovery was not reached"


def test_seeded_crashes_of_a_broker_without_descriptors_lose_no_durable_record(
    few: Callable[[int], None],
) -> None:
    counts: Counter[str] = Counter()
    for seed in range(SEEDS):
        few(seed)
        rig = Rig(seed, starving=True)
        rig.run(STEPS)
        counts.update(rig.counts)
    assert counts["starved"] > SEEDS
    assert "failed" not in counts, "a directory went offline"


@pytest.mark.parametrize("seed", [3, 33])
def test_the_same_seed_makes_the_same_history(seed: int) -> None:
    first, second = Rig(seed, faulty=True), Rig(seed, faulty=True)
    first.run(STEPS)
    second.run(STEPS)
    assert first.counts == second.counts
    assert [str(log) for log in first.manager.logs] == [str(log) for log in second.manager.logs]
