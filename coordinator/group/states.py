"""The states of a classic group and the only ways between them.

              members join                       all joined, or the timeout
+-------+ ------------------> +--------------------+ -------------> +---------------------+
| EMPTY |                     | PREPARING_REBALANCE|                | COMPLETING_REBALANCE|
+-------+ <------------------ +--------------------+ <------------- +---------------------+
    |        nobody is left       ^                     a member        | the leader's
    |                             | a member joins,     comes or goes   | assignment is
    v                             | leaves or expires                   v committed
+-------+                         |                                +--------+
| DEAD  | <-----------------------+------------------------------- | STABLE |
+-------+      from every state, when the group is deleted         +--------+
"""

from enum import Enum
from typing import Final


class GroupState(Enum):
    """A state by the name that Kafka's tools show."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class IllegalTransition(Exception):
    """A fault of this program: the table has no such way."""


TRANSITIONS: Final = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.PREPARING_REBALANCE: frozenset(
        {GroupState.EMPTY, GroupState.COMPLETING_REBALANCE, GroupState.DEAD}
    ),
    GroupState.COMPLETING_REBALANCE: frozenset(
        {GroupState.PREPARING_REBALANCE, GroupState.STABLE, GroupState.DEAD}
    ),
    GroupState.STABLE: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.DEAD: frozenset[GroupState](),
}
"""Where each state may lead."""


def check_transition(source: GroupState, target: GroupState) -> None:
    """Raises IllegalTransition for a way that the table does not have."""
    if target not in TRANSITIONS[source]:
        raise IllegalTransition(f"{source.value} -> {target.value}")
