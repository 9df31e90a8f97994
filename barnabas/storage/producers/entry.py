"""The state of one producer in one partition: values without rules."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from barnabas.protocol.records.batch import (
    MAX_SEQUENCE,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
)
from barnabas.storage.producers.verification import Opener, VerificationGuard

WINDOW = 5
"""Batches remembered per producer: the most that it may have in flight."""

NO_COORDINATOR_EPOCH = -1


class BatchMetadata(NamedTuple):
    """One appended batch, by its last sequence and offset; `timestamp` is its greatest, in ms."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & MAX_SEQUENCE

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


# Slots are read in half the time of a named tuple's fields, and take no more memory.
@dataclass(slots=True)
class ProducerStateEntry:
    """All that a partition knows about a producer id.

    Immutable: an append, a marker or a verification puts another entry in its place. So a snapshot
    may be written from the entries of its moment, and a refusal has nothing to restore.
    """

    producer_id: int

    # These follow from the log, and are in snapshots.
    producer_epoch: int = NO_PRODUCER_EPOCH
    """NO_PRODUCER_EPOCH if the log has nothing of the producer."""
    batches: tuple[BatchMetadata, ...] = ()
    """The last batches, oldest first, at most WINDOW, all of the current epoch."""
    coordinator_epoch: int = NO_COORDINATOR_EPOCH
    """The epoch of the coordinator that sent the last marker."""
    last_timestamp: int = NO_TIMESTAMP
    """The time of the last batch or marker, in ms; the producer expires by it."""
    current_txn_first_offset: int | None = None
    """The first offset of the open transaction; None if none is open."""

    # These end with the process.
    opened_by: Opener | None = None
    """The client that the open transaction was verified for. None if none is open, or if it was
    not verified: before the last start, or because verification is disabled."""
    verification: VerificationGuard | None = None
    """The guard of the verification in progress. It may be void: see
    `ProducerStateManager.forget_expected`."""

    @property
    def last_offset(self) -> int:
        """Return the last offset of the last batch; -1 without a batch of this epoch."""
        return self.batches[-1].last_offset if self.batches else -1

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def with_verification(
        self, verification: VerificationGuard | None, opened_by: Opener | None
    ) -> "ProducerStateEntry":
        """Return the entry with another verification, and another opener of the transaction."""
        return ProducerStateEntry(
            self.producer_id,
            self.producer_epoch,
            self.batches,
            self.coordinator_epoch,
            self.last_timestamp,
            self.current_txn_first_offset,
            opened_by,
            verification,
        )

    def duplicate_of(self, header: BatchHeader) -> BatchMetadata | None:
        """Return the remembered batch that `header` repeats: same epoch and sequences."""
        if header.producer_epoch == self.producer_epoch:
            for batch in self.batches:
                if (
                    batch.last_sequence == header.last_sequence
                    and batch.first_sequence == header.base_sequence
                ):
                    return batch
        return None


class CompletedTxn(NamedTuple):
    """A transaction that a marker at `last_offset` ended."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


class ProducerUpdate(NamedTuple):
    """The changes of an append, decided before its bytes are written."""

    entries: Sequence[ProducerStateEntry] = ()
    started: Sequence[tuple[int, int]] = ()
    """(first offset, producer id) of the transactions that begin."""
    completed: Sequence[CompletedTxn] = ()
    duplicate: BatchMetadata | None = None
    """The appended batch that this one repeats: it must not be appended again."""
    verified: VerificationGuard | None = None
    """The guard that the append uses up."""
