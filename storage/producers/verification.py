r"""Transaction verification: the check before a transaction's first batch in a partition (KIP-890).

    begin -> VerificationGuard -> the coordinator is asked -> append with the guard
                       \__ a marker in between voids the guard: the answer may be out of date

Each verification has a new guard, so that none can stand for a later transaction. Nothing is
persisted: after a restart the coordinator is asked again.
"""

from typing import Final, NamedTuple

from barnabas.protocol.records.claim import Claim


class VerificationGuard:
    """A token that belongs to one verification."""

    __slots__ = ()


UNVERIFIED: Final = VerificationGuard()
"""The guard of an append without verification: it is disabled by the configuration, or the records
are the broker's own."""


class Verification:
    """A producer that is about to open a transaction in a partition."""

    __slots__ = (
        "epoch",
        "epoch_per_transaction",
        "guard",
        "lowest_sequence",
        "principal",
        "seen_before",
        "transactional_id",
    )

    def __init__(self, claim: Claim) -> None:
        self.guard = VerificationGuard()
        self.transactional_id = claim.transactional_id
        self.principal = claim.principal
        self.epoch = claim.producer_epoch
        self.lowest_sequence = claim.base_sequence
        self.epoch_per_transaction = claim.epoch_per_transaction
        self.seen_before = False
        """Whether the previous sweep has seen the verification already."""

    def joined_by(self, claim: Claim) -> None:
        """Note that another batch of the producer waits for the coordinator's answer."""
        epoch, sequence = claim.producer_epoch, claim.base_sequence
        if epoch > self.epoch:
            self.epoch, self.lowest_sequence = epoch, sequence
        elif epoch == self.epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)


class Opener(NamedTuple):
    """The producer whose batch opened a transaction, and its protocol."""

    transactional_id: str
    epoch_per_transaction: bool
    principal: str | None


class Verifications:
    """The verifications in progress in one partition, and the openers of its transactions."""

    def __init__(self) -> None:
        self._waiting: dict[int, Verification] = {}
        self._opened_by: dict[int, Opener] = {}

    def begin(self, claim: Claim) -> VerificationGuard:
        """Return the guard that the producer's first batch must present."""
        waiting = self._waiting.get(claim.producer_id)
        if waiting is None or (waiting.transactional_id, waiting.principal) != (
            claim.transactional_id,
            claim.principal,
        ):
            waiting = self._waiting[claim.producer_id] = Verification(claim)
        else:
            waiting.joined_by(claim)
        return waiting.guard

    def of(self, producer_id: int) -> Verification | None:
        """Return the producer's verification in progress, or None."""
        return self._waiting.get(producer_id)

    def allows(self, producer_id: int, guard: VerificationGuard | None) -> bool:
        """Return whether `guard` is the producer's, and no marker has come since it was issued."""
        if guard is UNVERIFIED:
            return True
        waiting = self._waiting.get(producer_id)
        return waiting is not None and waiting.guard is guard

    def opener(self, producer_id: int) -> Opener | None:
        """Return the opener that the producer's open transaction was verified for, if known."""
        return self._opened_by.get(producer_id)

    def appended(self, producer_id: int, guard: VerificationGuard | None) -> None:
        """Note that the producer's batch is in the log: its transaction is open for its opener."""
        waiting = self._waiting.get(producer_id)
        if waiting is not None and waiting.guard is guard:
            del self._waiting[producer_id]
            self._opened_by[producer_id] = Opener(
                waiting.transactional_id, waiting.epoch_per_transaction, waiting.principal
            )

    def forget(self, producer_id: int, guard: VerificationGuard) -> None:
        """Void `guard`: it does not belong to this producer."""
        if self.allows(producer_id, guard):
            self._waiting.pop(producer_id, None)

    def ended(self, producer_id: int) -> None:
        """Note that a marker of the producer is in the log."""
        self._waiting.pop(producer_id, None)
        self._opened_by.pop(producer_id, None)

    def sweep(self) -> None:
        """Forget verifications that the previous sweep has seen: their clients have gone."""
        for producer_id, waiting in list(self._waiting.items()):
            if waiting.seen_before:
                del self._waiting[producer_id]
            waiting.seen_before = True

    def clear(self) -> None:
        self._waiting.clear()
        self._opened_by.clear()
