"""The transaction that a batch claims to belong to, unknown to its partition."""

from typing import NamedTuple


class Claim(NamedTuple):
    """A batch's claim to an open transaction, to be verified with the coordinator (KIP-890)."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    base_sequence: int
    epoch_per_transaction: bool
    """Whether the client speaks transaction version 2: each transaction has its own epoch, and
    leaders add the partitions."""
    principal: str | None = None
    """The principal of the client; None without an authorizer."""
