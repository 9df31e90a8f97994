"""The states of a classic group and the only ways between them.

              members join                       all joined, or the timeout
+-------+ ------------------> +--------------------+ -------------> +---------------------+
| EMPTY |                     | PREPARING_REBALANCE|                | COMPLETING_REBALANCE|
+-------+ <------------------ +--------------------+ <------------- +---------------------+
    |        no member is left    ^                     a member        | the leader's
    |                             | a member joins,     comes or goes   | assignment is
    v                             | leaves or expires                   v committed
+-------+                         |                                +--------+
| DEAD  | <-----------------------+------------------------------- | STABLE |
+-------+      from every state, when the group is deleted         +--------+
"""

from enum import Enum
from typing import Final

from barnabas.coordinator.decision import IllegalTransition

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
"""The types of groups, as ListGroups names them."""


class GroupState(Enum):
    """A state by the name that Kafka's tools show."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_UPGRADED: Final = "the group is deleted, or becomes a consumer group"
TRANSITIONS: Final[dict[GroupState, dict[GroupState, str]]] = {
    GroupState.EMPTY: {
        GroupState.PREPARING_REBALANCE: "a member joins",
        GroupState.DEAD: "the group is deleted, has expired, or becomes a consumer group",
    },
    GroupState.PREPARING_REBALANCE: {
        GroupState.EMPTY: "no member has joined in time",
        GroupState.COMPLETING_REBALANCE: "all members have joined, or the time to join is over",
        GroupState.DEAD: _UPGRADED,
    },
    GroupState.COMPLETING_REBALANCE: {
        GroupState.PREPARING_REBALANCE: "a member comes, leaves or expires",
        GroupState.STABLE: "the leader's assignment is committed",
        GroupState.DEAD: _UPGRADED,
    },
    GroupState.STABLE: {
        GroupState.PREPARING_REBALANCE: "a member comes, leaves, expires or changes",
        GroupState.DEAD: _UPGRADED,
    },
    GroupState.DEAD: {},
}
"""The transitions of each state, with their causes. docs/groups.md is drawn from it."""


def check_transition(source: GroupState, target: GroupState) -> None:
    """Raise IllegalTransition for a transition that the table does not have."""
    if target not in TRANSITIONS[source]:
        raise IllegalTransition(f"{source.value} -> {target.value}")
