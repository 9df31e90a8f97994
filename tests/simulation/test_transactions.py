"""The pure coordinator among clients, partitions, networks and crashes: seeds, and invariants.

More of them by hand: BARNABAS_HISTORIES=10000 pytest tests/simulation/test_transactions.py
"""

import asyncio
import os
from typing import Any

import pytest

from barnabas.protocol.records.claim import Claim
from barnabas.storage.producer_state import ProducerStateManager
from tests.simulation.transactions.world import World

SEEDS = int(os.environ.get("BARNABAS_HISTORIES", "200"))
CRASHED_SEEDS = max(SEEDS // 30, 6)
"""Each with some 40 crashes."""
BROKEN = r"is torn|was told"


def run(seed: int, **options: Any) -> World:
    """One history; raises AssertionError where a promise is broken."""

    async def whole() -> World:
        return await World(seed, **options).run()

    return asyncio.run(whole())


def crash_everywhere(seed: int) -> int:
    """The history of a seed, ended by a crash after each of its writes in turn; how many."""
    writes = run(seed, faults=False).writes
    for crash_at in range(1, writes + 1):
        run(seed, faults=False, crash_at=crash_at)
    return writes


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("block", range(4))
def test_any_history_keeps_its_promises(block: int) -> None:
    for seed in range(block, SEEDS, 4):
        run(seed)


@pytest.mark.timeout(3600)
def test_clients_that_keep_their_epoch_while_the_protocol_changes_keep_them_too() -> None:
    """KAFKA-18227: Apache Kafka leaves it to clients to take another epoch first."""
    for seed in range(0, SEEDS, 2):
        run(seed, bumps=False)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("block", range(2))
def test_a_crash_between_any_two_writes_loses_nothing(block: int) -> None:
    crashes = sum(crash_everywhere(seed) for seed in range(block, CRASHED_SEEDS, 2))
    assert crashes > 100


def test_the_same_seed_is_the_same_history() -> None:
    traces = [run(seed).trace for seed in range(10)]
    assert traces == [run(seed).trace for seed in range(10)]
    assert len(set(traces)) == 10


# -- what the simulation finds where a defence is missing ----------------------------------------
# Seeds out of some thousand; others, where the simulation has changed.


@pytest.mark.parametrize("seed", [418, 996])
def test_without_the_guard_a_stalled_end_tears_a_later_transaction(seed: int) -> None:
    """KAFKA-17754."""
    run(seed)
    with pytest.raises(AssertionError, match=BROKEN):
        run(seed, guarded=False)


@pytest.mark.parametrize("seed", [270, 598, 647])
def test_a_leader_that_forgets_the_protocol_takes_the_newer_into_the_transaction_before(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KAFKA-18227: whether the client takes another epoch first or not."""
    run(seed, bumps=False)
    begin = ProducerStateManager.begin_verification

    def forgetful(producers: ProducerStateManager, claim: Claim) -> Any:
        return begin(producers, claim._replace(epoch_per_transaction=False))

    monkeypatch.setattr(ProducerStateManager, "begin_verification", forgetful)
    run(seed)
    with pytest.raises(AssertionError, match=BROKEN):
        run(seed, bumps=False)
