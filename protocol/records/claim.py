"""What a batch says of a transaction that its partition may not know yet."""

from typing import NamedTuple


class Claim(NamedTuple):
    """Not believed before the transaction's coordinator was asked (KIP-890)."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    base_sequence: int
    epoch_per_transaction: bool
    """Whether the client speaks the newer protocol: then each transaction has an epoch of its own,
    and partitions are added by their leaders."""
