"""The simulation of three brokers is tested itself: it finds faults that others have had."""

import pytest

from tests.simulation.cluster.mutants import MUTANTS
from tests.simulation.cluster.stories import (
    HearsAnOldControllerLate,
    InTheMinority,
    LosesPowerAfterAFailedFsync,
    RestartsWhileTheStoreIsAway,
)
from tests.simulation.cluster.world import World, history

_TRIES = 80
"""Histories that may go well before one shows the fault; another draw is another history."""
FOUND = {
    "believes_the_cache": (LosesPowerAfterAFailedFsync, 4),
    "counts_who_diverges": (World, 18),
    "cuts_to_its_high_watermark": (World, 18),
    "followers_forget_producers": (World, 0),
    "goes_home_in_the_same_epoch": (World, 2),
    "never_cuts": (World, 0),
    "obeys_anybody": (HearsAnOldControllerLate, 0),
    "refuses_when_deposed": (InTheMinority, 6),
    "trusts_what_lost_power": (RestartsWhileTheStoreIsAway, 0),
}
"""The kind of history, and the seed from which on one is near."""


def test_every_mutant_is_hunted() -> None:
    assert FOUND.keys() == MUTANTS.keys()


@pytest.mark.parametrize("name", FOUND)
def test_a_fault_that_others_have_had_is_found(name: str) -> None:
    kind, first = FOUND[name]
    for seed in range(first, first + _TRIES):
        try:
            with MUTANTS[name]():
                history(seed, kind)
        except Exception:
            # A promise that is broken, or a client that has understood nothing any more.
            return
    pytest.fail(f"nobody misses {name}")
