"""The simulation of three brokers finds known faults of other brokers."""

import gc
from collections.abc import Iterator

import pytest

from tests.simulation.cluster.stories import (
    HearsAnOldControllerLate,
    InTheMinority,
    LosesPowerAfterAFailedFsync,
    MembersComeAndGo,
    RestartsWhileTheStoreIsAway,
    SessionsExpireInAQuietCluster,
)
from tests.simulation.cluster.world import World, history
from tests.support.cluster_mutants import MUTANTS

_TRIES = 80
"""Histories that may pass before one shows the fault; any change of the random draws changes
them."""
FOUND = {
    "believes_a_lost_answer": (World, 14),
    "believes_the_cache": (LosesPowerAfterAFailedFsync, 4),
    "counts_who_diverges": (World, 18),
    "cuts_to_its_high_watermark": (World, 294),
    "followers_forget_producers": (World, 11),
    "forgets_sessions": (MembersComeAndGo, 5),
    "forgets_quiet_followers": (SessionsExpireInAQuietCluster, 81),
    "goes_home_in_the_same_epoch": (World, 2),
    "never_cuts": (World, 7),
    "obeys_anybody": (HearsAnOldControllerLate, 0),
    "refuses_when_deposed": (InTheMinority, 19),
    "shares_what_is_not_given_up": (MembersComeAndGo, 0),
    "trusts_what_lost_power": (RestartsWhileTheStoreIsAway, 2),
}
"""The kind of history, and the seed from which a history with the fault is searched."""


def test_every_mutant_is_hunted() -> None:
    assert FOUND.keys() == MUTANTS.keys()


@pytest.fixture
def garbage_of_broken_histories() -> Iterator[None]:
    """Let the tasks of a history that broke off be collected here, not in another test."""
    yield
    gc.collect()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.usefixtures("garbage_of_broken_histories")
@pytest.mark.parametrize("name", FOUND)
def test_simulation_finds_a_known_fault_of_other_brokers(name: str) -> None:
    kind, first = FOUND[name]
    for seed in range(first, first + _TRIES):
        try:
            with MUTANTS[name]():
                history(seed, kind)
        except Exception:
            # An invariant was violated, or a client got a response that it does not understand.
            return
    pytest.fail(f"no history of {_TRIES} shows {name}")
