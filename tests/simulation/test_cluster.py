"""Three complete brokers under random faults; all acknowledgements and invariants hold.

Thousands by hand: BARNABAS_CLUSTER_HISTORIES=5000 pytest -n 2 tests/simulation/test_cluster.py
"""

import os
import re
from typing import Any

import pytest

from barnabas.client.group import PROTOCOLS
from tests.simulation.cluster import stage
from tests.simulation.cluster.stories import (
    MembersComeAndGo,
    RestartsWhileTheStoreIsAway,
    SessionsExpireInAQuietCluster,
)
from tests.simulation.cluster.world import history

SEEDS = int(os.environ.get("BARNABAS_CLUSTER_HISTORIES", "16"))
FIRST = int(os.environ.get("BARNABAS_CLUSTER_FIRST", "0"))
_BLOCKS = 4


@pytest.mark.timeout(36_000)
@pytest.mark.parametrize("block", range(_BLOCKS))
def test_history_of_three_brokers_violates_no_invariant(block: int) -> None:
    for seed in range(FIRST + block, FIRST + SEEDS, _BLOCKS):
        try:
            world = history(seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        assert world.faults
        assert world.workload.told.acknowledged, seed


def test_histories_contain_disk_faults_and_wrong_clocks() -> None:
    faults = [each for seed in (6, 33) for each in history(seed).faults]
    for kind in ("disk n. (append|sync) /data", "clock n. [+-]"):
        assert any(re.match(kind, each) for each in faults), (kind, faults)


def test_some_of_the_first_histories_have_no_fast_paths() -> None:
    with_paths = [history(seed, faulty_for=1.0).has_fast_paths for seed in range(4)]
    assert {*with_paths} == {True, False}


def test_history_without_fast_paths_is_the_same_byte_for_byte(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    traces = []
    for share in (0.0, 1.0):
        monkeypatch.setattr(stage, "GENERAL_SHARE", share)
        world = history(7, faulty_for=4.0)
        assert world.has_fast_paths == (not share)
        traces.append(world.loop.trace)
    assert traces[0] == traces[1]


def test_seed_replays_the_same_history_of_three_brokers() -> None:
    first, second = (history(7, faulty_for=4.0).loop.trace for _ in range(2))
    assert first == second
    assert first != history(8, faulty_for=4.0).loop.trace


@pytest.mark.parametrize("seed", range(4))
def test_power_loss_is_known_after_a_start_that_the_store_refused(seed: int) -> None:
    """After a power loss the refused start closed the logs cleanly, so the next one took them for
    complete, and the broker led with an empty log."""
    history(seed, RestartsWhileTheStoreIsAway)


@pytest.mark.parametrize("seed", [4, 37])
def test_quiet_followers_rejoin_every_isr_after_their_sessions_expired(seed: int) -> None:
    """A leader told of the expiry during the first Fetch of the new registration did not count the
    later ones, which name no quiet partition."""
    history(seed, SessionsExpireInAQuietCluster)


@pytest.mark.parametrize("seed", range(4))
def test_members_of_both_protocols_read_everything_through_all_faults(seed: int) -> None:
    world: Any = history(seed, MembersComeAndGo)
    lives = world.members.lives
    ways = {f"{protocol} {end}" for protocol in PROTOCOLS for end in ("left", "abandoned")}
    assert ways <= {*lives}
