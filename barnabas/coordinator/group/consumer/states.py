"""The states of a consumer group and of its members (KIP-848), which follow from their epochs.

              a member joins                  the target assignment is computed
+-------+ -----------------> +-----------+ ---------------------> +-------------+
| EMPTY |                    | ASSIGNING |                        | RECONCILING |
+-------+ <----------------- +-----------+ <--------------------- +-------------+
    ^   no member is left         ^     the group's epoch grows          |
    |                             |                                      | every member has
    |                             |                                      v its target
    |                             +--------------------------------- +--------+
    +--------------------------------------------------------------- | STABLE |
                                                                     +--------+
"""

from enum import Enum, IntEnum


class ConsumerGroupState(Enum):
    """A state by the name that Kafka's tools show."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class MemberState(IntEnum):
    """A member's state, as its record has it."""

    STABLE = 0
    """The member has its target, or what of it is free."""
    UNREVOKED_PARTITIONS = 1
    """It has to give partitions up before it goes on to the next epoch."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that other members have to give up."""
    UNKNOWN = 127
    """A state that only a newer broker knows."""
