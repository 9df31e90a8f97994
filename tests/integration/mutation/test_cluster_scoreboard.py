"""The checker finds faults of clusters, and nothing in correct ones; see `test_scoreboard.py`."""

import os
from pathlib import Path

import pytest

from tests.integration.adversary.cluster_mutants import CLUSTER_MUTANTS
from tests.integration.mutation.cluster_hunt import (
    CLUSTER_HUNTS,
    ClusterHunt,
    hunt_in_cluster,
    kill,
)
from tests.integration.mutation.hunt import RUNS, TORN_APART

QUICK = ("commits_alone", "followers_miss_aborts", "stores_other_bytes")
LOST = {"duplicate", "inconsistent-offsets", "replica-divergence", "watermark-regression"}
LOST |= TORN_APART
"""An acknowledged record is missing, or other records have its offset."""
UNEVEN = {"no-leader", "replica-divergence", "replica-short", "under-replicated"}
EXPECTED = {
    "commits_alone": LOST,
    "counts_the_fastest": LOST | {"int-poll-skip"},
    "counts_who_diverges": LOST | UNEVEN,
    "cuts_to_its_high_watermark": LOST | UNEVEN,
    "elects_anybody": LOST,
    "followers_forget_producers": {"duplicate", "unjust-refusal"},
    "followers_miss_aborts": {"G1a"},
    "followers_remember_one_batch": {"duplicate", "unjust-refusal"},
    "gives_up_markers": TORN_APART,
    "hasty_coordinator": TORN_APART | {"offset-regression", "stale-offset", "processed-twice"},
    "never_cuts": LOST | UNEVEN,
    "never_invites": {"under-replicated"},
    "obeys_anybody": LOST | UNEVEN,
    "shows_too_much": {"shown-uncommitted"} | LOST,
    "shrinks_alone": LOST,
    "stores_other_bytes": {"replica-divergence"},
    "trusts_what_lost_power": LOST | UNEVEN,
}
"""Anomalies of which at least one must be named, by mutant."""


def test_every_mutant_is_hunted() -> None:
    assert set(CLUSTER_HUNTS) == set(EXPECTED) == set(CLUSTER_MUTANTS)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "name", sorted(CLUSTER_HUNTS) if os.environ.get("BARNABAS_MUTANTS") == "all" else QUICK
)
def test_checker_finds_and_names_the_fault_of_a_cluster(name: str, tmp_path: Path) -> None:
    for seed in range(1, RUNS + 1):
        result = hunt_in_cluster(CLUSTER_HUNTS[name], tmp_path / str(seed), seed, name)
        if not result.verdict.is_clean:
            assert result.names & EXPECTED[name], result.verdict.anomalies[:10]
            return
    raise AssertionError(f"{name} was not found in {RUNS} runs")


def test_checker_finds_nothing_in_a_correct_cluster_with_injected_faults(tmp_path: Path) -> None:
    how = ClusterHunt(injections=(kill,), churn=True, duration=5)
    result = hunt_in_cluster(how, tmp_path, 1)
    assert result.verdict.anomalies == []
    assert not result.verdict.is_void
    assert [each for each in result.problems if each.startswith("the end")] == []
