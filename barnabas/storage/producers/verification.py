r"""Transaction verification: the check before a transaction's first batch in a partition (KIP-890).

    begin -> VerificationGuard -> the coordinator is asked -> append with the guard
                       \__ a marker in between voids the guard: the answer may be out of date

Each verification has a new guard, so that none can stand for a later transaction. Nothing is
persisted: after a restart the coordinator is asked again.

A coordinator tells the partition in advance whom to expect, on another broker by ExpectProducers.
The verification is answered then, and the coordinator is not asked:

    AddPartitionsToTxn is committed -> expect -> append with the guard
                                          \__ a marker in between, or another leader epoch, voids it

A guard is in the `ProducerStateEntry` of its producer until an append has used it, or it is void.
"""

from typing import Final, NamedTuple

from barnabas.protocol.records.batch import MAX_SEQUENCE
from barnabas.protocol.records.claim import Claim

_new = tuple.__new__


class Opener(NamedTuple):
    """The producer whose batch opens a transaction, and its protocol."""

    transactional_id: str
    epoch_per_transaction: bool
    principal: str | None


class VerificationGuard:
    """The verification of a producer that is about to open a transaction in a partition.

    An append presents it: only the very object is the right one, whatever another one holds.
    """

    __slots__ = (
        "epoch",
        "leadership",
        "lowest_sequence",
        "opener",
        "seen_before",
        "voided",
        "written",
    )

    def __init__(self, claim: Claim, leadership: int | None = None) -> None:
        transactional_id, _, self.epoch, sequence, epoch_per_transaction, principal = claim
        self.opener = _new(Opener, (transactional_id, epoch_per_transaction, principal))
        self.lowest_sequence = sequence if leadership is None else MAX_SEQUENCE
        """The lowest sequence of the batches that present the guard. If the producer is expected,
        its first batch says which one it has."""
        self.leadership = leadership
        """The leadership of the partition in which the producer is expected; None if its
        coordinator has to be asked."""
        self.seen_before = False
        """Whether the previous sweep has seen the guard already."""
        self.voided = False
        """Whether the coordinator has taken back that the producer is expected."""
        self.written = False
        """Whether a batch has opened the transaction with the guard."""

    @property
    def answered(self) -> bool:
        """Whether no question is needed: the coordinator has told the partition in advance."""
        return self.leadership is not None

    def void(self) -> None:
        """Let the partition ask again before the producer may write."""
        self.voided = True

    def is_shared_by(self, claim: Claim) -> bool:
        """Return whether a batch with this claim may present the guard as well."""
        opener = self.opener
        return (opener.transactional_id, opener.principal) == (
            claim.transactional_id,
            claim.principal,
        ) and (
            not self.answered
            or (self.epoch, opener.epoch_per_transaction)
            == (claim.producer_epoch, claim.epoch_per_transaction)
        )

    def joined_by(self, claim: Claim) -> None:
        """Note that another batch of the producer waits for the coordinator's answer."""
        epoch, sequence = claim.producer_epoch, claim.base_sequence
        if epoch > self.epoch:
            self.epoch, self.lowest_sequence = epoch, sequence
        elif epoch == self.epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)


UNVERIFIED: Final = VerificationGuard(Claim("", -1, -1, -1, epoch_per_transaction=False))
"""The guard of an append without verification: it is disabled by the configuration, or the records
are the broker's own."""
