"""Coordination between brokers, with leaders and coordinators that move: seeds, and invariants.

More of them by hand: BARNABAS_HISTORIES=10000 pytest tests/simulation/test_coordination.py
"""

import asyncio
import os
from collections import Counter
from typing import Any

import pytest

from barnabas.broker.coordination.marker_routes import MarkerRoutes
from barnabas.broker.coordination.marker_sender import MarkerSender
from barnabas.broker.coordination.question import Answers, Question
from barnabas.broker.handlers.write_txn_markers import WriteTxnMarkersHandler
from barnabas.coordinator import loading
from barnabas.protocol.errors import ErrorCode
from tests.simulation.coordination.world import World
from tests.simulation.loop import VirtualLoop

BROKEN = r"is torn|was told|hangs|but open in|is left in"
SEEDS = int(os.environ.get("BARNABAS_HISTORIES", "80"))


def run(seed: int, **options: Any) -> tuple[World, list[str]]:
    """One history; raises AssertionError where a promise is broken."""
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
def test_any_history_keeps_its_promises(block: int) -> None:
    happened: Counter[str] = Counter()
    for seed in range(block, SEEDS, 4):
        happened += run(seed)[0].counted
    for what in ("move", "kill", "version", "offline", "slow", "refuse"):
        assert happened[what], f"nothing was tried with {what}"
    for what in ("AddPartitionsToTxn", "WriteTxnMarkers"):
        assert happened[f"{what} between brokers"] > SEEDS / 4


def test_the_same_seed_is_the_same_history() -> None:
    traces = [run(seed)[1] for seed in range(5)]
    assert traces == [run(seed)[1] for seed in range(5)]


# -- what the simulation finds where a defence is missing ----------------------------------------
# Seeds out of some thousand; others, where the simulation has changed.


def broken(seed: int) -> None:
    with pytest.raises(AssertionError, match=BROKEN):
        run(seed)


@pytest.mark.parametrize("seed", [2, 139])
def test_a_marker_that_was_held_up_does_not_end_the_next_transaction(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the older protocol nothing in it tells the two apart; the line that it came over does."""
    run(seed)
    monkeypatch.setattr(WriteTxnMarkersHandler, "_is_given_up", lambda *_: False)
    broken(seed)


@pytest.mark.parametrize("seed", [582, 831])
def test_a_coordinator_that_does_not_wait_for_the_high_watermark_tells_what_may_go(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def at_once(*_: Any) -> None: ...

    run(seed)
    monkeypatch.setattr(loading, "_committed", at_once)
    broken(seed)


@pytest.mark.parametrize("seed", [5, 7])
def test_a_marker_whose_answer_is_lost_may_not_be_written(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = MarkerSender.written

    def hopeful(sender: MarkerSender, errand: Any, code: ErrorCode) -> None:
        lost = code is ErrorCode.NETWORK_EXCEPTION
        written(sender, errand, ErrorCode.NONE if lost else code)

    run(seed)
    monkeypatch.setattr(MarkerSender, "written", hopeful)
    broken(seed)


@pytest.mark.parametrize("seed", [9, 13])
def test_a_question_whose_answer_is_lost_is_not_answered(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record in a partition that is not in the transaction would wait for its marker for ever."""
    all_told = Question.all_told

    def hopeful(question: Question, code: ErrorCode) -> Answers:
        lost = code is ErrorCode.NETWORK_EXCEPTION
        return all_told(question, ErrorCode.NONE if lost else code)

    run(seed)
    monkeypatch.setattr(Question, "all_told", hopeful)
    broken(seed)


@pytest.mark.parametrize("seed", [74, 91])
def test_a_marker_that_waits_for_a_leader_is_sent_when_there_is_one(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(seed)
    monkeypatch.setattr(MarkerRoutes, "_metadata_changed", lambda _: None)
    broken(seed)
