r"""Transaction verification: the check before a transaction's first batch in a partition (KIP-890).

    begin -> VerificationGuard -> the coordinator is asked -> append with the guard
                       \__ a marker in between voids the guard: the answer may be out of date

Each verification has a new guard, so that none can stand for a later transaction. Nothing is
persisted: after a restart the coordinator is asked again.

A coordinator on the same broker tells the partition in advance whom to expect. The verification is
answered then, and the coordinator is not asked:

    AddPartitionsToTxn is committed -> expect -> append with the guard
                                          \__ a marker in between, or another leader epoch, voids it
"""

from typing import Final, NamedTuple

from barnabas.protocol.records.batch import MAX_SEQUENCE
from barnabas.protocol.records.claim import Claim


class VerificationGuard:
    """A token that belongs to one verification."""

    __slots__ = ("answered",)

    def __init__(self, *, answered: bool = False) -> None:
        self.answered = answered
        """Whether the coordinator need not be asked: it has told the partition in advance."""


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
        "written",
    )

    def __init__(self, claim: Claim, *, answered: bool = False) -> None:
        self.guard = VerificationGuard(answered=answered)
        self.transactional_id = claim.transactional_id
        self.principal = claim.principal
        self.epoch = claim.producer_epoch
        self.lowest_sequence = claim.base_sequence
        self.epoch_per_transaction = claim.epoch_per_transaction
        self.seen_before = False
        """Whether the previous sweep has seen the verification already."""
        self.written = False
        """Whether a batch has opened the transaction with the guard."""

    def joined_by(self, claim: Claim) -> None:
        """Note that another batch of the producer waits for the coordinator's answer."""
        epoch, sequence = claim.producer_epoch, claim.base_sequence
        if epoch > self.epoch:
            self.epoch, self.lowest_sequence = epoch, sequence
        elif epoch == self.epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)


class Expectation:
    """A producer that a partition expects, for the coordinator that has told the partition."""

    __slots__ = ("_producer_id", "_verification", "_verifications")

    def __init__(
        self, verifications: "Verifications", producer_id: int, verification: Verification
    ) -> None:
        self._verifications = verifications
        self._producer_id = producer_id
        self._verification = verification

    @property
    def written(self) -> bool:
        """Whether the producer has written, without a question to the coordinator."""
        return self._verification.written

    def void(self) -> None:
        """Let the partition ask again before the producer may write."""
        self._verifications.forget(self._producer_id, self._verification.guard)


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

    def expect(self, claim: Claim) -> Expectation | None:
        """Answer the verification of a producer before it begins; None if one is in progress."""
        producer_id = claim.producer_id
        waiting = self._waiting.get(producer_id)
        if waiting is not None and not waiting.guard.answered:
            return None
        # The first batch says which sequence it has.
        claim = claim._replace(base_sequence=MAX_SEQUENCE)
        waiting = self._waiting[producer_id] = Verification(claim, answered=True)
        return Expectation(self, producer_id, waiting)

    def expected(self, producer_id: int, epoch: int, opener: "Opener") -> VerificationGuard | None:
        """Return the guard of an expected producer; None if its coordinator has to be asked."""
        waiting = self._waiting.get(producer_id)
        if (
            waiting is None
            or not waiting.guard.answered
            or waiting.epoch != epoch
            or waiting.transactional_id != opener.transactional_id
            or waiting.epoch_per_transaction is not opener.epoch_per_transaction
            or waiting.principal != opener.principal
        ):
            return None
        return waiting.guard

    def begin(self, claim: Claim) -> VerificationGuard:
        """Return the guard that the producer's first batch must present."""
        waiting = self._waiting.get(claim.producer_id)
        if (
            waiting is None
            or (waiting.transactional_id, waiting.principal)
            != (claim.transactional_id, claim.principal)
            or (
                waiting.guard.answered
                and (waiting.epoch, waiting.epoch_per_transaction)
                != (claim.producer_epoch, claim.epoch_per_transaction)
            )
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
            waiting.written = True
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

    def forget_expected(self) -> None:
        """Void what coordinators have told in advance."""
        for producer_id, waiting in list(self._waiting.items()):
            if waiting.guard.answered:
                del self._waiting[producer_id]

    def sweep(self) -> None:
        """Forget verifications that the previous sweep has seen: their clients have gone."""
        for producer_id, waiting in list(self._waiting.items()):
            if waiting.seen_before:
                del self._waiting[producer_id]
            waiting.seen_before = True

    def clear(self) -> None:
        self._waiting.clear()
        self._opened_by.clear()
