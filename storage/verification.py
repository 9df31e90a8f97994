"""What stands between a transaction's first batch and the log (KIP-890 part 1).

    begin -> Guard -> the coordinator is asked -> append with the guard
                 \\__ a marker in between takes the guard away: the answer is not worth anything now

The guard is new each time, so that a verification can never stand for a later transaction. Nothing
of this is written down: after a restart the coordinator is asked again.
"""

from typing import Final, NamedTuple

from barnabas.protocol.records.claim import Claim


class Guard:
    """An object that only one verification has."""

    __slots__ = ()


UNVERIFIED: Final = Guard()
"""Shown in place of a guard where nobody verifies: by configuration, or below the broker."""


class Verification:
    """A producer that is about to open a transaction in a partition."""

    __slots__ = (
        "epoch",
        "epoch_per_transaction",
        "guard",
        "lowest_sequence",
        "seen_before",
        "transactional_id",
    )

    def __init__(self, claim: Claim) -> None:
        self.guard = Guard()
        self.transactional_id = claim.transactional_id
        self.epoch = claim.producer_epoch
        self.lowest_sequence = claim.base_sequence
        self.epoch_per_transaction = claim.epoch_per_transaction
        self.seen_before = False
        """It was there already when the last sweep came by."""

    def joined_by(self, claim: Claim) -> None:
        """Another batch of the producer waits for the same answer."""
        epoch, sequence = claim.producer_epoch, claim.base_sequence
        if epoch > self.epoch:
            self.epoch, self.lowest_sequence = epoch, sequence
        elif epoch == self.epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)


class Opener(NamedTuple):
    """Whose batch opened a transaction, and by which protocol."""

    transactional_id: str
    epoch_per_transaction: bool


class Verifications:
    """Verifications under way in one partition, and whose the open transactions are."""

    def __init__(self) -> None:
        self._waiting: dict[int, Verification] = {}
        self._opened_by: dict[int, Opener] = {}

    def begin(self, claim: Claim) -> Guard:
        """The guard that the producer's first batch must show."""
        waiting = self._waiting.get(claim.producer_id)
        if waiting is None or waiting.transactional_id != claim.transactional_id:
            waiting = self._waiting[claim.producer_id] = Verification(claim)
        else:
            waiting.joined_by(claim)
        return waiting.guard

    def of(self, producer_id: int) -> Verification | None:
        """What the producer waits for."""
        return self._waiting.get(producer_id)

    def allows(self, producer_id: int, guard: Guard | None) -> bool:
        """Whether `guard` is the producer's, and no marker has come since it was given."""
        if guard is UNVERIFIED:
            return True
        waiting = self._waiting.get(producer_id)
        return waiting is not None and waiting.guard is guard

    def opener(self, producer_id: int) -> Opener | None:
        """What the producer's open transaction was verified for, if known."""
        return self._opened_by.get(producer_id)

    def appended(self, producer_id: int, guard: Guard | None) -> None:
        """The producer's batch is in the log, and its transaction open for whom it was verified."""
        waiting = self._waiting.get(producer_id)
        if waiting is not None and waiting.guard is guard:
            del self._waiting[producer_id]
            self._opened_by[producer_id] = Opener(
                waiting.transactional_id, waiting.epoch_per_transaction
            )

    def forget(self, producer_id: int, guard: Guard) -> None:
        """What waits with `guard` is not the producer's at all."""
        if self.allows(producer_id, guard):
            self._waiting.pop(producer_id, None)

    def ended(self, producer_id: int) -> None:
        """A marker of the producer is in the log."""
        self._waiting.pop(producer_id, None)
        self._opened_by.pop(producer_id, None)

    def sweep(self) -> None:
        """Forget what has waited since the last sweep: its client has gone away."""
        for producer_id, waiting in list(self._waiting.items()):
            if waiting.seen_before:
                del self._waiting[producer_id]
            waiting.seen_before = True

    def clear(self) -> None:
        self._waiting.clear()
        self._opened_by.clear()
