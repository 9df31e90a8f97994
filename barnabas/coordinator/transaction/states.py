"""The states of a transactional id and the only ways between them.

               partitions are added                    commit
+-------+ ---------------------------> +---------+ ------------> +----------------+
| EMPTY |                              | ONGOING |               | PREPARE_COMMIT |
+-------+ <--------------+             +---------+               +----------------+
    |     InitProducerId |              |      ^                          | all markers
    |                    |        abort,|      | partitions are added     v are written
    |  abort of nothing  |      timeout,|      |                 +-----------------+
    |  (TV2)             |       fencing|      +-----------------| COMPLETE_COMMIT |
    v                    |              v                        +-----------------+
+---------------+        |      (PREPARE_ABORT)                           |
| PREPARE_ABORT | ---> +----------------+ <-------------------------------+
+---------------+      | COMPLETE_ABORT |   abort of nothing (TV2), by PREPARE_ABORT
                       +----------------+
InitProducerId may keep an ONGOING transaction for a new client instead of aborting it (KIP-939).
EMPTY and the COMPLETE states lead to DEAD when the transactional id expires.
"""

from enum import Enum
from typing import Final

from barnabas.coordinator.decision import IllegalTransition


class TransactionState(Enum):
    """A state by the name that Kafka's tools show; `number` is what the log holds."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    """Kafka's name while a producer is being fenced. Fencing is one decision here, so no id is ever
    in this state; ListTransactions knows the name as a filter."""

    __hash__ = object.__hash__
    """Enum's own is written in Python, and states are looked up in each step."""

    @property
    def number(self) -> int:
        return _NUMBERS[self]


_NUMBERS: Final = {state: number for number, state in enumerate(TransactionState)}
BY_NUMBER: Final = dict(enumerate(TransactionState))
BY_NAME: Final = {state.value: state for state in TransactionState}

PREPARED: Final = frozenset((TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT))
"""Decided; the markers are being written."""
COMPLETED: Final = frozenset((TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT))
"""Every marker of the latest transaction is written."""
SETTLED: Final = COMPLETED | {TransactionState.EMPTY}
"""No transaction is open: a producer may begin one, and the id may expire."""


_BEGINS: Final = "the first partition is added"
_INIT: Final = "InitProducerId"
_EXPIRES: Final = "the transactional id expires"
_ABORT_OF_NOTHING: Final = "EndTxn aborts a transaction without partitions (TV2)"
TRANSITIONS: Final[dict[TransactionState, dict[TransactionState, str]]] = {
    TransactionState.EMPTY: {
        TransactionState.EMPTY: _INIT,
        TransactionState.ONGOING: _BEGINS,
        TransactionState.PREPARE_ABORT: _ABORT_OF_NOTHING,
        TransactionState.DEAD: _EXPIRES,
    },
    TransactionState.ONGOING: {
        TransactionState.ONGOING: "a partition is added, or InitProducerId keeps the transaction "
        "(KIP-939)",
        TransactionState.PREPARE_COMMIT: "EndTxn commits",
        TransactionState.PREPARE_ABORT: "EndTxn aborts, the timeout is over, or a newer producer "
        "fences this one",
    },
    TransactionState.PREPARE_COMMIT: {
        TransactionState.COMPLETE_COMMIT: "every partition has its marker",
    },
    TransactionState.PREPARE_ABORT: {
        TransactionState.COMPLETE_ABORT: "every partition has its marker",
    },
    TransactionState.COMPLETE_COMMIT: {
        TransactionState.EMPTY: _INIT,
        TransactionState.ONGOING: _BEGINS,
        TransactionState.PREPARE_ABORT: _ABORT_OF_NOTHING,
        TransactionState.DEAD: _EXPIRES,
    },
    TransactionState.COMPLETE_ABORT: {
        TransactionState.EMPTY: _INIT,
        TransactionState.ONGOING: _BEGINS,
        TransactionState.PREPARE_ABORT: _ABORT_OF_NOTHING,
        TransactionState.DEAD: _EXPIRES,
    },
    TransactionState.DEAD: {},
    TransactionState.PREPARE_EPOCH_FENCE: {},
}
"""The transitions of each state, with their causes. docs/transactions.md is drawn from it."""


def check_transition(source: TransactionState, target: TransactionState) -> None:
    """Raise IllegalTransition for a transition that the table does not have."""
    if target not in TRANSITIONS[source]:
        raise IllegalTransition(f"{source.value} -> {target.value}")
