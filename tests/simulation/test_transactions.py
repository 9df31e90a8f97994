"""The coordinator among clients, partitions, networks and crashes: seeds, and invariants.

More of them by hand: BARNABAS_HISTORIES=10000 pytest tests/simulation/test_transactions.py
"""

import asyncio
import os
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.coordinator.postponed import PostponedRecords
from barnabas.coordinator.transaction.coordinator import TransactionShard
from barnabas.coordinator.transaction.metadata import (
    Markers,
    NextClient,
    Producer,
    TransactionMetadata,
)
from barnabas.coordinator.transaction.records import TransactionRecord
from barnabas.coordinator.transaction.states import TransactionState
from barnabas.protocol.records.claim import Claim
from barnabas.storage.producers.state import ProducerStateManager
from tests.simulation.transactions.world import World
from tests.support.mutants import mutated

SEEDS = int(os.environ.get("BARNABAS_HISTORIES", "200"))
CRASHED_SEEDS = max(SEEDS // 30, 6)
"""Seeds whose histories are crashed about 40 times each."""
BROKEN = r"is torn|was told"


def run(seed: int, **options: Any) -> World:
    """Return one history. Raises AssertionError if an invariant is violated."""

    async def whole() -> World:
        return await World(seed, **options).run()

    return asyncio.run(whole())


def crash_everywhere(seed: int, **options: Any) -> int:
    """Run a seed's history once for each of its writes, with a crash after it; return how many."""
    writes = run(seed, faults=False, **options).writes
    for crash_at in range(1, writes + 1):
        run(seed, faults=False, crash_at=crash_at, **options)
    return writes


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("block", range(4))
def test_history_violates_no_invariant(block: int) -> None:
    for seed in range(block, SEEDS, 4):
        run(seed)


@pytest.mark.timeout(3600)
def test_clients_that_keep_their_epoch_over_a_protocol_change_violate_no_invariant() -> None:
    """KAFKA-18227: Apache Kafka leaves it to clients to take another epoch first."""
    for seed in range(0, SEEDS, 2):
        run(seed, bumps=False)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("block", range(2))
def test_crash_after_any_write_loses_no_transaction(block: int) -> None:
    crashes = sum(crash_everywhere(seed) for seed in range(block, CRASHED_SEEDS, 2))
    assert crashes > 100


@pytest.mark.parametrize("two_phase", [False, True])
def test_seed_replays_the_same_history(two_phase: bool) -> None:
    traces = [run(seed, two_phase=two_phase).trace for seed in range(10)]
    assert traces == [run(seed, two_phase=two_phase).trace for seed in range(10)]
    assert len(set(traces)) == 10


# -- two-phase commit (KIP-939): tasks write, drivers compete for the end --------------------------


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("block", range(4))
def test_history_of_kept_transactions_violates_no_invariant(block: int) -> None:
    ends: set[bool | None] = set()
    for seed in range(block, SEEDS, 4):
        history = run(seed, two_phase=True)
        ends |= {txn.told for txn in history.handover.all if txn.kept and txn.timeless}
    assert ends == {True, False, None}


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("block", range(2))
def test_crash_after_any_write_loses_no_kept_transaction(block: int) -> None:
    seeds = range(block, 2 * CRASHED_SEEDS, 2)
    assert sum(crash_everywhere(seed, two_phase=True) for seed in seeds) > 50


def _ends_by_ongoing(patch: pytest.MonkeyPatch) -> None:
    def is_current(self: TransactionMetadata, producer: Producer) -> bool:
        return producer in (self.client, self.producer)

    patch.setattr(TransactionMetadata, "is_current", is_current)


def _loses_client_at_load(patch: pytest.MonkeyPatch) -> None:
    decode = TransactionShard.decode

    def forgetful(
        self: TransactionShard, key: bytes, value: bytes | None
    ) -> TransactionRecord | None:
        record = decode(self, key, value)
        if record is None or record.value is None or not record.value.is_kept:
            return record
        return record._replace(value=record.value._replace(next_epoch=-1, next_producer_id=-1))

    patch.setattr(TransactionShard, "decode", forgetful)


def _pins_nothing(patch: pytest.MonkeyPatch) -> None:
    kept = TransactionMetadata.kept

    def unpinned(
        self: TransactionMetadata, client: NextClient, now_ms: int, *, pins: bool
    ) -> TransactionMetadata:
        return kept(self, client, now_ms, pins=pins and not self.times_out)

    patch.setattr(TransactionMetadata, "kept", unpinned)


def _marks_with_the_client(patch: pytest.MonkeyPatch) -> None:
    def of(txn: TransactionMetadata) -> Markers:
        committed = txn.state is TransactionState.PREPARE_COMMIT
        return Markers(
            txn.transactional_id, txn.client, committed, txn.partitions, txn.client_version
        )

    patch.setattr(Markers, "of", of)


def _gives_a_client_twice(patch: pytest.MonkeyPatch) -> None:
    next_client = TransactionMetadata.next_client

    def same(self: TransactionMetadata, expected: int | None) -> NextClient:
        return NextClient(self.client, -1) if self.is_kept else next_client(self, expected)

    patch.setattr(TransactionMetadata, "next_client", same)


def _goes_on_with_the_ongoing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TransactionMetadata, "next_producer", property(lambda self: self.producer))


MUTANTS = {
    _ends_by_ongoing: 592,
    _loses_client_at_load: 93,
    _pins_nothing: 36,
    _marks_with_the_client: 0,
    _gives_a_client_twice: 5,
    _goes_on_with_the_ongoing: 0,
}
"""The seed from which a history with the flaw is searched."""


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__.strip("_"))
def test_flaw_in_two_phase_commit_is_found(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)

    def search() -> None:
        for seed in range(MUTANTS[mutant], MUTANTS[mutant] + 1000):
            run(seed, two_phase=True)

    with pytest.raises(AssertionError):
        search()


# -- records that are replayed before they are written ---------------------------------------------


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("function", "old", "new"),
    [
        (PostponedRecords.append, "(*before, *records)", "(*records, *before)"),
        (PostponedRecords.append, "if before:", "if False:"),
    ],
)
def test_record_before_a_postponed_one_is_found(
    function: Callable[..., Any], old: str, new: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(function, "__code__", mutated(function, old, new))

    def search() -> None:
        for seed in range(6, 1000):
            run(seed)

    with pytest.raises(AssertionError):
        search()


# -- findings of the simulation without a defence --------------------------------------------------


@pytest.mark.parametrize("seed", [116, 142])
def test_delayed_end_txn_without_the_guard_tears_a_later_transaction(seed: int) -> None:
    """KAFKA-17754."""
    run(seed)
    with pytest.raises(AssertionError, match=BROKEN):
        run(seed, guarded=False)


@pytest.mark.parametrize("seed", [10, 270, 2130])
def test_leader_that_forgets_the_protocol_joins_two_transactions(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KAFKA-18227, with and without another epoch of the client."""
    run(seed, bumps=False)
    begin = ProducerStateManager.begin_verification

    def forgetful(producers: ProducerStateManager, claim: Claim) -> Any:
        return begin(producers, claim._replace(epoch_per_transaction=False))

    monkeypatch.setattr(ProducerStateManager, "begin_verification", forgetful)
    run(seed)
    with pytest.raises(AssertionError, match=BROKEN):
        run(seed, bumps=False)
