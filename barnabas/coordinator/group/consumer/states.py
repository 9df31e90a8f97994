"""The states of a consumer group and of its members (KIP-848), which follow from their epochs.

                  a member joins                  the target assignment is computed
    +-------+ -----------------> +-----------+ ---------------------> +-------------+
    | EMPTY |                    | ASSIGNING |                        | RECONCILING |
    +-------+ <----------------- +-----------+ <--------------------- +-------------+
     |  ^   no member is left         ^     the group's epoch grows          |
     |  |                             |                                      | every member has
     v  |                             |                                      v its target
+------+|                             +--------------------------------- +--------+
| DEAD |+--------------------------------------------------------------- | STABLE |
+------+                                                                 +--------+

One decision may take a group through several of them. From each of them a group with members of
both protocols becomes a classic one when its last member of the newer protocol is gone; a classic
group that becomes a consumer group begins with its members.
"""

from enum import Enum, IntEnum
from typing import Final


class ConsumerGroupState(Enum):
    """A state by the name that Kafka's tools show."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


_GROWS: Final = "a member comes, leaves, expires or changes, or a topic changes"
_ASSIGNED: Final = "the target assignment is computed, and a member has not got its part yet"
_DOWNGRADED: Final = "only classic members are left: the group becomes a classic group"
_LEFT: Final = "the last member leaves or expires"
TRANSITIONS: Final[dict[ConsumerGroupState, dict[ConsumerGroupState, str]]] = {
    ConsumerGroupState.EMPTY: {
        ConsumerGroupState.ASSIGNING: "a member joins, and its assignment has to wait",
        ConsumerGroupState.RECONCILING: _ASSIGNED,
        ConsumerGroupState.STABLE: "a member joins, and gets what it subscribes to",
        ConsumerGroupState.DEAD: "the group is deleted, has expired, or becomes a classic group",
    },
    ConsumerGroupState.ASSIGNING: {
        ConsumerGroupState.EMPTY: _LEFT,
        ConsumerGroupState.RECONCILING: _ASSIGNED,
        ConsumerGroupState.STABLE: "the target assignment is computed, and every member has it",
        ConsumerGroupState.DEAD: _DOWNGRADED,
    },
    ConsumerGroupState.RECONCILING: {
        ConsumerGroupState.EMPTY: _LEFT,
        ConsumerGroupState.ASSIGNING: _GROWS,
        ConsumerGroupState.STABLE: "every member has its part of the target assignment",
        ConsumerGroupState.DEAD: _DOWNGRADED,
    },
    ConsumerGroupState.STABLE: {
        ConsumerGroupState.EMPTY: _LEFT,
        ConsumerGroupState.ASSIGNING: _GROWS,
        ConsumerGroupState.RECONCILING: "a member changes, and has to give partitions up",
        ConsumerGroupState.DEAD: _DOWNGRADED,
    },
    ConsumerGroupState.DEAD: {},
}
"""The transitions of each state, with their causes. docs/groups.md is drawn from it."""


class MemberState(IntEnum):
    """A member's state, as its record has it."""

    STABLE = 0
    """The member has its target, or what of it is free."""
    UNREVOKED_PARTITIONS = 1
    """It has to give partitions up before it moves to the next epoch."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that other members have to give up."""
    UNKNOWN = 127
    """A state that only a newer broker knows."""
