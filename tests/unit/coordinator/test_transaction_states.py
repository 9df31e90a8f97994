"""The table of states (KIP-98, KIP-890): every transition in it is taken, every other one
raises."""

import pytest

from barnabas.coordinator.decision import IllegalTransition
from barnabas.coordinator.transaction.metadata import TV0, TV2
from barnabas.coordinator.transaction.states import (
    BY_NAME,
    BY_NUMBER,
    TRANSITIONS,
    TransactionState,
    check_transition,
)
from barnabas.protocol.records.batch import iter_headers
from barnabas.protocol.records.record import iter_records
from tests.unit.coordinator.transactions import A, B, Transactions

Way = tuple[TransactionState, TransactionState]


class Witness(Transactions):
    """A coordinator that records every transition of its log."""

    def ways(self) -> set[Way]:
        found: set[Way] = set()
        state = TransactionState.EMPTY
        shard = self._new_shard(0, 0)
        for batch in self.log.batches:
            for position, header in iter_headers(batch):
                for record in iter_records(batch, position, header):
                    decoded = shard.decode(record.key or b"", record.value)
                    assert decoded is not None
                    value = decoded.value
                    target = TransactionState.DEAD if value is None else value.state
                    found.add((state, target))
                    state = TransactionState.EMPTY if value is None else target
        return found


async def test_every_transition_of_table_is_taken() -> None:
    walked: set[Way] = set()
    for commits in (True, False):
        for version in (TV0, TV2):
            here = await Witness().load()
            producer = here.ongoing(A, version=version)
            (here.lead if version else here.add)(producer, B)
            after = here.end(producer, commits=commits, version=version)
            here.mark()
            (here.lead if version else here.add)(after, A)
            after = here.end(after, commits=commits, version=version)
            here.mark()
            if version == TV2:
                here.end(after, commits=False)
                here.end(here.init(), commits=False)
            here.time.pass_ms(here.settings.id_expiration_ms)
            await here.coordinator.expire()
            here.init()
            here.time.pass_ms(here.settings.id_expiration_ms)
            await here.coordinator.expire()
            _, after = here.completed(commits=commits, version=version)
            here.init()
            walked |= here.ways()
    assert walked == {(source, target) for source, to in TRANSITIONS.items() for target in to}


@pytest.mark.parametrize("source", TransactionState)
@pytest.mark.parametrize("target", TransactionState)
def test_transition_outside_table_raises(
    source: TransactionState, target: TransactionState
) -> None:
    if target in TRANSITIONS[source]:
        check_transition(source, target)
    else:
        with pytest.raises(IllegalTransition):
            check_transition(source, target)


def test_prepared_state_has_one_transition() -> None:
    """KIP-98: from PREPARE_x on, every coordinator rolls forward."""
    assert set(TRANSITIONS[TransactionState.PREPARE_COMMIT]) == {TransactionState.COMPLETE_COMMIT}
    assert set(TRANSITIONS[TransactionState.PREPARE_ABORT]) == {TransactionState.COMPLETE_ABORT}


def test_names_and_numbers_are_kafkas() -> None:
    names = "Empty Ongoing PrepareCommit PrepareAbort CompleteCommit CompleteAbort Dead"
    assert [BY_NUMBER[each].value for each in range(8)] == [*names.split(), "PrepareEpochFence"]
    assert BY_NAME["PrepareAbort"] is TransactionState.PREPARE_ABORT
    assert TransactionState.COMPLETE_ABORT.number == 5
