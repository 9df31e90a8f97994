"""Logged state changes in `replay` only: a table that is loaded now equals the live one."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.coordinator.transaction.metadata import TV0, TV2, TransactionMetadata
from barnabas.coordinator.transaction.records import TransactionRecord, decode_record
from barnabas.coordinator.transaction.settings import TransactionSettings
from barnabas.coordinator.transaction.states import SETTLED
from barnabas.coordinator.transaction.table import TransactionTable
from barnabas.coordinator.transaction.transactional_id import TransactionalId
from barnabas.protocol.errors import ErrorCode, KafkaError
from tests.unit.coordinator.story import (
    CRASHES,
    EXPIRIES,
    REFUSALS,
    STEPS,
    Commits,
    Step,
    Story,
)
from tests.unit.coordinator.transactions import ID, A, Transactions

Logged = dict[str, TransactionMetadata | None]


def logged(table: TransactionTable) -> Logged:
    """Return the logged part of a table, whose index it has to fit."""
    found = {key: entry.txn for key, entry in table.ids.items() if entry.txn is not None}
    unsettled = {key for key, txn in found.items() if txn.state not in SETTLED}
    assert set(table.unsettled) == unsettled
    assert all(table.unsettled[key] is table.ids[key] for key in unsettled)
    return dict(found)


def fresh(records: list[tuple[bytes | None, bytes | None]]) -> TransactionTable:
    """Return a table that has just been loaded."""
    table = TransactionTable(
        TransactionSettings(),
        take_producer_id=lambda: -1,
        transaction_version=lambda: TV0,
        verification=lambda: None,
        send_markers=lambda *_: False,
        marked=lambda *_: None,
        free=lambda _: None,
    )
    for key, value in records:
        assert key is not None
        record = decode_record(key, value)
        assert record is not None
        table.replay(record)
    return table


class Watched(Story):
    """A story that compares the logged part of the table with the log."""

    def __init__(self, commits: Commits, patch: pytest.MonkeyPatch) -> None:
        super().__init__(commits)
        self.passed: list[Logged] = []
        """The logged part of the table after each record of its log."""
        self.table: TransactionTable | None = None
        replay = TransactionTable.replay

        def watched(table: TransactionTable, record: TransactionRecord, *_: int) -> None:
            if table is not self.table:
                self.table, self.passed = table, [{}]
            self.compare()
            replay(table, record)
            self.passed.append(logged(table))

        patch.setattr(TransactionTable, "replay", watched)

    def compare(self) -> None:
        """Compare with the last replay: whatever has happened since has changed nothing."""
        if self.table is not None:
            assert logged(self.table) == self.passed[-1]


async def live(steps: list[Step], commits: Commits) -> None:
    with pytest.MonkeyPatch.context() as patch:
        story = Watched(commits, patch)
        await story.transactions.load()
        for step in [("init", False), *steps, ("refuse", None), ("pass", 1000), ("release",)]:
            await story.take(step)
            story.compare()
    records = story.transactions.log.records
    found = [logged(fresh(records[:count])) for count in range(len(records) + 1)]
    assert found == story.passed, "a coordinator that is elected after a crash at any append"
    for entry in story.transactions.table.ids.values():
        assert entry.txn is not None
        assert entry.pending is None


ALL = st.lists(STEPS | REFUSALS | CRASHES | EXPIRIES, max_size=40)


@settings(max_examples=300, deadline=None)
@given(ALL, st.sampled_from(Commits))
def test_table_loaded_after_any_append_equals_the_live_one(
    steps: list[Step], commits: Commits
) -> None:
    asyncio.run(live(steps, commits))


LIFE: list[Step] = [
    ("add", (A,), TV2),
    ("refuse", ErrorCode.NOT_ENOUGH_REPLICAS),
    ("end", True, TV2),
    ("refuse", None),
    ("end", True, TV2),
    ("mark",),
    ("expire",),
    ("init", False),
    ("crash", True),
]


@pytest.mark.parametrize("commits", Commits)
def test_life_of_an_id_changes_its_table_in_replays_only(commits: Commits) -> None:
    asyncio.run(live(LIFE, commits))


def of_target(entry: TransactionalId, target: TransactionMetadata) -> None:
    entry.txn = target


def of_epoch(entry: TransactionalId, target: TransactionMetadata) -> None:
    if entry.txn is not None:
        entry.txn = entry.txn._replace(epoch=target.epoch)


@pytest.mark.parametrize("change", [of_target, of_epoch])
def test_change_outside_of_replay_is_found(
    change: Callable[[TransactionalId, Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    transition = TransactionTable.transition

    def changing(
        table: TransactionTable, entry: TransactionalId, target: Any, *rest: Any, **named: Any
    ) -> Any:
        decision = transition(table, entry, target, *rest, **named)
        change(entry, target)
        return decision

    monkeypatch.setattr(TransactionTable, "transition", changing)
    with pytest.raises(AssertionError):
        asyncio.run(live(LIFE, Commits.AT_ONCE))


async def test_state_that_is_not_logged_ends_with_its_id() -> None:
    here = await Transactions(version=TV0, id_expiration_ms=1000).load()
    producer = here.ongoing(A, version=TV0)
    entry = here.table.ids[ID]
    assert (entry.latest_use, entry.deadline_ms is None) == ((producer, 1), False)
    assert entry.witness is not None
    here.end(producer, version=TV0)
    here.mark()
    assert (entry.deadline_ms, entry.witness, here.table.unsettled) == (None, None, {})
    here.time.pass_ms(1000)
    await here.coordinator.expire()
    assert (here.table.ids, entry.events) == ({}, None)


async def test_refused_first_record_leaves_no_id() -> None:
    here = await Transactions().load()
    here.log.refusal = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    with pytest.raises(KafkaError):
        here.init()
    assert here.table.ids == {}
    assert not here.table.history._latest
    here.log.refusal = None
    here.init()
    assert set(here.table.ids) == {ID}
