"""The checker finds faults of brokers, and nothing in correct ones.

Every run of the tests tries a few; `BARNABAS_MUTANTS=all pytest tests/integration/mutation` tries
all, and `python -m tests.integration.mutation.scoreboard` prints the score.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.adversary.mutants import MUTANTS
from tests.integration.mutation.hunt import HUNTS, RUNS, TORN_APART, Hunt, hunt
from tests.support.brokers.process import ROOT

QUICK = (
    "aborted_records_compact",
    "forgetful_coordinator",
    "forgotten_sequences",
    "hasty_metadata",
    "late_offsets",
    "reused_buffer",
    "short_aborted_index",
    "unguarded_connections",
)
EXPECTED = {
    "aborted_records_compact": {"lost-write", "torn", "unseen"},
    "endless_epochs": {"unjust-refusal"},
    "expired_offsets": {"offset-regression", "processed-twice", "stale-offset"},
    "forgetful_coordinator": TORN_APART,
    "forgotten_sequences": {"unjust-refusal"},
    "hasty_coordinator": {"offset-regression", "stale-offset", "unjust-refusal"},
    "hasty_metadata": {"denied-topic"},
    "inclusive_last_stable_offset": {"G1a", "precommitted-read"},
    "late_offsets": {"processed-twice", "stale-offset"},
    "marker_refused_again": TORN_APART,
    "offsets_of_aborted": {"G1a"},
    "reused_buffer": {"duplicate", "inconsistent-offsets", "unjust-refusal", "unknown-value"},
    "revived_ids": {"unjust-refusal", "zombie"},
    "short_aborted_index": {"G1a"},
    "short_memory": {"unjust-refusal"},
    "skipped_marker": TORN_APART,
    "spent_epochs": {"unjust-refusal"},
    "unfenced": {"zombie", *TORN_APART},
    "unguarded_connections": TORN_APART,
    "unverified": TORN_APART,
    "window_of_one": {"unjust-refusal"},
}
"""Anomalies of which at least one must be named, by mutant."""


def test_every_mutant_is_hunted() -> None:
    assert set(HUNTS) == set(EXPECTED) == {*MUTANTS, "unguarded_connections"}


@pytest.mark.parametrize("mutants", ["mutants.MUTANTS", "cluster_mutants.CLUSTER_MUTANTS"])
def test_every_mutant_finds_what_it_breaks(mutants: str) -> None:
    """The function that one of them replaced had another name for days."""
    module, name = mutants.split(".")
    program = f"""
from tests.integration.adversary.{module} import {name}
for each in {name}.values():
    each()
"""
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "name", sorted(HUNTS) if os.environ.get("BARNABAS_MUTANTS") == "all" else QUICK
)
def test_checker_finds_and_names_the_fault_of_a_broker(name: str, tmp_path: Path) -> None:
    mutant = name if name in MUTANTS else ""
    for seed in range(RUNS):
        result = hunt(HUNTS[name], tmp_path / str(seed), seed, mutant)
        if not result.verdict.is_clean:
            assert result.names & EXPECTED[name], result.verdict.anomalies[:10]
            return
    raise AssertionError(f"{name} was not found in {RUNS} runs")


@pytest.mark.parametrize(
    "how",
    [
        pytest.param(Hunt(deaths=2), id="queue"),
        pytest.param(Hunt(workload="pipeline", deaths=2), id="pipeline"),
        pytest.param(Hunt(protocol="older", delayed_ends=True), id="delayed ends"),
    ],
)
def test_checker_finds_nothing_in_a_correct_broker_that_crashes(how: Hunt, tmp_path: Path) -> None:
    result = hunt(how, tmp_path, 1)
    assert result.verdict.anomalies == []
    assert not result.verdict.is_void
    assert [each for each in result.problems if each.startswith("the end")] == []
