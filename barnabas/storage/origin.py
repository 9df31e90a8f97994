"""The source of the batches of an append."""

from enum import Enum, auto


class Origin(Enum):
    """The source of an append.

    Clients may not write control batches, and their sequences are checked. A follower does not
    check again what its leader has accepted.
    """

    CLIENT = auto()
    COORDINATOR = auto()
    REPLICATION = auto()
