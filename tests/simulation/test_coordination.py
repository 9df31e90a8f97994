"""Coordination between brokers with moving leaders and coordinators: seeds, and invariants.

More of them by hand: BARNABAS_HISTORIES=10000 pytest tests/simulation/test_coordination.py
"""

import asyncio
import os
from collections import Counter
from typing import Any

import pytest

from barnabas.broker.transactions.marker_origins import MarkerOrigins
from barnabas.broker.transactions.marker_routes import MarkerRoutes
from barnabas.broker.transactions.marker_sender import MarkerSender
from barnabas.broker.transactions.verification_request import Answers, VerificationRequest
from barnabas.coordinator import loading
from barnabas.protocol.errors import ErrorCode
from tests.simulation.coordination.world import World
from tests.support.virtual_loop import VirtualLoop

BROKEN = r"is torn|was told|hangs|but open in|is left in"
SEEDS = int(os.environ.get("BARNABAS_HISTORIES", "80"))


def run(seed: int, **options: Any) -> tuple[World, list[str]]:
    """Return one history. Raises AssertionError if an invariant is violated."""
    loop = VirtualLoop(seed)
    asyncio.set_event_loop(loop)

    async def whole() -> World:
        return await World(loop, seed, **options).run()

    try:
        return loop.run_until_complete(whole()), loop.trace
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        asyncio.set_event_loop(None)
        loop.close()


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("block", range(4))
def test_history_violates_no_invariant(block: int) -> None:
    happened: Counter[str] = Counter()
    for seed in range(block, SEEDS, 4):
        happened += run(seed)[0].counted
    for what in ("move", "kill", "version", "offline", "slow", "refuse"):
        assert happened[what], f"no history contains {what}"
    for what in ("AddPartitionsToTxn", "WriteTxnMarkers"):
        assert happened[f"{what} between brokers"] > SEEDS / 4
    assert happened["ExpectProducers in time"], "no history tells a leader in time"


def test_seed_replays_the_same_history() -> None:
    traces = [run(seed)[1] for seed in range(5)]
    assert traces == [run(seed)[1] for seed in range(5)]


# -- findings of the simulation without a defence --------------------------------------------------


def broken(seed: int) -> None:
    with pytest.raises(AssertionError, match=BROKEN):
        run(seed)


@pytest.mark.parametrize("seed", [191, 318])
def test_delayed_marker_does_not_end_the_next_transaction(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the older protocol a marker does not name its transaction; its connection identifies
    it."""
    run(seed)
    monkeypatch.setattr(MarkerOrigins, "is_outdated", lambda *_: False)
    broken(seed)


@pytest.mark.parametrize("seed", [292])
def test_coordinator_without_wait_for_the_high_watermark_reports_uncommitted_state(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def at_once(*_: Any) -> None: ...

    run(seed)
    monkeypatch.setattr(loading, "_committed", at_once)
    broken(seed)


@pytest.mark.parametrize("seed", [0, 9])
def test_marker_with_a_lost_response_may_be_unwritten(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = MarkerSender.written

    def hopeful(sender: MarkerSender, pending: Any, code: ErrorCode) -> None:
        lost = code is ErrorCode.NETWORK_EXCEPTION
        written(sender, pending, ErrorCode.NONE if lost else code)

    run(seed)
    monkeypatch.setattr(MarkerSender, "written", hopeful)
    broken(seed)


@pytest.mark.parametrize("seed", [9, 14])
def test_verification_with_a_lost_response_is_not_taken_as_success(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record in a partition that is not in the transaction would wait for its marker for ever."""
    all_with = VerificationRequest.all_with

    def hopeful(question: VerificationRequest, code: ErrorCode) -> Answers:
        lost = code is ErrorCode.NETWORK_EXCEPTION
        return all_with(question, ErrorCode.NONE if lost else code)

    run(seed)
    monkeypatch.setattr(VerificationRequest, "all_with", hopeful)
    broken(seed)


@pytest.mark.parametrize("seed", [23, 74])
def test_marker_waiting_for_a_leader_is_sent_after_the_election(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(seed)
    monkeypatch.setattr(MarkerRoutes, "_metadata_changed", lambda _: None)
    broken(seed)
