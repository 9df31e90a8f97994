"""Three whole brokers through faults that a seed draws; what was promised then holds.

Thousands by hand: BARNABAS_CLUSTER_HISTORIES=5000 pytest -n 2 tests/simulation/test_cluster.py
"""

import os
import re

import pytest

from tests.simulation.cluster.stories import RestartsWhileTheStoreIsAway
from tests.simulation.cluster.world import history

SEEDS = int(os.environ.get("BARNABAS_CLUSTER_HISTORIES", "16"))
FIRST = int(os.environ.get("BARNABAS_CLUSTER_FIRST", "0"))
_BLOCKS = 4


@pytest.mark.timeout(36_000)
@pytest.mark.parametrize("block", range(_BLOCKS))
def test_any_history_of_three_brokers_keeps_its_promises(block: int) -> None:
    for seed in range(FIRST + block, FIRST + SEEDS, _BLOCKS):
        try:
            world = history(seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        assert world.faults
        assert world.workload.told.acknowledged, seed


def test_no_disk_had_failed_and_no_clock_been_wrong_in_any_history() -> None:
    faults = [each for seed in (6, 33) for each in history(seed).faults]
    for kind in ("disk n. (append|sync) /data", "clock n. [+-]"):
        assert any(re.match(kind, each) for each in faults), (kind, faults)


def test_one_seed_is_one_history_of_three_brokers() -> None:
    first, second = (history(7, faulty_for=4.0).loop.trace for _ in range(2))
    assert first == second
    assert first != history(8, faulty_for=4.0).loop.trace


@pytest.mark.parametrize("seed", range(4))
def test_a_start_that_the_store_refused_hid_that_the_machine_had_lost_power(seed: int) -> None:
    """It closed its logs cleanly, was taken at its word by the next, and led with an empty log."""
    history(seed, RestartsWhileTheStoreIsAway)
